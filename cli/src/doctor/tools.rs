//! The requirements of `farjump build`: a C compiler, and a linker that takes scripts and works with it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use farjump::build::{BuildError, LINKERS, OWN, Supervisor, try_compiler, try_linker};
use farjump_os::{limits, temporary};

use super::finding::{Finding, Verdict};
use super::run_bounded::{self, Silent};

/// Time limit for trying a tool.
const TRIAL_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for building the smallest library.
const BUILD_LIMIT: Duration = Duration::from_secs(20);
const NO_BUILD: &str = "`farjump build` and `demo` do not work here; libraries built elsewhere do";
const SMALLEST: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(probe)\n\
    FARJUMP_IFUNC void probe_main(void *payload, size_t size, void *target_args)\n\
    { (void)payload, (void)size, (void)target_args; }\n";

pub(super) fn look() -> Vec<Finding> {
    let asked = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let cc = asked("FARJUMP_CC").unwrap_or_else(|| "cc".into());
    let compiler = compiler(&cc.to_string_lossy(), tried(&cc, try_compiler));
    let linker = match asked("FARJUMP_LD") {
        Some(program) if program == OWN => {
            let means = "`farjump build` links images with it";
            Finding::new("linker", Verdict::Ok, "farjump's own".to_owned(), means)
        }
        Some(program) => {
            linker(true, [(program.to_string_lossy().into_owned(), tried(&program, try_linker))])
        }
        None => {
            linker(false, LINKERS.map(|program| (program.to_owned(), tried(program.as_ref(), try_linker))))
        }
    };
    let both = compiler.verdict == Verdict::Ok && linker.verdict == Verdict::Ok;
    let mut findings = vec![compiler, linker];
    if both {
        findings.push(building(build()));
    }
    findings
}

/// Reason why a program does not work, or builds nothing.
struct Why {
    text: String,
    /// Whether installing programs may help.
    install: bool,
}

impl Why {
    /// Returns a reason that lies in the system, and in no program.
    fn system(text: String) -> Why {
        Why { text, install: false }
    }
}

type Try = fn(&OsStr, &Supervisor) -> Result<String, BuildError>;

/// Tries a tool as `farjump build` does. Returns the first line of its version text.
fn tried(program: &OsStr, try_it: Try) -> Result<String, Why> {
    let supervisor = Supervisor::new(TRIAL_LIMIT).map_err(|error| Why::system(error.to_string()))?;
    try_it(program, &supervisor).map_err(why)
}

/// Returns the words for an error of a tool whose name stands before them.
fn why(error: BuildError) -> Why {
    match error {
        BuildError::Tool { source, .. } => {
            let silent = Silent::NotStarted(source);
            Why { text: silent.to_string(), install: silent.is_missing() }
        }
        BuildError::TimedOut { limit, .. } => Why::system(Silent::TooLong(limit).to_string()),
        BuildError::Unusable { task, status, messages, .. } => {
            let text = format!("does not {task} ({status}): {}", first_lines(&messages));
            Why { text, install: true }
        }
        BuildError::WrongLinker { version, .. } => {
            Why { text: format!("{version}, which does not follow linker scripts"), install: true }
        }
        error => Why::system(error.to_string()),
    }
}

/// Returns the start of a tool's output: the first complaint is the most useful one.
fn first_lines(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(2).collect::<Vec<_>>().join(" ")
}

fn compiler(program: &str, version: Result<String, Why>) -> Finding {
    const NAME: &str = "C compiler";
    match version {
        Ok(version) => Finding::new(
            NAME,
            Verdict::Ok,
            format!("{program}: {version}"),
            "`farjump build` compiles with it",
        ),
        Err(Why { text, install }) => {
            let finding = Finding::new(NAME, Verdict::Note, format!("{program}: {text}"), NO_BUILD);
            match install {
                true => finding.mend("sudo apt-get install gcc libc6-dev   # or name one in FARJUMP_CC"),
                false => finding,
            }
        }
    }
}

/// Judges the linkers that were tried, in this order. If `asked`, the user has named the only one.
fn linker(asked: bool, found: impl IntoIterator<Item = (String, Result<String, Why>)>) -> Finding {
    const NAME: &str = "linker";
    let (mut others, mut helps) = (Vec::new(), false);
    for (program, version) in found {
        match version {
            Ok(version) => {
                let means = "`farjump build` links images with it";
                return Finding::new(NAME, Verdict::Ok, format!("{program}: {version}"), means);
            }
            Err(Why { text, install }) => {
                helps |= install;
                others.push(format!("{program}: {text}"));
            }
        }
    }
    let finding = Finding::new(NAME, Verdict::Note, others.join("; "), NO_BUILD);
    match asked {
        true => finding.mend("unset FARJUMP_LD   # or name GNU ld or lld in it"),
        false if helps => finding.mend("sudo apt-get install binutils"),
        false => finding,
    }
}

