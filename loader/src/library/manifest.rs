//! Manifests: the images of one library, for all of its platforms.
//!
//! A manifest is a text, so that users can read what they allow:
//!
//! ```text
//! farjump family 1
//! aarch64-unknown-linux-gnu 8fa2712e97c621b6b5c36ada902c57df
//! x86_64-unknown-linux-gnu 3b794f3a5635d6137ed4bbbaf171b2e5
//! x86_64-unknown-linux-gnu:bitcode 0f3e5c1a7d9b4e62a8c4d1f05b7e9a36
//! x86_64-unknown-linux-gnu:v3 80afc420775351c7860ef57d9f04d7d3
//! ```
//!
//! Each line ends with a newline. The lines of images ascend, compared byte by byte. There is at most one image for a
//! platform, and one bitcode for a machine. So the same images have the same text, and its hash is the family id.

use std::fmt::Write;

use farjump_core::code::CodeKind;
use farjump_core::cpu::{Cpu, Forms};
use farjump_core::image::{CodeId, FamilyId, Level, Platform};

/// The first line.
const HEAD: &str = "farjump family 1";
/// Most images of one library.
pub const MAX_IMAGES: usize = 64;
/// Longest text of a manifest, in bytes: a line of an image is far shorter than this allows.
pub const MAX_LEN: usize = HEAD.len() + 1 + MAX_IMAGES * 96;

/// The list of the images of one library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    id: FamilyId,
    text: String,
    images: Vec<(CodeKind, CodeId)>,
}

/// The reasons why a text is no manifest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A wrong first line.
    #[error("this is no manifest: its first line is not `{HEAD}`")]
    Head,
    /// More bytes than a manifest can have.
    #[error("manifest is too long: it has {found} bytes, the most are {MAX_LEN}")]
    TooLong {
        /// Bytes present.
        found: usize,
    },
    /// No image, or too many.
    #[error("manifest lists {count} images: it must be 1 to {MAX_IMAGES}")]
    Count {
        /// The number of images.
        count: usize,
    },
    /// A line that is no platform, or machine with `:bitcode`, and code id, or has no end.
    #[error("line {line} of the manifest is no platform and code id")]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Lines out of order, or two for one platform: the same images would have two family ids.
    #[error("line {line} of the manifest is out of order, or names a platform again")]
    Order {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl Manifest {
    /// The manifest of these images, in any order.
    ///
    /// # Errors
    /// [`ManifestError::Count`], or [`ManifestError::Order`] if two are for one platform.
    pub fn new(images: impl IntoIterator<Item = (CodeKind, CodeId)>) -> Result<Manifest, ManifestError> {
        let mut lines: Vec<String> = images.into_iter().map(|(kind, id)| format!("{kind} {id}\n")).collect();
        lines.sort_unstable();
        let mut text = String::new();
        let _ = writeln!(text, "{HEAD}");
        text.extend(lines);
        Manifest::parse(text.as_bytes())
    }

    /// The manifest of the code of one library. Images that were compiled for one CPU belong to no family.
    ///
    /// # Errors
    /// Those of [`Manifest::new`].
    pub fn of(images: impl IntoIterator<Item = (CodeKind, CodeId)>) -> Result<Manifest, ManifestError> {
        Manifest::new(images.into_iter().filter(|(kind, _)| !matches!(kind, CodeKind::Exact(_))))
    }

    /// Reads a manifest, for example one of another process.
    ///
    /// # Errors
    /// The first error found, see [`ManifestError`].
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        if text.len() > MAX_LEN {
            return Err(ManifestError::TooLong { found: text.len() });
        }
        let mut lines = text.split_inclusive(|&byte| byte == b'\n');
        if lines.next().and_then(|line| line.strip_suffix(b"\n")) != Some(HEAD.as_bytes()) {
            return Err(ManifestError::Head);
        }
        let count = lines.clone().count();
        if !(1..=MAX_IMAGES).contains(&count) {
            return Err(ManifestError::Count { count });
        }
        let mut images: Vec<(CodeKind, CodeId)> = Vec::with_capacity(count);
        let mut last: &[u8] = b"";
        for (index, bytes) in lines.enumerate() {
            let line = index + 2;
            let image = image_in(bytes).ok_or(ManifestError::Line { line })?;
            if bytes <= last || images.iter().any(|(kind, _)| *kind == image.0) {
                return Err(ManifestError::Order { line });
            }
            images.push(image);
            last = bytes;
        }
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(text).as_bytes()[..16]);
        // Each line was read as a kind of code and an id, which are ASCII.
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Manifest { id: FamilyId(id), text, images })
    }

    /// Its identity.
    pub fn id(&self) -> FamilyId {
        self.id
    }

    /// Its text, as it travels.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The images, in the order of the text.
    pub fn images(&self) -> &[(CodeKind, CodeId)] {
        &self.images
    }

    /// The kind and the code id of the best code for a target with this CPU.
    pub fn code_for(&self, cpu: &Cpu) -> Option<(CodeKind, CodeId)> {
        best_for(cpu.platform(), cpu.forms(), self.images.iter().map(|&(kind, id)| (kind, (kind, id))))
    }

    /// Returns whether this code is one of the images.
    pub fn contains(&self, code: &CodeId) -> bool {
        self.images.iter().any(|(_, id)| id == code)
    }
}

