//! The symbols of images, for debuggers.
//!
//! They do not travel. `farjump build` keeps the ELF file of its link beside the bundle, in a section that is
//! never loaded. The file has text and statics as in the image, which starts at address 0, the names of
//! functions, and the debugging information of the objects.

use std::path::Path;

use farjump_core::code::{CodeKind, CodeView};
use farjump_loader::code_id;
use farjump_loader::library::bundle::SYMBOLS_SECTION;
use object::LittleEndian;
use object::read::elf::{ElfFile64, SectionHeader};

use super::{InspectError, damaged, look_into};

/// The symbols of one image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbols {
    /// NAME of the ifunc.
    pub name: String,
    /// The image's platform: target triple, and level behind a colon if it is not the baseline; `exact` instead of a
    /// level for an image compiled for one CPU.
    pub platform: String,
    /// Code id, in hexadecimal digits.
    pub id: String,
    /// An ELF file linked at address 0: its addresses are offsets from the address of the placed image.
    pub elf: Vec<u8>,
}

/// Reads the symbols of all images of the ifunc library at `path`, in the order of the images. Bitcode has none.
///
/// # Errors
/// See [`InspectError`]; [`InspectError::NoSymbols`] if the library was stripped. Nothing outside the file is
/// read, whatever it holds.
pub fn symbols(path: impl AsRef<Path>) -> Result<Vec<Symbols>, InspectError> {
    let path = path.as_ref();
    look_into(path, |library, bundle| {
        let mut found = Vec::new();
        for (index, image) in bundle.images.iter().enumerate() {
            let kind = CodeView::new_checked(image.bytes).map_err(damaged(path, index))?.kind();
            if matches!(kind, CodeKind::Bitcode(_)) {
                continue;
            }
            let id = code_id(image.bytes).to_string();
            // Readers of the result expect a valid ELF file.
            let kept = section(library.elf(), &format!("{SYMBOLS_SECTION}{id}"))
                .filter(|bytes| ElfFile64::<LittleEndian>::parse(*bytes).is_ok());
            let missing = || InspectError::NoSymbols { path: path.to_owned(), id: id.clone() };
            let elf = kept.ok_or_else(missing)?.to_vec();
            found.push(Symbols { name: bundle.name.to_owned(), platform: kind.to_string(), id, elf });
        }
        Ok(found)
    })
}

/// The contents of the section of this name.
fn section<'a>(elf: &ElfFile64<'a, LittleEndian>, name: &str) -> Option<&'a [u8]> {
    let sections = elf.elf_section_table();
    let (_, found) = sections.section_by_name(LittleEndian, name.as_bytes())?;
    found.data(LittleEndian, elf.data()).ok()
}
