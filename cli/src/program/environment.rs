//! The program's environment variables.

use std::env;
use std::io::Write;

use crate::program::config_arguments::{former_variables, variables};
use crate::program::failure::Failure;
use crate::program::output;
use crate::program::rust_names::in_flags;

/// The variables that are no options of a target, link or client, as the long help shows them.
const OWN: &str = "\
Environment (a variable that is empty is not set):
  FARJUMP_LOG        level of the log: off, error, warn (as if unset), info, debug or trace; for
                     single modules too, as in warn,farjump::serve=debug
  FARJUMP_VERBS      settings of the RDMA device: gid=INDEX or ADDRESS, pkey=HEX, sl=0..15, tclass=0..255,
                     router=LID of InfiniBand, mtu=BYTES, timeout=1..31, retries=0..6, joined by commas
  FARJUMP_DEVICE     the RDMA device of verbs-write and verbs-send, where --device is not given
  FARJUMP_DEBUG      other than 0 or no: targets are debugged, where --debug is not given
  FARJUMP_UCX        the file libucp.so.0 of the UCX to use, instead of the system's
  FARJUMP_CC         the C compiler, where --cc is not given
  FARJUMP_LD         the linker that makes images, where --linker is not given
  FARJUMP_LIBLLVM    the library of LLVM that farjump_compiler opens, where nothing else names one
  TMPDIR             the folder for temporary files, instead of /tmp
  UCX_...            UCX reads its own; its log goes to standard error, where UCX_LOG_FILE is not set

Further variables stand for the options of serve, inject, put and other commands where these are not given,
FARJUMP_MAX_PAYLOAD for --max-payload:";

const PREFIX: &str = "FARJUMP_";

/// Returns farjump's variables that are no options of the table.
fn own() -> impl Iterator<Item = &'static str> {
    let names = OWN.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| name.starts_with(PREFIX))
}

/// Returns farjump's variables, as the long help shows them.
pub fn explained_variables() -> String {
    let options: Vec<_> = variables().into_iter().filter(|name| !own().any(|own| own == name)).collect();
    format!("{OWN}\n{}", options.join(", "))
}

/// Removes farjump's variables, and TMPDIR, where they are empty: an empty variable counts as not set, here and in the
/// processes that this one starts.
///
/// # Safety
/// No other thread runs.
pub unsafe fn remove_empty() {
    let is_ours = |name: &str| name.starts_with(PREFIX) || name == "TMPDIR";
    for (name, value) in env::vars_os() {
        if value.is_empty() && is_ours(&name.to_string_lossy()) {
            // SAFETY: the caller keeps other threads away, so no other access races with this write.
            unsafe { env::remove_var(name) };
        }
    }
}

/// Sends UCX's log to standard error, unless the user chose another place: by default UCX writes it to
/// standard output, among this program's results. The log of UCX's memory hooks always goes to standard
/// output, so it is silenced.
///
/// # Safety
/// No other thread runs.
#[cfg(feature = "ucx")]
pub(crate) unsafe fn direct_log_of_ucx() {
    for (name, value) in [("UCX_LOG_FILE", "stderr"), ("UCX_MEM_LOG_LEVEL", "fatal")] {
        if env::var_os(name).is_none() {
            // SAFETY: the caller keeps other threads away, so no other access races with this write.
            unsafe { env::set_var(name, value) };
        }
    }
}

/// Makes this process and its children use the UCX of this library.
///
/// # Safety
/// No other thread runs.
#[cfg(feature = "ucx")]
pub unsafe fn choose_ucx(library: &std::path::Path) {
    // Children may run in other folders.
    let library = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
    // SAFETY: the caller keeps other threads away, so no other access races with this write.
    unsafe { env::set_var("FARJUMP_UCX", library) };
}

/// Warns of variables that resemble farjump's: a misspelt one is ignored silently.
pub(crate) fn warn_of_unknown() {
    let (known, former) = (variables(), former_variables());
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        // Commands whose option has another name now refuse the former one.
        let is_known = || {
            known.iter().map(String::as_str).chain(former).any(|known| *known == *name)
                || own().any(|own| own == name)
        };
        if name.starts_with(PREFIX) && !is_known() {
            let nearest = nearest(&name);
            output::note(format_args!(
                "warning: the environment variable {name} means nothing to farjump: did you mean {nearest}?"
            ));
        }
    }
}

/// Variables that the libraries read themselves, or that stand for options which are not in the table.
const READ_ELSEWHERE: [&str; 7] = [
    "FARJUMP_DEVICE",
    "FARJUMP_VERBS",
    "FARJUMP_UCX",
    "FARJUMP_CC",
    "FARJUMP_LD",
    "FARJUMP_COMPILER",
    "FARJUMP_LIBLLVM",
];

