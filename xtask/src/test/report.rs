//! Counts of tests, read from the output of `cargo test -- --show-output`.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::time::Duration;

/// Number of last lines of a failure's output that are shown below its name.
const SHOWN: usize = 40;

/// Tests that ran, failed and were skipped.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tally {
    /// Number of tests that passed.
    pub(crate) passed: usize,
    /// Failed tests.
    pub(crate) failed: Vec<Failure>,
    /// Names of skipped tests, with the reason.
    pub(crate) skipped: Vec<(String, String)>,
    /// Parts of tests that were left out, with the reason, as a test that passed printed them: `not run: …`.
    pub(crate) left_out: Vec<String>,
    /// Test programs, with their running time in seconds.
    pub(crate) seconds: Vec<(String, f64)>,
    /// Suites, with the time that each took.
    pub(crate) suites: Vec<Took>,
}

/// The time of one suite, in seconds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Took {
    /// The suite.
    pub(crate) suite: String,
    /// The time before its tests run, and between them: cargo builds then.
    pub(crate) building: f64,
    /// The time that its tests take.
    pub(crate) running: f64,
}

/// A test that failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failure {
    /// Its name.
    pub(crate) name: String,
    /// Its output, as far as it is known.
    pub(crate) output: String,
}

impl fmt::Display for Failure {
    /// The name, and below it the end of the output.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "failed   {}", self.name)?;
        last(&self.output).into_iter().try_for_each(|line| writeln!(out, "    {line}"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { passed, failed, skipped, .. } = self;
        write!(out, "{passed} passed, {} failed, {} skipped", failed.len(), skipped.len())
    }
}

impl Tally {
    /// Reads the output of one `cargo test`, which announces each test program by a line of its own.
    pub(crate) fn read(output: &str) -> Tally {
        let mut tally = Tally::default();
        let mut program = None;
        let mut lines = Vec::new();
        for line in output.lines() {
            if let Some(next) = announced(line) {
                tally.add(Tally::of_program(program.unwrap_or(""), &lines));
                program = Some(next);
                lines.clear();
            } else {
                lines.push(line);
            }
        }
        tally.add(Tally::of_program(program.unwrap_or(""), &lines));
        tally
    }

    /// Reads the output of one test program.
    ///
    /// A test is skipped if it is ignored, or if it passed and printed a line `skipped: REASON`: a test learns only
    /// when it runs that the machine lacks something. Tests start test programs themselves, so their output may have
    /// lines like results. The last result is the program's own.
    fn of_program(program: &str, lines: &[&str]) -> Tally {
        let Some(end) = lines.iter().rposition(|line| line.starts_with("test result: ")) else {
            let mut tally = Tally::default();
            if lines.iter().any(|line| begins(line)) {
                tally.fail_with(format!("{program}: it ended before its tests did"), lines.join("\n"));
            }
            return tally;
        };
        let count = |what: &str| {
            let result = lines[end].trim_start_matches("test result: ");
            let field = result.split([';', '.']).find_map(|field| field.trim().strip_suffix(what));
            field.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        let mut tally = Tally { passed: count("passed"), ..Tally::default() };
        let ran = lines[end]
            .rsplit_once("finished in ")
            .and_then(|(_, ran)| ran.trim_end_matches('s').parse().ok());
        tally.seconds.extend(ran.map(|seconds| (program.to_owned(), seconds)));
        let mut depth = 0_usize;
        let (mut of, mut succeeded) = (None, false);
        let mut said: BTreeMap<&str, String> = BTreeMap::new();
        for line in &lines[..end] {
            match *line {
                "successes:" => succeeded = true,
                "failures:" => succeeded = false,
                _ if begins(line) => depth += 1,
                _ if line.starts_with("test result: ") => depth = depth.saturating_sub(1),
                _ => {}
            }
            let headed = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
            if let Some(name) = of.filter(|_| !succeeded && headed.is_none()) {
                let said = said.entry(name).or_default();
                said.push_str(line);
                said.push('\n');
            }
            if let Some(name) = headed {
                of = Some(name);
            } else if let Some((name, ended)) = result_of_test(line).filter(|_| depth == 1) {
                if let Some(reason) = ended.strip_prefix("ignored") {
                    let reason = reason.trim_start_matches([',', ' ']);
                    let reason = if reason.is_empty() { "ignored, without a reason" } else { reason };
                    tally.skipped.push((format!("{program}: {name}"), reason.to_owned()));
                }
            } else if let Some(reason) = line.strip_prefix("skipped: ").filter(|_| succeeded)
                && let Some(name) = of.take()
            {
                tally.skipped.push((format!("{program}: {name}"), reason.to_owned()));
                tally.passed = tally.passed.saturating_sub(1);
            } else if let Some(part) = line.strip_prefix("not run: ").filter(|_| succeeded) {
                tally.left_out.push(part.to_owned());
            }
        }
        // Output of children can split the line of a test. The list of failed tests comes when no child is left.
        let list = lines[..end].iter().rposition(|line| *line == "failures:").map_or(end, |at| at + 1);
        let listed = lines[list..end].iter().filter_map(|line| line.strip_prefix("    "));
        for name in listed.take(count("failed")) {
            let output = said.remove(name).unwrap_or_default();
            tally.failed.push(Failure { name: format!("{program}: {name}"), output });
        }
        for _ in tally.failed.len()..count("failed") {
            tally.fail(format!("{program}: a test that it does not name"));
        }
        tally
    }

    /// Adds a failure outside any test: a suite that does not build, or has no tests.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.fail_with(what, String::new());
    }

