//! Libraries without a file: of images only, or of a name only.

use std::path::PathBuf;
use std::sync::Arc;

use super::image::{check_alignments, manifest_of};
use super::routines::{Init, MaxSizeRoutine, no_routine};
use super::{Library, LibraryImage, Opened, PayloadRoutines};
use crate::error::Error;
use crate::library::bundle::{self, BundleError};
use crate::library::manifest::Manifest;

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
        Ok(Library::fileless(name.to_owned(), path, Vec::new(), None, None))
    }

    /// Makes a library with these routines; without any, payloads are the arguments. `origin` stands for its path.
    ///
    /// # Errors
    /// [`Error::PayloadAlignments`] and [`Error::Manifest`] for images that do not belong together.
    pub fn of_images(
        name: String,
        origin: PathBuf,
        images: Vec<LibraryImage>,
        routines: Option<PayloadRoutines>,
    ) -> Result<Library, Error> {
        check_alignments(&images, &origin)?;
        let manifest = manifest_of(&images, &origin)?;
        Ok(Library::fileless(name, origin, images, manifest, routines))
    }

    fn fileless(
        name: String,
        path: PathBuf,
        images: Vec<LibraryImage>,
        manifest: Option<Arc<Manifest>>,
        routines: Option<PayloadRoutines>,
    ) -> Library {
        let is_args = routines.is_none();
        let (max_size, init, owner) = match routines {
            Some(PayloadRoutines { max_size, init, owner }) => (max_size, init, Some(owner)),
            None => (no_routine as MaxSizeRoutine, Init::Missing, None),
        };
        Library(Arc::new(Opened {
            source: None,
            name,
            path,
            is_args,
            max_size,
            init,
            main: None,
            images,
            manifest,
            signature: None,
            _owner: owner,
        }))
    }
}
