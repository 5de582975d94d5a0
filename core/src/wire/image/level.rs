//! CPU levels: steps of a machine's instruction set that compilers and images name.

use core::fmt;

use super::Machine;

/// A CPU level of a machine: the instructions that code of this level may use, and all below it.
///
/// Level 0 is the baseline of the machine's [triple](Machine::triple). On x86-64 the levels 2, 3 and 4 are
/// x86-64-v2, -v3 and -v4 (System V psABI for x86-64, section 3.1.1); its level 1 is the baseline. All other
/// machines have only the baseline. Levels of one machine are ordered; those of two machines do not compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Level(u8);

impl Level {
    /// The instructions that each CPU of the machine has.
    pub const BASELINE: Level = Level(0);

    /// Returns the level with this number; `None` if `machine` has none.
    pub const fn new(machine: Machine, number: u8) -> Option<Level> {
        match (machine, number) {
            (_, 0) | (Machine::X86_64, 2..=4) => Some(Level(number)),
            _ => None,
        }
    }

    /// Returns the level that `text` names, as [`Display`](fmt::Display) writes it: `baseline`, and on x86-64
    /// `v2`, `v3` and `v4`. `None` if `machine` has none of this name.
    pub fn parse(machine: Machine, text: &str) -> Option<Level> {
        Level::all(machine).find(|level| level.name() == text)
    }

    /// Returns the levels of `machine`, ascending.
    pub fn all(machine: Machine) -> impl Iterator<Item = Level> {
        (0..=4).filter_map(move |number| Level::new(machine, number))
    }

    /// The number of the level: 0 for the baseline, and on x86-64 the number behind the `v`.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    const fn name(self) -> &'static str {
        match self.0 {
            2 => "v2",
            3 => "v3",
            4 => "v4",
            _ => "baseline",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn x86_64_has_the_psabi_levels_and_other_machines_the_baseline() {
        let numbers = |machine| Level::all(machine).map(Level::number).collect::<Vec<_>>();
        assert_eq!(numbers(Machine::X86_64), [0, 2, 3, 4]);
        for machine in [Machine::AARCH64, Machine::RISCV, Machine(1)] {
            assert_eq!(numbers(machine), [0], "{machine}");
            assert_eq!(Level::parse(machine, "v2"), None, "{machine}");
        }
        for number in 0..=u8::MAX {
            let level = Level::new(Machine::X86_64, number);
            assert_eq!(level.map(Level::number), [0, 2, 3, 4].contains(&number).then_some(number));
        }
    }

    #[test]
    fn a_level_is_parsed_from_what_it_prints() {
        for level in Level::all(Machine::X86_64) {
            assert_eq!(Level::parse(Machine::X86_64, &level.to_string()), Some(level));
        }
        for text in ["", "v1", "v5", "3", "V3", "v3 ", "x86-64-v3"] {
            assert_eq!(Level::parse(Machine::X86_64, text), None, "{text:?}");
        }
        assert_eq!(Level::BASELINE.to_string(), "baseline");
    }

    #[test]
    fn higher_levels_compare_greater() {
        let levels: Vec<_> = Level::all(Machine::X86_64).collect();
        assert!(levels.is_sorted() && levels[0] == Level::BASELINE);
    }
}