    /// Adds a failure outside any test that has this `output`.
    pub(crate) fn fail_with(&mut self, what: impl Into<String>, output: impl Into<String>) {
        self.failed.push(Failure { name: what.into(), output: output.into() });
    }

    /// Adds another tally.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.left_out.extend(other.left_out);
        self.seconds.extend(other.seconds);
        self.suites.extend(other.suites);
    }

    /// Adds the time of a suite, `all` in sum. The suite's test programs report their own part of it.
    pub(crate) fn took(&mut self, suite: &str, all: Duration) {
        let running = self.seconds.iter().map(|(_, seconds)| seconds).sum::<f64>();
        let building = (all.as_secs_f64() - running).max(0.0);
        self.suites.push(Took { suite: suite.to_owned(), building, running });
    }

    /// The time of all suites, in words.
    pub(crate) fn times(&self) -> String {
        let building: f64 = self.suites.iter().map(|took| took.building).sum();
        let running: f64 = self.suites.iter().map(|took| took.running).sum();
        format!("{building:.0} s of building and {running:.0} s of running")
    }

    /// The time of each suite, as a line each.
    pub(crate) fn by_suite(&self) -> String {
        let lines = self
            .suites
            .iter()
            .map(|took| format!("{:8.1} s  {:8.1} s  {}\n", took.building, took.running, took.suite));
        iter::once(format!("{:>10}  {:>10}\n", "building", "running")).chain(lines).collect()
    }

    /// The `count` programs that ran longest, as a line each, longest first, and the sum of all.
    pub(crate) fn slowest(&self, count: usize) -> String {
        let mut seconds: Vec<_> = self.seconds.iter().collect();
        seconds.sort_by(|one, other| other.1.total_cmp(&one.1));
        let sum: f64 = seconds.iter().map(|(_, seconds)| seconds).sum();
        let lines = seconds.iter().take(count).map(|(name, seconds)| format!("{seconds:8.1} s  {name}\n"));
        lines.chain([format!("{sum:8.1} s  {} test programs\n", seconds.len())]).collect()
    }

