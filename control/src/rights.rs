//! Rights of a process that connects to a target.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

bitflags::bitflags! {
    /// Rights at a target, of its own user or a key. [`Rights::default`] is to observe, call and inject.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    #[serde(from = "u8", into = "u8")]
    pub struct Rights: u8 {
        /// List the target's stored code and its statistics.
        const OBSERVE = 1;
        /// Make a link, and run functions that the target has: its own by name, others by code id.
        const CALL = 2;
        /// Bring code to a link: in frames, on request, or to run in place. Needs [`Rights::CALL`], too.
        const INJECT = 4;
        /// Drop code of any source from the target's code store.
        const DROP = 8;
        /// Make the target load libraries, and link code against them.
        const EXPORT = 16;
    }
}

/// Names of the rights on the command line and in key files.
const NAMES: [(&str, Rights); 5] = [
    ("observe", Rights::OBSERVE),
    ("call", Rights::CALL),
    ("inject", Rights::INJECT),
    ("drop", Rights::DROP),
    ("export", Rights::EXPORT),
];
/// The name of the empty set.
const NONE: &str = "none";

impl Rights {
    /// Returns the names of these rights, in the order of the constants.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |(_, right)| self.contains(*right)).map(|(name, _)| name)
    }

    /// Returns the rights of `needed` that are missing here; `None` if none is.
    pub fn lacks(self, needed: Rights) -> Option<MissingRights> {
        let missing = needed.difference(self);
        (!missing.is_empty()).then_some(MissingRights { missing, granted: self, of_key: false })
    }
}

/// Rights that a process lacks at a target. The text is the same at the target and at a source that knows its
/// rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{} `{missing}` at this target {} missing (there are: {granted}); have its operator add `{}` {}",
    if missing.iter().count() == 1 { "the right" } else { "the rights" },
    if missing.iter().count() == 1 { "is" } else { "are" },
    Grant::Change { added: *missing, removed: Rights::empty() },
    if *of_key { "behind this key in its key file (`allow=`)" } else { "to the rights of its sources (TargetBuilder::rights)" }
)]
pub struct MissingRights {
    /// The rights that are missing.
    pub missing: Rights,
    /// The rights that the process has.
    pub granted: Rights,
    /// True if `granted` are the rights of a key.
    pub of_key: bool,
}

/// Rights as an operator writes them: a list, which replaces the default rights, or changes to them.
///
/// A list has names separated by commas (`observe,call`), or is `none`. In changes each name has a sign:
/// `+drop,-call`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// Exactly these rights.
    List(Rights),
    /// The default rights, with some added and others removed.
    Change {
        /// The rights to add.
        added: Rights,
        /// The rights to remove.
        removed: Rights,
    },
}

impl Grant {
    /// Returns the rights that result if the default is `otherwise`.
    pub fn instead_of(self, otherwise: Rights) -> Rights {
        match self {
            Grant::List(rights) => rights,
            Grant::Change { added, removed } => otherwise.union(added).difference(removed),
        }
    }
}

