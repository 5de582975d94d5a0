//! The platforms that images are for.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::{Level, Machine};

/// The platform that an image is for: a machine, and the least CPU level that runs the image.
///
/// Written as a compiler's target triple, with the level behind a colon: `x86_64-unknown-linux-gnu:v3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Platform {
    /// Instruction set.
    pub machine: Machine,
    /// Least CPU level.
    pub level: Level,
}

/// The machines that have a name.
const MACHINES: [Machine; 3] = [Machine::X86_64, Machine::AARCH64, Machine::RISCV];

impl Platform {
    /// The baseline of `machine`.
    pub const fn baseline(machine: Machine) -> Platform {
        Platform { machine, level: Level::BASELINE }
    }

    /// Returns whether a CPU of `machine` and `level` runs an image for this platform.
    pub fn runs_on(self, machine: Machine, level: Level) -> bool {
        self.machine == machine && self.level <= level
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.machine)?;
        if self.level == Level::BASELINE { Ok(()) } else { write!(out, ":{}", self.level) }
    }
}

/// A text that names no platform.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// A triple that farjump has no images for.
    #[error(
        "there is no target `{triple}`: take {}, with a CPU level behind it if it has any ({}:v3)",
        MACHINES.map(Machine::triple).join(", "), Machine::X86_64.triple()
    )]
    Machine {
        /// The text in front of the colon, if there is one.
        triple: String,
    },
    /// A level that the machine does not have.
    #[error("{machine} has no CPU level `{level}`: it has {}", levels(*machine))]
    Level {
        /// The machine.
        machine: Machine,
        /// The text behind the colon.
        level: String,
    },
}

fn levels(machine: Machine) -> String {
    Level::all(machine).map(|level| level.to_string()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Platform, PlatformError> {
        let (triple, level) = text.split_once(':').unwrap_or((text, "baseline"));
        let machine = MACHINES.into_iter().find(|machine| machine.triple() == triple);
        let machine = machine.ok_or_else(|| PlatformError::Machine { triple: triple.to_owned() })?;
        let found = Level::parse(machine, level);
        let level = found.ok_or_else(|| PlatformError::Level { machine, level: level.to_owned() })?;
        Ok(Platform { machine, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_is_written() {
        for machine in MACHINES {
            for level in Level::all(machine) {
                let platform = Platform { machine, level };
                assert_eq!(platform.to_string().parse(), Ok(platform));
            }
        }
        assert_eq!(Platform::baseline(Machine::AARCH64).to_string(), "aarch64-unknown-linux-gnu");
    }

    #[test]
    fn an_image_runs_on_its_machine_from_its_level_on() {
        let of = |text: &str| text.parse::<Platform>().unwrap();
        let (v2, v3) = (of("x86_64-unknown-linux-gnu:v2"), of("x86_64-unknown-linux-gnu:v3"));
        assert!(v2.runs_on(v3.machine, v3.level) && v3.runs_on(v3.machine, v3.level));
        assert!(!v3.runs_on(v2.machine, v2.level) && !v3.runs_on(Machine::AARCH64, v3.level));
        assert!(Platform::baseline(Machine::X86_64).runs_on(v2.machine, v2.level));
    }

    #[test]
    fn other_targets_are_refused_with_what_there_is() {
        let refusal = |text: &str| text.parse::<Platform>().unwrap_err().to_string();
        let other = refusal("sparc64-unknown-linux-gnu");
        assert!(
            other.contains("`sparc64-unknown-linux-gnu`") && other.contains("riscv64gc-unknown-linux-gnu")
        );
        assert!(refusal("x86_64-unknown-linux-gnu:v5").ends_with("it has baseline, v2, v3, v4"));
        assert!(refusal("aarch64-unknown-linux-gnu:v3").ends_with("it has baseline"));
        assert!(refusal("x86_64-unknown-linux-gnu:").contains("``"));
    }
}