    /// Returns whether no test ran.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed.is_empty() && self.skipped.is_empty()
    }

    /// The names for the end of a run. First come the parts that tests left out. Then come skipped tests below their
    /// reason, the most frequent reason last, and failed tests above the end of their output.
    pub(crate) fn names(&self) -> String {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in &self.skipped {
            by_reason.entry(reason).or_default().push(name);
        }
        let mut by_reason: Vec<_> = by_reason.into_iter().collect();
        by_reason.sort_by_key(|(_, names)| names.len());
        let skipped = by_reason.into_iter().map(|(reason, names)| match names[..] {
            [name] => format!("skipped  {name}: {reason}\n"),
            _ => {
                format!("skipped  {} tests: {reason}\n         {}\n", names.len(), names.join("\n         "))
            }
        });
        let failed = self.failed.iter().map(ToString::to_string);
        let left_out = self.left_out.iter().map(|part| format!("not run  {part}\n"));
        left_out.chain(skipped).chain(failed).collect()
    }
}

/// The last lines of an output, empty ones left out.
pub(crate) fn last(output: &str) -> Vec<&str> {
    let lines: Vec<_> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN)..].to_vec()
}

/// Picks the useful lines of `cargo test -- --show-output` while it runs. It leaves out tests that pass, their
/// output, and the sums of a program in which none failed. Lines for each crate built are shown only if a user is
/// waiting, as a sign of progress.
pub(crate) fn shown_lines(somebody_waits: bool) -> impl FnMut(&str) -> bool + 'static {
    let mut succeeded = false;
    move |line| {
        match line {
            "successes:" => succeeded = true,
            "failures:" => succeeded = false,
            _ if announced(line).is_some() => succeeded = false,
            _ => {}
        }
        // This includes lines of children that a test prints.
        let passed = result_of_test(line).is_some_and(|(_, ended)| ended == "ok");
        let unneeded = line.starts_with("test result: ok.") || line.starts_with("running ");
        let building = ["   Compiling ", "    Checking ", " Downloading ", "  Downloaded "];
        let built = !somebody_waits && building.iter().any(|word| line.starts_with(word));
        !succeeded && !passed && !unneeded && !line.is_empty() && !built
    }
}

/// The test program that cargo announces by this line: the name of its crate, or of the crate whose
/// documentation has the tests.
pub(crate) fn announced(line: &str) -> Option<&str> {
    if let Some(name) = line.strip_prefix("   Doc-tests ") {
        return Some(name);
    }
    let (_, path) = line.strip_prefix("     Running ")?.split_once('(')?;
    let file = path.strip_suffix(')')?.rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name))
}

/// Returns whether a test program begins its tests in this line.
fn begins(line: &str) -> bool {
    line.starts_with("running ") && line.contains(" test")
}