impl From<Rights> for Grant {
    fn from(rights: Rights) -> Grant {
        Grant::List(rights)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant::Change { added, removed } = self else {
            let Grant::List(rights) = self else { return Ok(()) };
            return rights.fmt(out);
        };
        let signed = added.names().map(|name| ('+', name)).chain(removed.names().map(|name| ('-', name)));
        for (place, (sign, name)) in signed.enumerate() {
            write!(out, "{}{sign}{name}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Grant {
    type Err = String;

    /// Parses a list of names, or changes.
    ///
    /// # Errors
    /// A sentence for the user.
    fn from_str(text: &str) -> Result<Grant, String> {
        const SIGNS: [char; 2] = ['+', '-'];
        if !text.starts_with(SIGNS) && !text.contains(",+") && !text.contains(",-") {
            return text.parse().map(Grant::List);
        }
        let (mut added, mut removed) = (Rights::empty(), Rights::empty());
        for word in text.split(',') {
            let Some(name) = word.strip_prefix(SIGNS) else {
                return Err(format!(
                    "`{text}` has names with and without a sign: give each one (+{word}) to change the default rights, or \
                     none to replace them"
                ));
            };
            let right: Rights = name.parse()?;
            let (here, there) =
                if word.starts_with('+') { (&mut added, removed) } else { (&mut removed, added) };
            if right.is_empty() || there.intersects(right) {
                return Err(format!("`{text}` does not say which rights there are: name each right once"));
            }
            here.insert(right);
        }
        Ok(Grant::Change { added, removed })
    }
}

impl Default for Rights {
    fn default() -> Rights {
        Rights::OBSERVE | Rights::CALL | Rights::INJECT
    }
}

impl From<u8> for Rights {
    /// Drops bits that no right has.
    fn from(bits: u8) -> Rights {
        Rights::from_bits_truncate(bits)
    }
}

impl From<Rights> for u8 {
    fn from(rights: Rights) -> u8 {
        rights.bits()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str(NONE);
        }
        for (place, name) in self.names().enumerate() {
            write!(out, "{}{name}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Rights {
    type Err = String;

    /// Parses names separated by commas, or `none`.
    fn from_str(text: &str) -> Result<Rights, String> {
        if text == NONE {
            return Ok(Rights::empty());
        }
        text.split(',').try_fold(Rights::empty(), |rights, name| {
            let known = NAMES.into_iter().find(|(known, _)| *known == name);
            known.map(|(_, right)| rights | right).ok_or_else(|| {
                format!(
                    "`{name}` is no right: write some of {}, with commas between them, or {NONE}",
                    Rights::all()
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_read_back_as_they_are_shown_and_travel_as_one_byte() {
        for bits in 0..32 {
            let rights = Rights::from_bits_retain(bits);
            assert_eq!(rights.to_string().parse(), Ok(rights));
            assert_eq!(postcard::to_stdvec(&rights).unwrap(), [bits]);
            assert_eq!(postcard::from_bytes::<Rights>(&[bits]).unwrap(), rights);
        }
        assert_eq!(NAMES.len(), Rights::all().iter().count(), "a right without a name");
        assert_eq!(postcard::from_bytes::<Rights>(&[0xe2]).unwrap(), Rights::CALL, "unknown bits");
        assert_eq!(Rights::default().to_string(), "observe,call,inject");
        for wrong in ["", "Call", "call, inject", "call,", "all", "none,call"] {
            assert!(
                wrong.parse::<Rights>().unwrap_err().contains("observe,call,inject,drop,export"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_list_replaces_rights_and_names_with_signs_change_them() {
        let default = Rights::default();
        for (text, rights) in [
            ("drop", Rights::DROP),
            ("none", Rights::empty()),
            ("observe,call", Rights::OBSERVE | Rights::CALL),
            ("+drop", default | Rights::DROP),
            ("+call", default),
            ("-call", Rights::OBSERVE | Rights::INJECT),
            ("+drop,-call,+export", Rights::OBSERVE | Rights::INJECT | Rights::DROP | Rights::EXPORT),
        ] {
            let grant: Grant = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(grant.instead_of(default), rights, "{text}");
            assert_eq!(grant.to_string().parse(), Ok(grant), "{text}");
        }
        assert_eq!(Grant::from(Rights::CALL).instead_of(default), Rights::CALL);
        for (wrong, words) in [
            ("+drop,call", "with and without a sign: give each one (+call)"),
            ("call,+drop", "with and without a sign"),
            ("call,-drop", "with and without a sign"),
            ("+drop,-drop", "name each right once"),
            ("+none", "name each right once"),
            ("+", "`` is no right"),
            ("+drop,", "with and without a sign"),
            ("+fly", "`fly` is no right"),
            ("", "is no right"),
        ] {
            let why = wrong.parse::<Grant>().unwrap_err();
            assert!(why.contains(words), "{wrong}: {why}");
        }
    }

    #[test]
    fn missing_rights_are_named_with_the_remedy() {
        let some = Rights::OBSERVE | Rights::CALL;
        assert_eq!(some.lacks(Rights::CALL), None);
        let text = some.lacks(Rights::CALL | Rights::INJECT).unwrap().to_string();
        assert!(
            text.contains("the right `inject`")
                && text.ends_with("add `+inject` to the rights of its sources (TargetBuilder::rights)"),
            "{text}"
        );
        let text = MissingRights { of_key: true, ..some.lacks(Rights::DROP).unwrap() }.to_string();
        assert!(text.ends_with("add `+drop` behind this key in its key file (`allow=`)"), "{text}");
        let text = Rights::empty().lacks(Rights::CALL | Rights::INJECT).unwrap().to_string();
        assert!(text.contains("the rights `call,inject`") && text.contains("there are: none"), "{text}");
    }
}
