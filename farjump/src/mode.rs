//! Modes: how the code of calls travels and runs. A source chooses, a target allows.

use std::fmt;
use std::str::FromStr;

/// The way in which a call's code travels and runs. A source chooses one for each link
/// ([`LinkBuilder::mode`](crate::LinkBuilder::mode)), a target allows some
/// ([`TargetBuilder::modes`](crate::TargetBuilder::modes)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The code travels with its first call on a link; later calls name it by a number.
    #[default]
    Cached,
    /// The code travels with each call. The target compares it with its stored copy, and runs that one.
    Always,
    /// The target has the library itself ([`TargetBuilder::local`](crate::TargetBuilder::local)): only the
    /// name travels.
    Local,
    /// The code travels with each call, and runs where it lies, in the target's mailbox. A target allows it
    /// only on demand: the bytes that the source has written run, whatever the code id says. Code with
    /// writable statics cannot run in place, nor can any code over a transport without a mailbox.
    InPlace,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Cached, Mode::Always, Mode::Local, Mode::InPlace];
    /// The modes allowed by default: all but [`Mode::InPlace`].
    pub const DEFAULT: [Mode; 3] = [Mode::Cached, Mode::Always, Mode::Local];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Cached => "cached",
            Mode::Always => "always",
            Mode::Local => "local",
            Mode::InPlace => "in-place",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is no mode: there are {}", names(Mode::ALL)))
    }
}

/// The names of `modes`, for messages.
fn names(modes: impl IntoIterator<Item = Mode>) -> String {
    let names: Vec<_> = modes.into_iter().map(Mode::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The modes that a target allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed(u8);

impl Allowed {
    /// These modes and no others.
    pub(crate) fn only(modes: &[Mode]) -> Allowed {
        Allowed(modes.iter().fold(0, |set, mode| set | 1 << *mode as u8))
    }

    #[inline]
    pub(crate) fn has(self, mode: Mode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }
}

impl Default for Allowed {
    fn default() -> Self {
        Allowed::only(&Mode::DEFAULT)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&names(Mode::ALL.into_iter().filter(|mode| self.has(*mode))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_reads_back_from_its_name_and_nothing_else_does() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for text in ["", "Cached", "in place", "all"] {
            assert_eq!(
                text.parse::<Mode>(),
                Err(format!("`{text}` is no mode: there are cached, always, local, in-place"))
            );
        }
    }

    #[test]
    fn allowed_modes_are_those_listed_or_by_default_all_but_in_place() {
        let some = Allowed::only(&[Mode::Local, Mode::Cached]);
        assert!(some.has(Mode::Cached) && some.has(Mode::Local) && !some.has(Mode::Always));
        assert_eq!(
            (some.to_string(), Allowed::only(&[]).to_string()),
            ("cached, local".into(), "none".into())
        );
        assert!(Mode::ALL.into_iter().all(|mode| Allowed::default().has(mode) == (mode != Mode::InPlace)));
    }
}