/// Name and outcome, if this is the line of a test.
fn result_of_test(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
\x20  Compiling a v0.1.0
     Running unittests src/lib.rs (target/debug/deps/a_b-0123456789abcdef)

running 4 tests
test one ... ok
test two ... FAILED
test three ... ignored, needs a device
test four ... ok

successes:

---- four stdout ----
skipped: no lld here
skipped: and no clang

---- five stdout ----
not run: page.md:7: it measures

---- one stdout ----
running 1 test
test nested ... FAILED
test result: FAILED. 7 passed; 7 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

successes:
    four
    one

failures:

---- two stdout ----
skipped: this does not count, it failed

failures:
    two

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests a_b

running 2 tests
test src/lib.rs - (line 3) ... ok
child says so: test src/lib.rs - x (line 9) ... FAILED

failures:

failures:
    src/lib.rs - x (line 9)

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn each_test_is_counted_once_by_how_it_ended() {
        let tally = Tally::read(OUTPUT);
        assert_eq!(tally.to_string(), "2 passed, 2 failed, 2 skipped");
        assert_eq!(tally.failed[0].name, "a_b: two");
        assert_eq!(tally.failed[1].name, "a_b: src/lib.rs - x (line 9)");
        assert_eq!(
            tally.skipped,
            [
                ("a_b: three".to_owned(), "needs a device".to_owned()),
                ("a_b: four".to_owned(), "no lld here".to_owned())
            ]
        );
    }

    #[test]
    fn passed_tests_are_hidden_and_failed_ones_are_shown() {
        let mut is_shown = shown_lines(false);
        let shown: Vec<_> = OUTPUT.lines().filter(|line| is_shown(line)).collect();
        assert!(shown.iter().any(|line| line.contains("Running unittests")));
        assert!(shown.contains(&"test two ... FAILED"));
        assert!(shown.contains(&"skipped: this does not count, it failed"));
        assert!(shown.contains(&"   Doc-tests a_b"), "what was printed ends with the program");
        assert!(
            !shown.iter().any(|line| line.ends_with("... ok") || line.contains("Compiling")),
            "{shown:?}"
        );
        assert!(!shown.contains(&"skipped: no lld here"), "{shown:?}");
        assert!(shown_lines(true)("   Compiling a v0.1.0"));
    }

    #[test]
    fn output_without_results_counts_nothing() {
        assert!(Tally::read("error: could not compile `a`\n").is_empty());
        assert!(!Tally::read(OUTPUT).is_empty());
    }

    #[test]
    fn a_program_that_dies_before_its_tests_end_is_a_failure() {
        let cut = OUTPUT.split_once("test two").unwrap().0;
        let tally = Tally::read(&format!("{cut}{OUTPUT}"));
        assert_eq!(tally.failed[0].name, "a_b: it ended before its tests did");
        assert_eq!(tally.to_string(), "2 passed, 3 failed, 2 skipped");
    }

    #[test]
    fn names_of_failed_and_skipped_tests_are_listed_with_reasons() {
        let names = Tally::read(OUTPUT).names();
        assert!(
            names.contains("failed   a_b: two\n    skipped: this does not count, it failed\n"),
            "{names}"
        );
        assert!(names.contains("skipped  a_b: four: no lld here\n"), "{names}");
        assert!(names.starts_with("not run  page.md:7: it measures\n"), "{names}");
    }

    #[test]
    fn skipped_tests_stand_below_the_reason_that_they_share() {
        let skipped = [("a: one", "no UCX"), ("a: two", "no device"), ("b: three", "no UCX")];
        let skipped = skipped.map(|(name, reason)| (name.to_owned(), reason.to_owned())).to_vec();
        let names = Tally { skipped, ..Tally::default() }.names();
        let expected =
            "skipped  a: two: no device\nskipped  2 tests: no UCX\n         a: one\n         b: three\n";
        assert_eq!(names, expected);
    }

    #[test]
    fn a_run_in_which_all_pass_shows_no_line_that_says_failed() {
        let output = "     Running unittests src/lib.rs (target/debug/deps/a_b-0123456789abcdef)\n\nrunning 1 test\n\
                      test one ... ok\n\nsuccesses:\n\nsuccesses:\n    one\n\n\
                      test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let mut is_shown = shown_lines(true);
        assert!(!output.lines().any(|line| is_shown(line) && line.contains("failed")));
        assert_eq!(Tally::read(output).passed, 1);
    }

    #[test]
    fn suite_time_outside_the_test_programs_counts_as_building() {
        let mut tally = Tally::read(OUTPUT);
        tally.took("tests", Duration::from_millis(2100));
        let [Took { building, running, .. }] = tally.suites[..] else { panic!("{:?}", tally.suites) };
        assert!((building - 2.0).abs() < 1e-6 && (running - 0.1).abs() < 1e-6, "{building} {running}");
        assert_eq!(tally.times(), "2 s of building and 0 s of running");
        assert_eq!(tally.by_suite().lines().nth(1), Some("     2.0 s       0.1 s  tests"));
    }

    #[test]
    fn programs_that_ran_longest_stand_first() {
        let mut tally = Tally::read(OUTPUT);
        tally.seconds.push(("slow".to_owned(), 12.25));
        let lines: Vec<_> = tally.slowest(2).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "    12.2 s  slow");
        assert_eq!(lines[1].split_once("s  ").map(|(seconds, _)| seconds.trim()), Some("0.1"), "{lines:?}");
        assert!(lines[2].starts_with("    12.3 s"), "the sum of all: {lines:?}");
    }
}
