//! Code in either form: an image of machine code, or bitcode.

use alloc::borrow::ToOwned;
use core::fmt;
use core::str::FromStr;

use super::bitcode::{BitcodeError, BitcodeView};
use super::image::{ImageError, ImageView, Machine, Platform, PlatformError};

/// The platform, CPU or machine that code is for.
///
/// Written as a platform ([`Platform`]), or as a machine's triple with `:exact` or `:bitcode` behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodeKind {
    /// An image for all CPUs of a platform.
    Platform(Platform),
    /// An image for one CPU of this machine.
    Exact(Machine),
    /// Bitcode, for all CPUs of this machine.
    Bitcode(Machine),
}

const EXACT: &str = ":exact";
const BITCODE: &str = ":bitcode";

impl CodeKind {
    /// The machine.
    pub fn machine(self) -> Machine {
        match self {
            CodeKind::Platform(platform) => platform.machine,
            CodeKind::Exact(machine) | CodeKind::Bitcode(machine) => machine,
        }
    }

    /// The platform that an image is for; `None` for code of the other kinds.
    pub fn platform(self) -> Option<Platform> {
        match self {
            CodeKind::Platform(platform) => Some(platform),
            CodeKind::Exact(_) | CodeKind::Bitcode(_) => None,
        }
    }
}

impl fmt::Display for CodeKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeKind::Platform(platform) => platform.fmt(out),
            CodeKind::Exact(machine) => write!(out, "{machine}{EXACT}"),
            CodeKind::Bitcode(machine) => write!(out, "{machine}{BITCODE}"),
        }
    }
}

impl FromStr for CodeKind {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<CodeKind, PlatformError> {
        let of_machine = |triple: &str| match triple.parse()? {
            Platform { machine, .. } if machine.triple() == triple => Ok(machine),
            _ => Err(PlatformError::Machine { triple: triple.to_owned() }),
        };
        match (text.strip_suffix(EXACT), text.strip_suffix(BITCODE)) {
            (Some(triple), _) => of_machine(triple).map(CodeKind::Exact),
            (_, Some(triple)) => of_machine(triple).map(CodeKind::Bitcode),
            _ => text.parse().map(CodeKind::Platform),
        }
    }
}

/// The reasons why bytes are no code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The bytes are no image, and do not start like bitcode.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The bytes start like bitcode, and are damaged.
    #[error(transparent)]
    Bitcode(#[from] BitcodeError),
}

/// Code whose lengths, offsets and names have been checked.
#[derive(Clone, Copy)]
pub enum CodeView<'a> {
    /// An image.
    Image(ImageView<'a>),
    /// Bitcode.
    Bitcode(BitcodeView<'a>),
}

impl<'a> CodeView<'a> {
    /// Checks code in either form.
    ///
    /// # Errors
    /// The first fault found.
    pub fn new_checked(bytes: &'a [u8]) -> Result<CodeView<'a>, CodeError> {
        if BitcodeView::is_bitcode(bytes) {
            return Ok(CodeView::Bitcode(BitcodeView::new_checked(bytes)?));
        }
        Ok(CodeView::Image(ImageView::new_checked(bytes)?))
    }

    /// The platform, CPU or machine that the code is for.
    pub fn kind(&self) -> CodeKind {
        match self {
            CodeView::Bitcode(bitcode) => CodeKind::Bitcode(bitcode.machine()),
            CodeView::Image(image) => {
                image.platform().map_or(CodeKind::Exact(image.machine()), CodeKind::Platform)
            }
        }
    }

    /// log2 of the alignment that its payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub fn payload_align_log2(&self) -> u8 {
        match self {
            CodeView::Image(image) => image.payload_align_log2(),
            CodeView::Bitcode(bitcode) => bitcode.payload_align_log2(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for text in [
            "x86_64-unknown-linux-gnu",
            "x86_64-unknown-linux-gnu:v3",
            "aarch64-unknown-linux-gnu:exact",
            "riscv64gc-unknown-linux-gnu:bitcode",
        ] {
            let kind: CodeKind = text.parse().unwrap();
            assert_eq!(kind.to_string(), text);
        }
        for text in [
            "x86_64-unknown-linux-gnu:v3:bitcode",
            "x86_64-unknown-linux-gnu:baseline:exact",
            "sparc:bitcode",
            ":exact",
        ] {
            assert!(text.parse::<CodeKind>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_code_with_the_bitcode_magic_is_read_as_bitcode() {
        assert!(matches!(CodeView::new_checked(b"FJL\x01"), Err(CodeError::Bitcode(_))));
        assert!(matches!(CodeView::new_checked(b"FJI\x02"), Err(CodeError::Image(_))));
        assert!(matches!(CodeView::new_checked(b""), Err(CodeError::Image(_))));
    }
}
