//! Options of targets, links, and the objects beside them: one table.
//!
//! Each option is a row: its name, type, default, range and description, and the interfaces that show it. A
//! configuration ([`TargetConfig`] and its kin) is a plain value with a field for each row. Its options are also set and
//! read by name, as the C interface, Python, the command line, files and the environment do:
//!
//! ```
//! use farjump::config::{Config, TargetConfig};
//!
//! let mut config = TargetConfig::default();
//! config.mailbox_size = 64 << 10;
//! config.set("max-payload", "64M")?;
//! assert_eq!(config.get("max-payload")?, Some("64M".into()));
//!
//! let error = config.set("max-paylod", "64M").unwrap_err();
//! assert_eq!(error.to_string(), "`max-paylod` is no option of a target: did you mean `max-payload`?");
//! # Ok::<(), farjump::config::ConfigError>(())
//! ```
//!
//! A new option is a new row, of `target.rs`, `link.rs` or `objects.rs`, and the code that uses its field.

mod error;
mod kinds;
mod link;
mod objects;
#[cfg(feature = "serde")]
mod serde;
pub(crate) mod table;
mod target;
#[cfg(test)]
mod tests;
mod units;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;

pub use error::{ConfigError, ConfigFault, Origin};
pub(crate) use kinds::Kind;
pub use kinds::{BitcodeUse, Overflow, Shape, parse_code_id};
pub use link::LinkConfig;
pub use objects::{ClientConfig, PublisherConfig, StoreConfig, SubscriberConfig};
pub use table::{Interfaces, OptionInfo, Row};
pub use target::TargetConfig;
pub use units::{parse_bytes, parse_duration, shown_bytes, shown_duration};

/// A value as an interface gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given<'a> {
    /// Text. For a list, its items with commas between them.
    Text(&'a str),
    /// A value as the system gives it; or the items of a list, one by one.
    Items(&'a [OsString]),
}

impl Given<'_> {
    /// The only value.
    ///
    /// # Errors
    /// There are several, or none.
    fn one(&self) -> Result<&OsStr, String> {
        match self {
            Given::Text(text) => Ok(text.as_ref()),
            Given::Items([text]) => Ok(text),
            Given::Items(items) => Err(format!("has one value, not {}", items.len())),
        }
    }

    /// The items of a list.
    fn all(&self) -> Vec<Cow<'_, OsStr>> {
        let text = match self {
            Given::Items(items) => return items.iter().map(|item| Cow::Borrowed(&**item)).collect(),
            Given::Text("") => return Vec::new(),
            Given::Text(text) => text,
        };
        let mut items = vec![String::new()];
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                ',' => items.push(String::new()),
                '\\' if matches!(letters.peek(), Some(',' | '\\')) => {
                    items.last_mut().expect("one").extend(letters.next())
                }
                letter => items.last_mut().expect("one").push(letter),
            }
        }
        items.into_iter().map(|item| Cow::Owned(item.into())).collect()
    }
}

