//! The test programs of the workspace, run without cargo.
//!
//! cargo puts the programs of the workspace into its folder anew whenever it runs a test, even if it built nothing.
//! Without hard links in the file system it copies them, and a test that runs meanwhile cannot start such a program
//! ("Text file busy"). So all runs of tests but those of the documentation use this module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::step::LIMIT;
use crate::workspace::root;

/// Without a choice of targets cargo tests all of them, also the documentation, and builds the examples that tests
/// run.
const EVERY_TEST: [&str; 3] = ["test", "--workspace", "--no-fail-fast"];

/// Runs the programs of `$PROGRAMS` with these arguments. Each program has a line with three parts between tabs: the
/// folder of its package, the tested target, and its file. `$THROUGH`, if set, is a program that runs a file.
const SCRIPT: &str = r#"
tab=$(printf '\t')
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$LIBRARIES"
failed=0
while IFS=$tab read -r package tested file; do
    printf '     Running %s (%s)\n' "$tested" "$file"
    (cd "$package" && exec env -u PROGRAMS -u LIBRARIES -u THROUGH CARGO_MANIFEST_DIR="$package" ${THROUGH:+"$THROUGH"} "$file" "$@") </dev/null || failed=1
done <<END
$PROGRAMS
END
exit $failed
"#;

/// A test program that cargo built.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TestProgram {
    /// `lib`, `bin` or `test`.
    kind: String,
    /// Name of the crate.
    name: String,
    /// Folder of its package.
    package: PathBuf,
    /// Its source file, below that folder.
    source: PathBuf,
    file: PathBuf,
}

/// Every test program of the workspace except those of the documentation.
#[derive(Clone, Debug)]
pub(crate) struct TestPrograms {
    programs: Vec<TestProgram>,
    /// All files that were built with them.
    artifacts: Artifacts,
    /// Folders of libraries that programs of procedural macros load.
    libraries: PathBuf,
}

/// The last result of [`TestPrograms::build`].
static BUILT: Mutex<Option<Result<TestPrograms, String>>> = Mutex::new(None);

impl TestPrograms {
    /// Builds the test programs, and all programs that they start, by cargo's arguments for running every test. A
    /// later call of [`TestPrograms::built_or_build`] returns the same, or an error if this one failed.
    ///
    /// # Errors
    /// When cargo fails.
    pub(crate) fn build(interrupt: &Interrupt) -> Result<TestPrograms, Failed> {
        let built = TestPrograms::build_anew(interrupt);
        let known = match &built {
            Err(error) if error.is_interrupt() => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(built) => Some(Ok(built.clone())),
        };
        *BUILT.lock().unwrap_or_else(PoisonError::into_inner) = known;
        built
    }

    fn build_anew(interrupt: &Interrupt) -> Result<TestPrograms, Failed> {
        let run = Run::cargo(interrupt).args(EVERY_TEST).args(packages::features()).directory(root());
        TestPrograms::of_build(run.args(["--no-run"]).limit(LIMIT), "the tests", interrupt)
    }

    /// The test programs that this cargo command builds. It runs none (`test --no-run`).
    ///
    /// # Errors
    /// As [`Artifacts::of`].
    pub(crate) fn of_build(run: Run<'_>, what: &str, interrupt: &Interrupt) -> Result<TestPrograms, Failed> {
        let artifacts = Artifacts::of(run, what)?;
        let rustc = Run::new("rustc", interrupt).args(["--print", "target-libdir"]).quiet().run()?;
        let libraries = PathBuf::from(rustc.output.trim());
        Ok(TestPrograms { programs: programs(&artifacts), artifacts, libraries })
    }

    /// The test programs of the last build; builds them if there was none. After a failed build it does not build
    /// again.
    ///
    /// # Errors
    /// When cargo fails, or failed before.
    pub(crate) fn built_or_build(interrupt: &Interrupt) -> Result<TestPrograms, Failed> {
        let built = BUILT.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match built {
            Some(Ok(built)) => Ok(built),
            Some(Err(_)) => Err(Failed::Because("the tests were not built: see above".to_owned())),
            None => TestPrograms::build(interrupt),
        }
    }