/// Names the variable whose value caused a failure. Those of options are named before
/// ([`Resolved::failure`](crate::program::config_arguments::Resolved::failure)).
pub(crate) fn name_variable(failure: Failure) -> Failure {
    let quoted =
        |name: &&'static str| Some((*name, env::var(name).ok().filter(|value| failure.quotes(value))?));
    match READ_ELSEWHERE.iter().find_map(quoted) {
        Some((name, value)) => failure.blaming(name, &format!("{name}={value}")),
        None => failure,
    }
}

/// Divides a filter of the log into the parts to use, and those that are no levels and name no module of farjump's.
fn parts_of_filter(filter: &str) -> (Vec<&str>, Vec<&str>) {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |text: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text));
    let is_module = |text: &str| text.split("::").next().is_some_and(|name| name.starts_with("farjump"));
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_right = |part: &&str| match part.split_once('=') {
        Some((module, level)) => is_module(module) && (level.is_empty() || is_level(level)),
        None => is_level(part) || is_module(part),
    };
    parts.partition(is_right)
}

/// Sends the libraries' log to standard error.
pub(crate) fn start_log() {
    let filter = env::var("FARJUMP_LOG").unwrap_or_default();
    // The part behind a slash is an expression that lines have to match.
    let (modules, expression) =
        filter.split_once('/').map_or((&*filter, None), |(first, rest)| (first, Some(rest)));
    let (right, wrong) = parts_of_filter(modules);
    for wrong in wrong {
        output::note(format_args!(
            "warning: `{wrong}` in FARJUMP_LOG selects nothing: write off, error, warn, info, debug or trace, or \
             farjump::MODULE=LEVEL"
        ));
    }
    let mut filter = if right.is_empty() { "warn".to_owned() } else { right.join(",") };
    filter.extend(expression.map(|expression| format!("/{expression}")));
    env_logger::Builder::new()
        .parse_filters(&filter)
        .format(|out, record| {
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{level}: {}: {}", record.target(), in_flags(record.args().to_string()))
        })
        .init();
}

/// Returns the variable closest to `name`. The common prefix does not count.
fn nearest(name: &str) -> String {
    let word = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_uppercase();
    let likeness = |known: &String| strsim::normalized_damerau_levenshtein(&word(known), &word(name));
    let known = own().map(str::to_owned).chain(variables());
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_to_a_misspelt_variable_is_the_intended_one() {
        for (misspelt, meant) in [
            ("FARJUMP_LOGS", "FARJUMP_LOG"),
            ("FARJUMP_log", "FARJUMP_LOG"),
            ("FARJUMP_TRANPORT", "FARJUMP_TRANSPORT"),
            ("FARJUMP_C", "FARJUMP_CC"),
            ("FARJUMP_KEYFILE", "FARJUMP_KEY_FILE"),
            ("FARJUMP_MAXPAYLOAD", "FARJUMP_MAX_PAYLOAD"),
            ("FARJUMP_LDD", "FARJUMP_LD"),
            ("FARJUMP_UCP", "FARJUMP_UCX"),
        ] {
            assert_eq!(nearest(misspelt), meant, "{misspelt}");
        }
    }

    #[test]
    fn parts_of_the_filter_of_the_log_that_select_nothing_are_found() {
        for (filter, wrong) in [
            ("foo", &["foo"][..]),
            ("warn,farjump::serve=debug,farjump_control", &[]),
            ("INFO", &[]),
            ("warn,serve=debug,farjump=loud", &["serve=debug", "farjump=loud"]),
            ("off", &[]),
        ] {
            assert_eq!(parts_of_filter(filter).1, wrong, "{filter}");
        }
    }

    #[test]
    fn every_variable_is_explained_once() {
        let explained = explained_variables();
        let words = explained.split(|letter: char| letter.is_whitespace() || ",:".contains(letter));
        let mut words: Vec<_> = words.filter(|word| word.starts_with(PREFIX)).collect();
        words.sort_unstable();
        // An example has this one before.
        let example = words.iter().position(|word| *word == "FARJUMP_MAX_PAYLOAD").expect("it is explained");
        words.remove(example);
        let mut known: Vec<_> = own().map(str::to_owned).chain(variables()).collect();
        known.sort_unstable();
        known.dedup();
        assert_eq!(words, known);
        assert!(READ_ELSEWHERE.iter().all(|name| words.contains(name)));
    }
}