/// Builds a library with this program, in a folder that is removed again. Returns the output.
fn build() -> Result<String, Why> {
    let said =
        |what: &str, error: io::Error| Why::system(format!("{what}: {error}{}", limits::behind(&error)));
    let folder = tempfile::Builder::new().prefix("farjump-doctor-").tempdir_in(temporary::folder());
    let folder = folder.map_err(|error| Why::system(temporary::lacking(&error)))?;
    let source = folder.path().join("probe.c");
    fs::write(&source, SMALLEST).map_err(|error| said("no temporary file", error))?;
    let program = env::current_exe().map_err(|error| said("this program is not found", error))?;
    let mut command = Command::new(program);
    // If the build is killed, its files go with the folder.
    command.current_dir(folder.path()).env("TMPDIR", folder.path());
    command.args(["build", "probe.c", "-o", "libprobe.so"]);
    match run_bounded::run(command, BUILD_LIMIT) {
        Ok((status, _)) if status.success() => Ok("the smallest library was built".to_owned()),
        Ok((_, said)) => Err(Why { text: said, install: true }),
        Err(silent @ Silent::TooLong(_)) => Err(Why::system(format!("`farjump build` {silent}"))),
        Err(silent) => Err(Why::system(format!("this program {silent}"))),
    }
}

fn building(built: Result<String, Why>) -> Finding {
    const NAME: &str = "building";
    match built {
        Ok(said) => Finding::new(NAME, Verdict::Ok, said, "`farjump build` and `demo` work"),
        Err(Why { text, install }) => {
            let finding = Finding::new(NAME, Verdict::Note, first_lines(&text), NO_BUILD);
            match install {
                true => finding.mend("sudo apt-get install gcc libc6-dev binutils"),
                false => finding,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str, install: bool) -> Why {
        Why { text: text.to_owned(), install }
    }

    #[test]
    fn the_first_linker_that_can_be_used_is_taken() {
        let found = |says: &[(&str, Result<&str, &str>)]| -> Vec<(String, Result<String, Why>)> {
            let owned = |said: Result<&str, &str>| said.map(String::from).map_err(|text| why(text, true));
            says.iter().map(|(program, said)| ((*program).to_owned(), owned(*said))).collect()
        };
        let gold = ("ld", Err("GNU gold (GNU Binutils 2.40) 1.16, which does not follow linker scripts"));
        let good =
            linker(false, found(&[("ld.bfd", Err("not found")), gold, ("ld.lld", Ok("Debian LLD 14.0.6"))]));
        assert_eq!((good.verdict, &*good.found), (Verdict::Ok, "ld.lld: Debian LLD 14.0.6"));
        let bad = linker(false, found(&[("ld.bfd", Err("not found")), gold]));
        assert_eq!(bad.verdict, Verdict::Note);
        assert!(bad.found.contains("ld.bfd: not found; ld: GNU gold") && bad.mend.is_some(), "{}", bad.found);
        assert!(linker(true, found(&[gold])).mend.is_some_and(|mend| mend.starts_with("unset FARJUMP_LD")));
    }

    #[test]
    fn a_tool_that_installing_cannot_repair_has_no_install_remedy() {
        assert_eq!(compiler("cc", Err(why("does not start", false))).mend, None);
        assert_eq!(linker(false, [("ld".to_owned(), Err(why("does not start", false)))]).mend, None);
    }

    #[test]
    fn a_missing_compiler_and_a_failed_build_are_notes_with_their_reason() {
        let missing = compiler("cc", Err(why("not found", true)));
        assert_eq!((missing.verdict, &*missing.found), (Verdict::Note, "cc: not found"));
        assert!(missing.mend.is_some_and(|mend| mend.contains("install gcc")));
        let failed = building(Err(why("error: `cc` cannot link it:\n\n  cannot find crti.o\nmore", true)));
        assert_eq!(failed.found, "error: `cc` cannot link it: cannot find crti.o");
        assert_eq!(building(Err(why("", false))).verdict, Verdict::Note);
        assert_eq!(building(Ok("x".into())).verdict, Verdict::Ok);
    }
}