    /// The program `name` that tests start, such as `farjump`.
    ///
    /// # Errors
    /// When cargo did not build it with the tests.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, Failed> {
        self.artifacts.program(name)
    }

    /// The file of the test program `name` (`--test NAME`), if it is among these.
    pub(crate) fn file_of(&self, name: &str) -> Option<PathBuf> {
        let mut files = self.selected(&["--test", name]).programs.into_iter().map(|program| program.file);
        files.next()
    }

    /// The names of the test programs, for the units of a package `lib`, and their files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.programs.iter().map(|program| {
            let is_test = program.kind == "test";
            (if is_test { program.name.as_str() } else { "lib" }, program.file.as_path())
        })
    }

    /// The test programs that cargo's options `selection` select: `--lib`, `--bins` and `--test NAME`.
    pub(crate) fn selected(&self, selection: &[&str]) -> TestPrograms {
        let is_selected = |program: &TestProgram| match program.kind.as_str() {
            "bin" => selection.contains(&"--bins"),
            "test" => selection.windows(2).any(|pair| pair[0] == "--test" && pair[1] == program.name),
            _ => selection.contains(&"--lib"),
        };
        let programs = self.programs.iter().filter(|program| is_selected(program)).cloned().collect();
        TestPrograms { programs, ..self.clone() }
    }

    /// The test programs of the packages in these folders, which may be relative to the workspace.
    pub(crate) fn of(&self, folders: &[impl AsRef<Path>]) -> TestPrograms {
        let is_of =
            |program: &&TestProgram| folders.iter().any(|folder| program.package == root().join(folder));
        TestPrograms { programs: self.programs.iter().filter(is_of).cloned().collect(), ..self.clone() }
    }

    /// The test programs of all other packages than those in these folders, which may be relative to the workspace.
    pub(crate) fn without(&self, folders: &[impl AsRef<Path>]) -> TestPrograms {
        let left_out = self.of(folders).programs;
        let programs = self.programs.iter().filter(|program| !left_out.contains(program)).cloned().collect();
        TestPrograms { programs, ..self.clone() }
    }

    /// The program that runs the programs which it gets from [`TestPrograms::passed_to`].
    pub(crate) const RUNNER: &str = "sh";

    /// The runner's arguments, for tests with the arguments `words`.
    pub(crate) fn args<'w>(words: &[&'w str]) -> Vec<&'w str> {
        [&["-c", SCRIPT, "sh"], words].concat()
    }

    /// A run of the programs on this machine as it is, for tests with the arguments `words`.
    pub(crate) fn run<'i>(&self, words: &[&str], interrupt: &'i Interrupt) -> Run<'i> {
        let run = Run::new(TestPrograms::RUNNER, interrupt).args(TestPrograms::args(words));
        self.passed_to(run).shown_as(words.join(" "))
    }

    /// Gives the programs to the runner. It runs them one after the other, announces each as cargo does, and
    /// fails if one of them does.
    pub(crate) fn passed_to<'i>(&self, runner: Run<'i>) -> Run<'i> {
        runner.env("PROGRAMS", self.lines()).env("LIBRARIES", &self.libraries)
    }

    fn lines(&self) -> String {
        let line = |program: &TestProgram| {
            let kind = if program.kind == "test" { "" } else { "unittests " };
            let TestProgram { package, source, file, .. } = program;
            format!("{}\t{kind}{}\t{}", package.display(), source.display(), file.display())
        };
        self.programs.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The test programs among cargo's files. cargo names a program twice if it tests it for two reasons; it is listed
/// once.
fn programs(artifacts: &Artifacts) -> Vec<TestProgram> {
    let text = |value: &Value| value.as_str().map(PathBuf::from);
    let of = |message: &Value| {
        let test = message["profile"]["test"].as_bool() == Some(true);
        let file = text(&message["executable"]).filter(|_| test)?;
        let package = text(&message["manifest_path"])?.parent()?.to_owned();
        let (target, source) = (&message["target"], text(&message["target"]["src_path"])?);
        let source = source.strip_prefix(&package).map(Path::to_owned).unwrap_or(source);
        let kind = match target["kind"][0].as_str()? {
            kind @ ("bin" | "test") => kind.to_owned(),
            "example" | "bench" | "custom-build" => return None,
            _ => "lib".to_owned(),
        };
        Some(TestProgram { kind, name: target["name"].as_str()?.to_owned(), package, source, file })
    };
    let read = artifacts.messages().filter_map(of);
    read.map(|program| (program.file.clone(), program)).collect::<BTreeMap<_, _>>().into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn message(kind: &str, name: &str, test: bool, file: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","filenames":[],"manifest_path":"/w/p/Cargo.toml","profile":{{"test":{test}}},
            "target":{{"kind":["{kind}"],"name":"{name}","src_path":"/w/p/src/x.rs"}},"executable":{file}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn test_programs_are_recognized_and_selected_as_cargo_does() {
        let messages = [
            message("lib", "own", true, r#""/t/own-1""#),
            message("lib", "own", false, "null"),
            message("bin", "own", false, r#""/t/own""#),
            message("bin", "own", true, r#""/t/own-2""#),
            message("test", "cli", true, r#""/t/cli-3""#),
            message("test", "cli", true, r#""/t/cli-3""#),
            message("proc-macro", "macros", true, r#""/t/macros-4""#),
            message("example", "store", true, r#""/t/store-5""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let artifacts = Artifacts::read(&messages.join("\n"));
        let all = TestPrograms { programs: programs(&artifacts), artifacts, libraries: PathBuf::new() };
        assert_eq!(all.program("own").unwrap(), Path::new("/t/own"));
        let files = |selection: &[&str]| {
            let selected = all.selected(selection).programs;
            selected.iter().map(|program| program.file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files(&["--lib", "--bins"]), ["/t/macros-4", "/t/own-1", "/t/own-2"]);
        assert_eq!(files(&["--test", "cli"]), ["/t/cli-3"]);
        assert_eq!(files(&["--test", "ucx", "--no-fail-fast"]), [""; 0]);
        assert_eq!(files(&["--lib"]), ["/t/macros-4", "/t/own-1"]);
        assert_eq!([all.file_of("cli"), all.file_of("ucx")], [Some("/t/cli-3".into()), None]);
    }

    #[test]
    fn after_a_build_that_failed_nothing_takes_its_place() {
        *BUILT.lock().unwrap() = Some(Err("error: no such file".to_owned()));
        let error = TestPrograms::built_or_build(&Interrupt::install().unwrap()).unwrap_err();
        assert!(error.to_string().contains("were not built"), "{error}");
    }

    #[test]
    fn each_program_runs_in_its_package_and_one_failure_fails_all() {
        let folder = crate::scratch::folder().unwrap();
        let package = folder.path().canonicalize().unwrap();
        let program = |name: &str, ends: &str| {
            let file = package.join(name);
            let script =
                format!("#!/bin/sh\npwd\necho \"$CARGO_MANIFEST_DIR\"\nprintf '%s\\n' \"$@\"\n{ends}\n");
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
            let (package, source) = (package.clone(), PathBuf::from("tests/x.rs"));
            TestProgram { kind: "test".to_owned(), name: name.to_owned(), package, source, file }
        };
        let interrupt = Interrupt::install().unwrap();
        let run = |programs: Vec<TestProgram>| {
            let artifacts = Artifacts::read("");
            let programs = TestPrograms { programs, artifacts, libraries: PathBuf::new() };
            programs.run(&["two words", "*"], &interrupt).quiet().run().unwrap()
        };
        let here = package.display();
        let shown = |name| format!("     Running tests/x.rs ({here}/{name})\n{here}\n{here}\ntwo words\n*\n");
        let ended = run(vec![program("a", "true"), program("b", "true")]);
        assert_eq!(ended.output, shown("a") + &shown("b"));
        assert!(ended.status.success());
        let ended = run(vec![program("a", "exit 3"), program("b", "true")]);
        assert_eq!(ended.output, shown("a") + &shown("b"));
        assert!(!ended.status.success());
    }
}
