//! The program's environment variables.

use std::env;
use std::io::Write;

use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;
use farjump_benches::program::rust_names::in_flags;

/// farjump's variables, as the long help shows them.
pub(crate) const VARIABLES: &str = "\
Environment (a variable that is empty is not set):
  FARJUMP_LOG        level of the log: off, error, warn (as if unset), info, debug or trace; for
                     single modules too, as in warn,farjump::serve=debug
  FARJUMP_TRANSPORT  the transport, where --transport is not given
  FARJUMP_KEY        the file with the key for tcp: addresses, where --key is not given
  FARJUMP_DEVICE     the RDMA device of verbs-write and verbs-send, where --device is not given
  FARJUMP_VERBS      settings for it: gid=INDEX or ADDRESS, pkey=HEX, sl=0..15, tclass=0..255,
                     router=LID of InfiniBand, mtu=BYTES, timeout=1..31, retries=0..6, joined by commas
  FARJUMP_UCX        the file libucp.so.0 of the UCX to use, instead of the system's
  FARJUMP_CC         the C compiler, where --cc is not given
  FARJUMP_LD         the linker that makes images, where --linker is not given
  FARJUMP_COMPILER   the program farjump_compiler of targets that take bitcode, where --compiler is not
                     given
  FARJUMP_LIBLLVM    the library of LLVM that it opens, where --llvm is not given
  FARJUMP_DEBUG      other than 0: serve as with --debug
  TMPDIR             the folder for temporary files, instead of /tmp
  UCX_...            UCX reads its own; its log goes to standard error, where UCX_LOG_FILE is not set";

const KNOWN: [&str; 11] = [
    "FARJUMP_LOG",
    "FARJUMP_TRANSPORT",
    "FARJUMP_KEY",
    "FARJUMP_DEVICE",
    "FARJUMP_VERBS",
    "FARJUMP_UCX",
    "FARJUMP_CC",
    "FARJUMP_LD",
    "FARJUMP_COMPILER",
    "FARJUMP_LIBLLVM",
    "FARJUMP_DEBUG",
];
const PREFIX: &str = "FARJUMP_";
/// The variable of the transport.
pub(crate) const TRANSPORT: &str = "FARJUMP_TRANSPORT";

/// Removes farjump's variables, and TMPDIR, where they are empty: an empty variable counts as not set, here and in the
/// processes that this one starts.
///
/// # Safety
/// No other thread runs.
pub(crate) unsafe fn remove_empty() {
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
#[cfg(all(feature = "ucx", feature = "build"))]
pub(crate) unsafe fn choose_ucx(library: &std::path::Path) {
    // Children may run in other folders.
    let library = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
    // SAFETY: the caller keeps other threads away, so no other access races with this write.
    unsafe { env::set_var("FARJUMP_UCX", library) };
}

/// Warns of variables that resemble farjump's: a misspelt one is ignored silently.
pub(crate) fn warn_of_unknown() {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && !KNOWN.contains(&&*name) {
            let nearest = nearest(&name);
            output::note(format_args!(
                "warning: the environment variable {name} means nothing to farjump: did you mean {nearest}?"
            ));
        }
    }
}

/// Variables that the libraries read themselves.
const READ_ELSEWHERE: [&str; 5] =
    ["FARJUMP_DEVICE", "FARJUMP_VERBS", "FARJUMP_UCX", "FARJUMP_COMPILER", "FARJUMP_LIBLLVM"];

/// Names the variable whose value caused a failure. `options` are the variables that stand for options of the command,
/// with their values.
pub(crate) fn name_variable(failure: Failure, options: &[(String, String)]) -> Failure {
    let text = failure.to_string();
    let is_word = |value: &str| {
        let is_part = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
        text.match_indices(value)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + value.len()..].starts_with(is_part))
    };
    let elsewhere = READ_ELSEWHERE.iter().filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)));
    let known: Vec<_> = options.iter().cloned().chain(elsewhere).collect();
    let is_cause = |name: &str, value: &str| match name {
        // Names of transports occur in addresses too, and `ucx` stands for others.
        TRANSPORT => failure.is_about_transport(),
        _ => is_word(value),
    };
    let is_unnamed = |name: &str, value: &str| !value.is_empty() && !text.contains(name);
    match known.iter().find(|(name, value)| is_unnamed(name, value) && is_cause(name, value)) {
        Some((name, value)) => failure.behind(&format!("{name}={value}")),
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
fn nearest(name: &str) -> &'static str {
    let own = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_uppercase();
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&own(known), &own(name));
    KNOWN.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or(KNOWN[0])
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
            ("FARJUMP_KEYS", "FARJUMP_KEY"),
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
    fn an_error_quoting_only_a_variables_value_gets_its_name_prefixed() {
        let options = [("FARJUMP_KEY".to_owned(), "farm.key".to_owned())];
        let named = |text: &str| name_variable(Failure::new(text), &options).to_string();
        assert_eq!(named("reading farm.key failed"), "FARJUMP_KEY=farm.key: reading farm.key failed");
        for other in ["reading my-farm.key failed", "FARJUMP_KEY names farm.key", "it failed"] {
            assert_eq!(named(other), other);
        }
    }

    #[test]
    fn every_variable_is_explained() {
        let explained = VARIABLES.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let explained: Vec<_> = explained.filter(|name| name.starts_with(PREFIX)).collect();
        assert_eq!(explained, KNOWN);
    }
}
