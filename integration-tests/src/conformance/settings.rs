//! Settings in the environment, for machines that are far slower than usual, or without a compiler, such as
//! emulated ones.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CONFORMANCE_VOLUME` | most frames of the longest check | a subject's own volume |
//! | `CONFORMANCE_LIMIT` | seconds after which a check counts as hanging | 60 |
//! | `CONFORMANCE_PARTS` | parts to run: `channels`, and links in the named modes, by commas | all |
//! | `CONFORMANCE_THREADS` | `no`: links are tried between processes only, not within one | both |
//! | `CONFORMANCE_LIBRARIES` | folder of the injected functions (`conformance --libraries FOLDER`) | built |

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::outcome::Level;

const VOLUME: &str = "CONFORMANCE_VOLUME";
const LIMIT: &str = "CONFORMANCE_LIMIT";
const PARTS: &str = "CONFORMANCE_PARTS";
const THREADS: &str = "CONFORMANCE_THREADS";
const LIBRARIES: &str = "CONFORMANCE_LIBRARIES";

/// Most frames of the longest check of any subject.
///
/// # Panics
/// If the setting is no number.
pub(super) fn volume() -> u64 {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    SET.get_or_init(|| number(VOLUME, env::var_os(VOLUME))).unwrap_or(u64::MAX)
}

/// Time after which a check counts as hanging.
///
/// # Panics
/// If the setting is no number.
pub(super) fn limit() -> Duration {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    Duration::from_secs(SET.get_or_init(|| number(LIMIT, env::var_os(LIMIT))).unwrap_or(60))
}

/// The folder with the built libraries.
pub(super) fn libraries() -> Option<PathBuf> {
    env::var_os(LIBRARIES).map(PathBuf::from)
}

/// The reason why a part of the suite does not run, if any.
///
/// # Panics
/// If the setting is invalid.
pub(super) fn left_out(level: Level) -> Option<&'static str> {
    static SET: OnceLock<(Option<String>, bool)> = OnceLock::new();
    let (parts, threads) = SET.get_or_init(|| (env::var(PARTS).ok(), switch(THREADS, env::var_os(THREADS))));
    if !threads && matches!(level, Level::Threads(_)) {
        return Some("CONFORMANCE_THREADS leaves it out");
    }
    let name = level.mode().map_or_else(|| "channels".to_owned(), |mode| mode.to_string());
    let runs = parts.as_ref().is_none_or(|parts| parts.split(',').any(|part| part.trim() == name));
    (!runs).then_some("CONFORMANCE_PARTS leaves it out")
}

/// A switch that is on unless it is set to `no`.
fn switch(name: &str, set: Option<OsString>) -> bool {
    match set.as_ref().map(|set| set.to_str()) {
        None | Some(Some("yes")) => true,
        Some(Some("no")) => false,
        Some(_) => panic!("{name}={set:?} is neither yes nor no"),
    }
}

/// Parses a positive number. An invalid setting would test other things than requested, so it ends the run.
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
    fn a_switch_is_on_unless_it_says_no() {
        assert!(switch(THREADS, None) && switch(THREADS, Some("yes".into())));
        assert!(!switch(THREADS, Some("no".into())));
    }

    #[test]
    #[should_panic(expected = "CONFORMANCE_THREADS=Some(\"off\") is neither yes nor no")]
    fn a_switch_that_says_something_else_ends_the_run() {
        switch(THREADS, Some("off".into()));
    }

    #[test]
    #[should_panic(expected = "CONFORMANCE_VOLUME=\"many\" is not a number")]
    fn a_setting_that_is_no_number_ends_the_run() {
        number(VOLUME, Some("many".into()));
    }
}
