//! CPUs: a process's description of its processor, for its peer.
//!
//! From the description a source picks the image of a library to send. If it has a compiler, it compiles for
//! exactly this CPU. A [`Cpu`] is what a process *claims*. A false claim harms the claimant alone: it gets
//! code that it cannot run, or slower code than it could.
//!
//! The encoding (as in `docs/reference/protocol.md`) is at most [`MAX_LEN`] bytes long, little-endian, and
//! each CPU has one:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 2 | ELF machine ([`Machine`]) |
//! | 2 | 1 | number of the level ([`Level`]) |
//! | 3 | 1 | forms of code that it takes ([`Forms`]) |
//! | 4 | 1 | length of the name, at most [`MAX_NAME`] |
//! | 5 | 1 | number of features |
//! | 6 | | the name, then the features in ascending order, each behind a byte with its length |

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::code::CodeView;
use super::image::{ImageView, Level, Machine, Platform};

mod error;
mod levels;

pub use error::CpuError;

/// Longest name of a CPU, in bytes.
pub const MAX_NAME: usize = 64;
/// Longest name of a feature, in bytes.
pub const MAX_FEATURE: usize = 32;
/// Most features of a CPU.
pub const MAX_FEATURES: usize = 255;
/// Longest encoding of a CPU, in bytes.
pub const MAX_LEN: usize = HEADER_LEN + MAX_NAME + MAX_FEATURES * (1 + MAX_FEATURE);

const HEADER_LEN: usize = 6;

bitflags::bitflags! {
    /// Forms of code that a target takes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Forms: u8 {
        /// Images of machine code for its machine.
        const NATIVE = 1;
        /// Bitcode for its machine, which it compiles.
        const BITCODE = 2;
        /// Rather bitcode than images, of a library that has both.
        const PREFERS_BITCODE = 4;
    }
}

/// A CPU as a process describes it: machine, level, name, features, and the forms of code that the process
/// takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    machine: Machine,
    level: Level,
    forms: Forms,
    name: String,
    /// Ascending, each once.
    features: Vec<String>,
}

impl Cpu {
    /// Makes a CPU of `machine` with this level and name, and with `features` in any order. It takes native
    /// images.
    ///
    /// # Errors
    /// [`CpuError`] if the machine has no such level, or a name or a feature is not as [`Cpu::name`] and
    /// [`Cpu::features`] say.
    pub fn new<F: Into<String>>(
        machine: Machine,
        level: Level,
        name: impl Into<String>,
        features: impl IntoIterator<Item = F>,
    ) -> Result<Cpu, CpuError> {
        check_level(machine, level.number())?;
        let name = name.into();
        check_name(name.as_bytes())?;
        let mut features: Vec<String> = features.into_iter().map(Into::into).collect();
        features.sort_unstable();
        features.dedup();
        if features.len() > MAX_FEATURES {
            return Err(CpuError::Features { found: features.len() });
        }
        for (index, feature) in features.iter().enumerate() {
            check_feature(index, feature.as_bytes())?;
        }
        Ok(Cpu { machine, level, forms: Forms::NATIVE, name, features })
    }

    /// Makes a CPU that has exactly what `level` of `machine` guarantees: its features and those of all lower
    /// levels, and no name.
    pub fn of_level(machine: Machine, level: Level) -> Cpu {
        let mut features: Vec<String> = levels::features(machine, level).map(String::from).collect();
        features.sort_unstable();
        Cpu { machine, level, forms: Forms::NATIVE, name: String::new(), features }
    }

    /// Returns the highest level of `machine` such that `has` is true for each of its features.
    pub fn level_with(machine: Machine, has: impl Fn(&str) -> bool) -> Level {
        let whole = |level: &Level| levels::features(machine, *level).all(&has);
        Level::all(machine).take_while(whole).last().unwrap_or(Level::BASELINE)
    }

    /// Its machine and level: the platform whose images run on it.
    pub fn platform(&self) -> Platform {
        Platform { machine: self.machine, level: self.level }
    }

    /// Its instruction set.
    #[inline]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Its level: code for this level or a lower one runs on it.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The same CPU of a process that takes these forms of code.
    #[must_use]
    pub fn with_forms(self, forms: Forms) -> Cpu {
        Cpu { forms, ..self }
    }

    /// The forms of code that the process takes.
    pub fn forms(&self) -> Forms {
        self.forms
    }

    /// Its name as the compilers' options spell it (`znver4`, `neoverse-n1`): empty if unknown, at most
    /// [`MAX_NAME`] bytes long, of lowercase letters, digits and `.`, `_`, `-` behind the first.
    ///
    /// The name stands for a processor as sold. A virtual machine may hide instructions of its processor, and
    /// code for the name might use them. So compile for [`Cpu::level`] and [`Cpu::features`] (`-march`,
    /// `-m`), and only tune for the name (`-mtune`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instructions that it has, in ascending order: on x86-64 what follows `-m` in the compilers'
    /// options (`avx2`, `bmi2`), on aarch64 and riscv64 the extensions in `-march` (`lse`, `sve2`; `zba`). At
    /// most [`MAX_FEATURES`], each at most [`MAX_FEATURE`] bytes long, of the same characters as the name.
    pub fn features(&self) -> &[String] {
        &self.features
    }

