//! Libraries in memory, without a file.

use std::path::PathBuf;

use farjump_core::bitcode::BitcodeView;
use farjump_core::code::CodeView;
use farjump_core::image::ImageView;

use super::read::check_contents;
use super::{Library, LibraryImage, PayloadRoutines};
use crate::error::Error;
use crate::library::bundle::{self, BundleError, Sizes};
use crate::shared_library::Loaded;

/// Stands for a path.
const MEMORY: &str = "<memory>";

impl Library {
    /// Makes a library from bytes in memory: the contents of a library's file, or a single image or bitcode of
    /// farjump's, whose payloads are the arguments. Copies the bytes, and checks them like those of a file. Runs none
    /// of their code.
    ///
    /// `name` is the NAME of the function. An image needs one, because it does not state its own; for all else it may
    /// be `None`. [`Library::path`] is `<memory>`.
    ///
    /// # Errors
    /// Those of [`Library::open`], except for a file that is missing or unreadable. [`Error::NoName`] for an image
    /// without a name; [`Error::OtherName`] if the bytes state another one.
    pub fn from_bytes(name: Option<&str>, bytes: &[u8]) -> Result<Library, Error> {
        match code_of(name, bytes)? {
            Some(library) => Ok(library),
            None => {
                let foreign = check_contents(MEMORY.as_ref(), bytes)?;
                Library::of_contents(PathBuf::from(MEMORY), bytes, foreign)?.named(name)
            }
        }
    }

    /// [`Library::from_bytes`], and loads the contents of a library's file into this process, through a sealed file in
    /// memory. Its constructors run now, and its payload routines for each payload. Loading the same bytes again gives
    /// another library, with its own variables.
    ///
    /// # Errors
    /// Those of [`Library::from_bytes`]. [`Error::Load`] if the dynamic linker refuses the library, no file in memory
    /// can be made, or `/proc` is not mounted; [`Error::ForeignLibrary`] for a library of another machine.
    ///
    /// # Safety
    /// The conditions of [`Library::load`].
    pub unsafe fn load_bytes(name: Option<&str>, bytes: &[u8]) -> Result<Library, Error> {
        if let Some(library) = code_of(name, bytes)? {
            return Ok(library);
        }
        let path = PathBuf::from(MEMORY);
        if let Some(machine) = check_contents(&path, bytes)? {
            return Err(Error::ForeignLibrary { path, machine });
        }
        // This check comes before any code of the library runs.
        Library::of_contents(path.clone(), bytes, None)?.named(name)?;
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open_bytes(name.unwrap_or("farjump-library"), bytes) };
        let (loaded, file) = loaded.map_err(|message| Error::Load { path: path.clone(), message })?;
        // SAFETY: the caller trusts the library's routines (see Safety).
        unsafe { Library::of_built(loaded, path, Some(file)) }
    }

    /// Makes a library of codes in memory: images and bitcode of farjump's, each for another platform. `routines` make
    /// its payloads; without any, the payloads are the arguments. `origin` stands for its path.
    ///
    /// # Errors
    /// [`Error::Image`] for damaged code, [`Error::OtherName`] for bitcode of another name, [`Error::Bundle`] for a
    /// name that no ifunc can have, [`Error::PayloadAlignments`] and [`Error::Manifest`] for codes that do not belong
    /// together.
    pub fn of_codes(
        name: &str,
        origin: PathBuf,
        codes: &[&[u8]],
        routines: Option<PayloadRoutines>,
    ) -> Result<Library, Error> {
        if !bundle::is_name(name) {
            return Err(Error::Bundle { path: origin, source: BundleError::Name });
        }
        let image = |(index, bytes): (usize, &&[u8])| {
            let damaged = |source| Error::Image { path: origin.clone(), index, source };
            if let CodeView::Bitcode(bitcode) = CodeView::new_checked(bytes).map_err(damaged)? {
                check_name(Some(name), bitcode.name())?;
            }
            LibraryImage::new(bytes, Sizes::default()).map_err(damaged)
        };
        let images = codes.iter().enumerate().map(image).collect::<Result<_, _>>()?;
        Library::of_images(name.to_owned(), origin, images, routines)
    }

    /// The same, if it has this name.
    fn named(self, name: Option<&str>) -> Result<Library, Error> {
        check_name(name, self.name())?;
        Ok(self)
    }
}

fn check_name(given: Option<&str>, found: &str) -> Result<(), Error> {
    match given {
        Some(given) if given != found => {
            Err(Error::OtherName { given: given.to_owned(), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The library of an image, or of bitcode; `None` if the bytes do not start like one.
fn code_of(name: Option<&str>, bytes: &[u8]) -> Result<Option<Library>, Error> {
    if !ImageView::is_image(bytes) && !BitcodeView::is_bitcode(bytes) {
        return Ok(None);
    }
    let name = match (name, BitcodeView::new_checked(bytes)) {
        (Some(name), _) => name,
        (None, Ok(bitcode)) => bitcode.name(),
        (None, Err(_)) if ImageView::is_image(bytes) => return Err(Error::NoName),
        (None, Err(damage)) => {
            return Err(Error::Image { path: MEMORY.into(), index: 0, source: damage.into() });
        }
    };
    Library::of_codes(name, MEMORY.into(), &[bytes], None).map(Some)
}
