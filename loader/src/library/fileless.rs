//! Libraries without a file: of images that were linked in this process, or of a name alone.

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "build")]
use super::image::{check_alignments, manifest_of};
use super::routines::{Init, no_routine};
use super::{Library, LibraryImage, Opened};
use crate::bundle::{self, BundleError};
use crate::error::Error;
use crate::manifest::Manifest;

impl Library {
    /// A library without a file, for calls of the function that the target has by this name: only the name travels (mode
    /// local). Payloads are the arguments.
    ///
    /// # Errors
    /// [`Error::Bundle`] for a name that no ifunc can have.
    pub fn by_name(name: &str) -> Result<Library, Error> {
        let path = PathBuf::from(name);
        if !bundle::is_name(name) {
            return Err(Error::Bundle { path, source: BundleError::Name });
        }
        Ok(Library::fileless(name.to_owned(), path, Vec::new(), None))
    }

    /// Makes a library whose payloads are the arguments. It has no routines, and `origin` in place of its path.
    ///
    /// # Errors
    /// [`Error::PayloadAlignments`] and [`Error::Manifest`] for images that do not belong together.
    #[cfg(feature = "build")]
    pub(crate) fn of_images(
        name: String,
        origin: PathBuf,
        images: Vec<LibraryImage>,
    ) -> Result<Library, Error> {
        check_alignments(&images, &origin)?;
        let manifest = manifest_of(&images, &origin)?;
        Ok(Library::fileless(name, origin, images, manifest))
    }

    fn fileless(
        name: String,
        path: PathBuf,
        images: Vec<LibraryImage>,
        manifest: Option<Arc<Manifest>>,
    ) -> Library {
        Library(Arc::new(Opened {
            #[cfg(feature = "build")]
            source: None,
            name,
            path,
            is_args: true,
            max_size: no_routine,
            init: Init::Missing,
            main: None,
            images,
            manifest,
            signature: None,
            _loaded: None,
        }))
    }
}