    /// Returns whether it has this feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.binary_search_by(|own| own.as_str().cmp(feature)).is_ok()
    }

    /// Returns whether an image runs on this CPU. It does if the image is for the CPU's machine and for its
    /// level or a lower one, or if the CPU has each feature that the image needs. An unknown feature counts
    /// as lacking.
    pub fn runs(&self, image: &ImageView<'_>) -> bool {
        match image.platform() {
            Some(platform) => platform.runs_on(self.machine, self.level),
            None => image.machine() == self.machine && self.lacks(image.features()).next().is_none(),
        }
    }

    /// Returns whether the process takes this code: in its form, and for its machine or CPU.
    pub fn takes(&self, code: &CodeView<'_>) -> bool {
        match code {
            CodeView::Image(image) => self.forms.contains(Forms::NATIVE) && self.runs(image),
            CodeView::Bitcode(bitcode) => {
                self.forms.contains(Forms::BITCODE) && bitcode.machine() == self.machine
            }
        }
    }

    /// Returns those of `features` that it lacks. A level promises its features, even if they are not listed.
    pub fn lacks<'a>(&self, features: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
        features.filter(move |feature| {
            let promised = || levels::features(self.machine, self.level).any(|of_level| of_level == *feature);
            !self.has(feature) && !promised()
        })
    }

    /// Returns its encoding.
    pub fn encode(&self) -> Vec<u8> {
        let [low, high] = self.machine.0.to_le_bytes();
        // The constructors have bounded both lengths.
        let lengths = [self.name.len() as u8, self.features.len() as u8];
        let mut bytes = Vec::from([low, high, self.level.number(), self.forms.bits()]);
        bytes.extend(lengths);
        bytes.extend(self.name.bytes());
        for feature in &self.features {
            bytes.push(feature.len() as u8);
            bytes.extend(feature.bytes());
        }
        bytes
    }

    /// Decodes the result of [`Cpu::encode`], and nothing else.
    ///
    /// # Errors
    /// The first fault of `bytes`, see [`CpuError`].
    pub fn decode(bytes: &[u8]) -> Result<Cpu, CpuError> {
        let found = bytes.len();
        if found > MAX_LEN {
            return Err(CpuError::TooLong { found });
        }
        let truncated = CpuError::Truncated { found };
        let Some((&[low, high, level, forms, name_len, count], mut rest)) =
            bytes.split_first_chunk::<HEADER_LEN>()
        else {
            return Err(truncated);
        };
        let machine = Machine(u16::from_le_bytes([low, high]));
        let level = check_level(machine, level)?;
        let forms = Forms::from_bits(forms).ok_or(CpuError::Forms(forms))?;
        let mut take = |len: u8| {
            let (word, behind) = rest.split_at_checked(len.into())?;
            rest = behind;
            Some(word)
        };
        let name = check_name(take(name_len).ok_or_else(|| truncated.clone())?)?;
        let mut features: Vec<String> = Vec::with_capacity(count.into());
        for index in 0..count.into() {
            let len = take(1).ok_or_else(|| truncated.clone())?[0];
            let feature = check_feature(index, take(len).ok_or_else(|| truncated.clone())?)?;
            if features.last().is_some_and(|before| before.as_str() >= feature) {
                return Err(CpuError::Order { index });
            }
            features.push(feature.into());
        }
        if !rest.is_empty() {
            return Err(CpuError::Excess { len: rest.len() });
        }
        Ok(Cpu { machine, level, forms, name: name.into(), features })
    }
}

impl Default for Cpu {
    /// The CPU of an unknown machine.
    fn default() -> Cpu {
        Cpu::of_level(Machine(0), Level::BASELINE)
    }
}

impl fmt::Display for Cpu {
    /// Writes machine, level and name: `x86_64-unknown-linux-gnu, v3 (znver4)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, {}", self.machine, self.level)?;
        match self.name.as_str() {
            "" => Ok(()),
            name => write!(out, " ({name})"),
        }
    }
}

fn check_level(machine: Machine, number: u8) -> Result<Level, CpuError> {
    Level::new(machine, number).ok_or(CpuError::Level { machine, number })
}

fn check_name(name: &[u8]) -> Result<&str, CpuError> {
    if name.is_empty() {
        return Ok("");
    }
    option_word(name, MAX_NAME).ok_or(CpuError::Name)
}

fn check_feature(index: usize, feature: &[u8]) -> Result<&str, CpuError> {
    option_word(feature, MAX_FEATURE).ok_or(CpuError::Feature { index })
}

/// Returns `word` if it has 1 to `max` bytes that may stand in a compiler's option. It becomes part of a
/// command line: no other bytes, and none at its start that could begin an option, may come from a peer.
pub(crate) fn option_word(word: &[u8], max: usize) -> Option<&str> {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, rest) = word.split_first()?;
    let is_word = word.len() <= max && plain(first) && rest.iter().all(|b| plain(b) || b"._-".contains(b));
    core::str::from_utf8(word).ok().filter(|_| is_word)
}

#[cfg(test)]
mod tests;
