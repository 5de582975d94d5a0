//! What the environment sets, for machines far slower than usual, or without a compiler: an emulated one.
//!
//! | variable | says | unless set |
//! |---|---|---|
//! | `CONFORMANCE_VOLUME` | the most frames that the longest check sends | a subject's own volume |
//! | `CONFORMANCE_LIMIT` | after how many seconds a check counts as hanging | 60 |
//! | `CONFORMANCE_PARTS` | which parts run: `channels`, and links in the modes named, by commas | all |
//! | `CONFORMANCE_LIBRARIES` | a folder with the functions that are injected, as `conformance --libraries FOLDER` builds them | they are built |

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::outcome::Level;

const VOLUME: &str = "CONFORMANCE_VOLUME";
const LIMIT: &str = "CONFORMANCE_LIMIT";
const PARTS: &str = "CONFORMANCE_PARTS";
const LIBRARIES: &str = "CONFORMANCE_LIBRARIES";

/// Why a part does not run that is not among those that are set.
pub(super) const LEFT_OUT: &str = "CONFORMANCE_PARTS leaves it out";

/// The most frames that the longest check of any subject sends.
///
/// # Panics
/// What is set is no number.
pub(super) fn volume() -> u64 {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    SET.get_or_init(|| number(VOLUME, env::var_os(VOLUME))).unwrap_or(u64::MAX)
}

/// How long one check may take before it counts as hanging.
///
/// # Panics
/// What is set is no number.
pub(super) fn limit() -> Duration {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    Duration::from_secs(SET.get_or_init(|| number(LIMIT, env::var_os(LIMIT))).unwrap_or(60))
}

/// The folder that has the libraries already.
pub(super) fn libraries() -> Option<PathBuf> {
    env::var_os(LIBRARIES).map(PathBuf::from)
}

/// Whether a part of the suite is to run.
pub(super) fn includes(level: Level) -> bool {
    static SET: OnceLock<Option<String>> = OnceLock::new();
    match SET.get_or_init(|| env::var(PARTS).ok()) {
        None => true,
        Some(parts) => {
            let name = level.mode().map_or_else(|| "channels".to_owned(), |mode| mode.to_string());
            parts.split(',').any(|part| part.trim() == name)
        }
    }
}

/// A setting that is not understood would have something else tested than was asked for: that ends the run.
fn number(name: &str, set: Option<OsString>) -> Option<u64> {
    let set = set?;
    match set.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(number) if number > 0 => Some(number),
        _ => panic!("{name}={set:?} is not a number of at least 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_number_or_is_not_set() {
        assert_eq!(number(VOLUME, None), None);
        assert_eq!(number(VOLUME, Some("2000".into())), Some(2000));
    }

    #[test]
    #[should_panic(expected = "CONFORMANCE_VOLUME=\"many\" is not a number")]
    fn a_setting_that_is_no_number_ends_the_run() {
        number(VOLUME, Some("many".into()));
    }
}
