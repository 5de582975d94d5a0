//! The file of `--plot`, checked before measuring.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::program::failure::Failure;

/// A picture to write, of a format by its ending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::perf) struct PictureFile {
    path: PathBuf,
    kind: PictureKind,
}

/// The format of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::perf) enum PictureKind {
    Svg,
    Png,
}

/// Reads the name of a picture's file.
///
/// # Errors
/// It ends with neither `.svg` nor `.png`.
pub(in crate::perf) fn parse_picture_file(text: &str) -> Result<PictureFile, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let kind = match ending.as_deref() {
        Some("svg") => PictureKind::Svg,
        Some("png") => PictureKind::Png,
        _ => return Err("plots are SVG or PNG: end the name with .svg or .png".to_owned()),
    };
    Ok(PictureFile { path, kind })
}

impl PictureFile {
    /// Returns the format, by the ending of its name.
    pub(in crate::perf) fn kind(&self) -> PictureKind {
        self.kind
    }

    /// Checks as far as possible without writing that the file can be written.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(in crate::perf) fn check(&self) -> Result<(), Failure> {
        let refused = |why: &dyn Display| Failure::new(format!("--plot {}: {why}", self.path.display()));
        let (place, needed) = match self.path.exists() {
            true => (&*self.path, Access::WRITE_OK),
            false => (folder_of(&self.path), Access::WRITE_OK | Access::EXEC_OK),
        };
        match (place == self.path, place.is_dir()) {
            (true, true) => return Err(refused(&"that is a folder; name a file")),
            (false, false) => return Err(refused(&format!("there is no folder {}", place.display()))),
            _ => {}
        }
        access(place, needed)
            .map_err(|error| refused(&format!("{} cannot be written: {error}", place.display())))
    }

    /// Writes the drawn picture.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(in crate::perf) fn write(&self, picture: &[u8]) -> Result<(), Failure> {
        let written = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path).and_then(
            |mut file| {
                file.write_all(picture)?;
                // Some file systems report only now that they are full.
                file.sync_all().or_else(|error| match error.kind() {
                    std::io::ErrorKind::InvalidInput => Ok(()),
                    _ => Err(error),
                })
            },
        );
        written.map_err(|error| {
            Failure::new(format!("the picture {} cannot be written: {error}", self.path.display()))
        })
    }
}

/// Returns the folder of the file with this name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
