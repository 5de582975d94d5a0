//! Libraries of images that were linked in this process, without a file.

use std::path::PathBuf;
use std::sync::Arc;

use super::image::{check_alignments, manifest_of};
use super::routines::{Init, no_routine};
use super::{Library, LibraryImage, Opened};
use crate::error::Error;

impl Library {
    /// Makes a library whose payloads are the arguments. It has no routines, and `origin` in place of its path.
    ///
    /// # Errors
    /// [`Error::PayloadAlignments`] and [`Error::Manifest`] for images that do not belong together.
    pub(crate) fn of_images(
        name: String,
        origin: PathBuf,
        images: Vec<LibraryImage>,
    ) -> Result<Library, Error> {
        check_alignments(&images, &origin)?;
        let manifest = manifest_of(&images, &origin)?;
        Ok(Library(Arc::new(Opened {
            source: None,
            name,
            path: origin,
            is_args: true,
            max_size: no_routine,
            init: Init::Missing,
            main: None,
            images,
            manifest,
            signature: None,
            _loaded: None,
        })))
    }
}