/// Chooses the best code for a target whose CPU is of this platform, from codes with their kinds. That is the image of
/// the highest level that runs on it, or bitcode if there is none or the target prefers it. Does not consider images
/// for one CPU.
pub(crate) fn best_for<T>(
    target: Platform,
    forms: Forms,
    codes: impl Iterator<Item = (CodeKind, T)>,
) -> Option<T> {
    let (mut image, mut bitcode) = (None::<(Level, T)>, None);
    for (kind, code) in codes {
        match kind {
            CodeKind::Platform(platform)
                if forms.contains(Forms::NATIVE)
                    && platform.runs_on(target.machine, target.level)
                    && image.as_ref().is_none_or(|(level, _)| *level <= platform.level) =>
            {
                image = Some((platform.level, code));
            }
            CodeKind::Bitcode(machine) if forms.contains(Forms::BITCODE) && machine == target.machine => {
                bitcode = Some(code);
            }
            _ => {}
        }
    }
    let image = image.map(|(_, code)| code);
    if forms.contains(Forms::PREFERS_BITCODE) { bitcode.or(image) } else { image.or(bitcode) }
}

/// Reads the line of an image.
fn image_in(line: &[u8]) -> Option<(CodeKind, CodeId)> {
    let line = str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (kind, digits) = line.split_once(' ')?;
    let kind: CodeKind = kind.parse().ok().filter(|kind| !matches!(kind, CodeKind::Exact(_)))?;
    let mut id = [0; 16];
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if digits.len() != 32 || !digits.as_bytes().iter().all(is_digit) {
        return None;
    }
    for (byte, digits) in id.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    let image = (kind, CodeId(id));
    // Each image has only one valid form.
    (format!("{kind} {}", image.1) == line).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V3: &str = "x86_64-unknown-linux-gnu:v3";
    const BASELINE: &str = "x86_64-unknown-linux-gnu";
    const ARM: &str = "aarch64-unknown-linux-gnu";

    fn kind(text: &str) -> CodeKind {
        text.parse().unwrap()
    }

    fn sample() -> Manifest {
        let images = [(V3, 3), (ARM, 1), (BASELINE, 2)];
        Manifest::new(images.map(|(text, byte)| (kind(text), CodeId([byte; 16])))).unwrap()
    }

    #[test]
    fn a_manifest_does_not_depend_on_the_order_of_its_images() {
        let manifest = sample();
        let ids = [1, 2, 3].map(|byte: u8| format!("{byte:02x}").repeat(16));
        let text = format!("farjump family 1\n{ARM} {}\n{BASELINE} {}\n{V3} {}\n", ids[0], ids[1], ids[2]);
        assert_eq!(manifest.text(), text);
        assert_eq!(manifest.id().0, blake3::hash(text.as_bytes()).as_bytes()[..16]);
        let mut images = manifest.images().to_vec();
        images.reverse();
        assert_eq!(Manifest::new(images).unwrap(), manifest);
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
        assert!(manifest.contains(&CodeId([2; 16])) && !manifest.contains(&CodeId([4; 16])));
    }

    #[test]
    fn each_error_is_named() {
        let text = sample().text().to_owned();
        let error = |text: &str| Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error(""), ManifestError::Head);
        assert_eq!(error("farjump family 1"), ManifestError::Head);
        assert_eq!(error(&text.replace("family 1", "family 2")), ManifestError::Head);
        assert_eq!(error("farjump family 1\n"), ManifestError::Count { count: 0 });
        assert_eq!(error(text.trim_end()), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace(":v3 ", ":v9 ")), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace(":v3 ", ":baseline ")), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace(" 03", " 0G")), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace("v3 03", "v3 ")), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace("v3 ", "v3  ")), ManifestError::Line { line: 4 });
        assert_eq!(error(&text.replace(":v3 ", ":exact ")), ManifestError::Line { line: 4 });
        let twice = text.replace(&format!("{V3} 03"), &format!("{BASELINE} 03"));
        assert_eq!(error(&twice), ManifestError::Order { line: 4 });
        let line = text.lines().nth(1).unwrap().to_owned() + "\n";
        assert_eq!(error(&(text.replace(&line, "") + &line)), ManifestError::Order { line: 4 });
        let long = text + &"x".repeat(MAX_LEN);
        assert_eq!(error(&long), ManifestError::TooLong { found: long.len() });
    }

    #[test]
    fn the_best_code_depends_on_what_the_target_runs_and_takes() {
        let id = |byte: u8| CodeId([byte; 16]);
        let codes = [(BASELINE, 1), (V3, 3), ("x86_64-unknown-linux-gnu:bitcode", 7), (ARM, 9)];
        let manifest = Manifest::new(codes.map(|(text, byte)| (kind(text), id(byte)))).unwrap();
        assert_eq!(Manifest::parse(manifest.text().as_bytes()).unwrap(), manifest);
        let best = |cpu: &str, forms: Forms| {
            let platform = kind(cpu).platform().unwrap();
            let cpu = Cpu::of_level(platform.machine, platform.level).with_forms(forms);
            manifest.code_for(&cpu).map(|(_, id)| id.0[0])
        };
        let both = Forms::NATIVE | Forms::BITCODE;
        let rather = both | Forms::PREFERS_BITCODE;
        assert_eq!(best("x86_64-unknown-linux-gnu:v2", Forms::NATIVE), Some(1));
        assert_eq!(best("x86_64-unknown-linux-gnu:v4", both), Some(3));
        assert_eq!(best(BASELINE, rather), Some(7));
        assert_eq!(best(BASELINE, Forms::BITCODE), Some(7));
        assert_eq!(best(ARM, rather), Some(9));
        assert_eq!(best("riscv64gc-unknown-linux-gnu", rather), None);
        let alone = Manifest::new([(kind("x86_64-unknown-linux-gnu:bitcode"), id(7))]).unwrap();
        let v4 = kind("x86_64-unknown-linux-gnu:v4").platform().unwrap();
        let cpu = Cpu::of_level(v4.machine, v4.level);
        assert_eq!(alone.code_for(&cpu), None);
        assert_eq!(alone.code_for(&cpu.with_forms(both)).map(|(_, code)| code), Some(id(7)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Manifest::parse(&bytes);
        }

        #[test]
        fn a_changed_byte_is_refused_or_another_family(at in 0..200_usize, byte in any::<u8>()) {
            let manifest = sample();
            let mut text = manifest.text().as_bytes().to_vec();
            let at = at % text.len();
            prop_assume!(text[at] != byte);
            text[at] = byte;
            if let Ok(other) = Manifest::parse(&text) {
                prop_assert_ne!(other.id(), manifest.id());
            }
        }
    }
}