/// A configuration: a plain value whose fields are options.
pub trait Config: Clone + Default + PartialEq + Debug + 'static {
    /// The owner of the options, in errors: `a target`.
    const SUBJECT: &'static str;

    /// The table.
    fn rows() -> &'static [Row<Self>];

    /// Returns the row of an option that `interface` shows.
    ///
    /// # Errors
    /// [`ConfigFault::Unknown`], [`ConfigFault::Renamed`].
    fn row(name: &str, interface: Interfaces) -> Result<&'static Row<Self>, ConfigFault> {
        let rows = || Self::rows().iter().filter(|row| row.info.shown.intersects(interface));
        if let Some(row) = rows().find(|row| row.info.is_named(name)) {
            return Ok(row);
        }
        let hyphenated = name.replace('_', "-");
        if let Some(row) = rows().find(|row| row.info.formerly.contains(&&*hyphenated)) {
            return Err(ConfigFault::Renamed { now: row.info.name });
        }
        let nearest = nearest(name, rows().map(|row| row.info.name));
        Err(ConfigFault::Unknown { subject: Self::SUBJECT, nearest })
    }

    /// Sets an option by its name, from text: `64M`, `500ms`, `yes`; the items of a list have commas between them.
    /// Checks the value, but not how options fit each other.
    ///
    /// # Errors
    /// The option is unknown, the text malformed, or the value out of range.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_from(name, &Given::Text(value), Origin::Program, Interfaces::all())
    }

    /// As [`Config::set`], from an interface that gives the value at `origin`.
    ///
    /// # Errors
    /// As [`Config::set`].
    fn set_from(
        &mut self,
        name: &str,
        value: &Given<'_>,
        origin: Origin,
        interface: Interfaces,
    ) -> Result<(), ConfigError> {
        let set = || {
            let row = Self::row(name, interface)?;
            let mut changed = self.clone();
            (row.set)(&mut changed, value).map_err(ConfigFault::Malformed)?;
            row.check(&changed)?;
            Ok(changed)
        };
        *self = set().map_err(|fault| ConfigError { origin, name: name.to_owned(), fault })?;
        Ok(())
    }

    /// Returns the value of an option as text that [`Config::set`] reads, but for paths that are not UTF-8. `None` if it
    /// has none, so that its default depends on other options or the machine.
    ///
    /// # Errors
    /// The option is unknown.
    fn get(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.get_from(name, Interfaces::all())
    }

    /// As [`Config::get`], from an interface that shows some of the options.
    ///
    /// # Errors
    /// As [`Config::get`].
    fn get_from(&self, name: &str, interface: Interfaces) -> Result<Option<String>, ConfigError> {
        let row = Self::row(name, interface);
        let error = |fault| ConfigError { origin: Origin::Program, name: name.to_owned(), fault };
        Ok((row.map_err(error)?.get)(self))
    }

    /// Checks all values, and that they fit each other. What is built from a configuration checks it first. `origin`
    /// returns the place of an option's value.
    ///
    /// # Errors
    /// The first fault.
    fn check(&self, origin: impl Fn(&'static str) -> Origin) -> Result<(), ConfigError> {
        for row in Self::rows() {
            let is_set =
                |name: &str| Self::rows().iter().any(|row| row.info.name == name && row.is_set(self));
            let lacking = || row.info.needs.iter().find(|needed| !is_set(needed));
            let fault = row.check(self).err().or_else(|| match row.is_set(self) {
                true => lacking()
                    .map(|needed| ConfigFault::Needs { needed })
                    .or_else(|| missing_feature(&row.info)),
                false => None,
            });
            if let Some(fault) = fault {
                return Err(ConfigError {
                    origin: origin(row.info.name),
                    name: row.info.name.to_owned(),
                    fault,
                });
            }
        }
        Ok(())
    }
}

/// Returns the fault of an option that this build cannot heed.
fn missing_feature(option: &OptionInfo) -> Option<ConfigFault> {
    let feature = option.feature?;
    let features = [
        ("bitcode", cfg!(feature = "bitcode")),
        ("build", cfg!(feature = "build")),
        ("verbs", cfg!(feature = "verbs")),
    ];
    let is_there = features.iter().all(|(name, is_there)| *name != feature || *is_there);
    (!is_there).then_some(ConfigFault::Feature { feature })
}

/// Returns the one of `names` that is nearest to an unknown name, if one is near. For interfaces with names beside those
/// of the table.
pub fn nearest(unknown: &str, names: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    let unknown = unknown.replace('_', "-");
    let with_distance = |name| (edits(&unknown, name), name);
    let (distance, name) = names.into_iter().map(with_distance).min_by_key(|(distance, _)| *distance)?;
    (distance <= unknown.len().div_ceil(3)).then_some(name)
}

/// Number of letters to be added, removed or replaced to make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (place, own) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != own);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}
