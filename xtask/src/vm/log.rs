//! Reads a machine's console.

use std::collections::BTreeMap;

/// Exit status of a skipped test program.
const SKIPPED: i32 = 77;
/// Lines of the console's end that are kept.
const KEPT_LINES: usize = 50;

/// Log of a machine's run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Log {
    /// Its kernel's release, once it is up.
    pub(super) kernel: Option<String>,
    /// The reason why it did not finish.
    pub(super) broke: Option<String>,
    commands: BTreeMap<usize, Ended>,
    /// Its last lines.
    last: Vec<String>,
}

/// Whether this line is printed before the first command.
pub(super) fn begins(line: &str) -> bool {
    line.trim_end() == "@@ begin 0"
}

/// Log of one command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ended {
    status: Option<i32>,
    output: String,
}

/// Verdict on a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It ended with 0.
    Passed,
    /// The failure.
    Failed(String),
    /// The reason why there was nothing to do.
    Skipped(String),
}

impl Verdict {
    /// A word for a command's exit status.
    pub(super) fn word(status: Option<i32>) -> &'static str {
        match status {
            Some(0) => "ok",
            Some(SKIPPED) => "skipped",
            _ => "FAILED",
        }
    }
}

impl Log {
    /// Reads a console; `broke` is why the machine did not end in order.
    pub(super) fn read(console: &str, broke: Option<String>) -> Log {
        let mut log = Log { broke, ..Log::default() };
        let mut is_done = false;
        let mut running = None;
        log.last = console.lines().map(|line| line.trim_end().to_owned()).collect();
        log.last.drain(..log.last.len().saturating_sub(KEPT_LINES));
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            let words: Vec<_> = line.strip_prefix("@@ ").unwrap_or("").split(' ').collect();
            match *words {
                ["up", _, kernel] => log.kernel = Some(kernel.to_owned()),
                ["begin", number] => {
                    running = number.parse().ok();
                    if let Some(number) = running {
                        log.commands.insert(number, Ended::default());
                    }
                }
                ["end", number, status, _] => {
                    if let Some(ended) =
                        number.parse().ok().and_then(|number: usize| log.commands.get_mut(&number))
                    {
                        ended.status = status.parse().ok();
                    }
                    running = None;
                }
                ["done"] => is_done = true,
                _ => {
                    if let Some(ended) = running.and_then(|number| log.commands.get_mut(&number)) {
                        ended.output.push_str(line);
                        ended.output.push('\n');
                    }
                }
            }
        }
        if log.broke.is_none() && !is_done {
            let why = match log.kernel {
                Some(_) => "it was off before all was done",
                None => "it did not come up: no rxe0",
            };
            log.broke = Some(why.to_owned());
        }
        log
    }

    /// Whether a command has begun. If not, nothing of farjump's has run: the machine did not boot, or the cable
    /// joined it to no other.
    pub(super) fn has_begun(&self) -> bool {
        !self.commands.is_empty()
    }

    /// The last so many lines of the console, each behind `mark`.
    pub(super) fn last_lines(&self, most: usize, mark: &str) -> String {
        let from = self.last.len().saturating_sub(most);
        self.last[from..].iter().map(|line| format!("{mark}  {line}\n")).collect()
    }

    /// Output of the command with this number.
    pub(super) fn output(&self, number: usize) -> &str {
        self.commands.get(&number).map_or("", |ended| &ended.output)
    }

    /// Verdict on the command with this number.
    pub(super) fn verdict(&self, number: usize) -> Verdict {
        let why = self.broke.as_deref().unwrap_or("the machine is off");
        match self.commands.get(&number) {
            None => Verdict::Failed(format!("it did not run: {why}")),
            Some(Ended { status: None, .. }) => Verdict::Failed(format!("it did not end: {why}")),
            Some(Ended { status: Some(0), .. }) => Verdict::Passed,
            Some(Ended { status: Some(SKIPPED), output }) => {
                let reason = output.lines().find_map(|line| line.strip_prefix("skipped: "));
                Verdict::Skipped(reason.unwrap_or("it does not say why").to_owned())
            }
            Some(Ended { status: Some(137), .. }) => {
                Verdict::Failed("it was killed: it did not end in time".to_owned())
            }
            Some(Ended { status: Some(status), .. }) => Verdict::Failed(format!("status {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    1.0] Linux\r
@@ up 7 6.1.0-56-amd64\r
@@ begin 0\r
hca_id: rxe0\r
@@ end 0 0 8\r
@@ begin 1\r
skipped: verbs-write: not in this build\r
@@ end 1 77 9\r
@@ begin 2\r
@@ end 2 3 10\r
@@ begin 3\r
@@ end 3 137 70\r
@@ begin 4\r
half a line";

    #[test]
    fn each_command_has_a_verdict_also_where_the_machine_broke() {
        let log = Log::read(CONSOLE, Some("`qemu` was killed after 60 s".into()));
        assert_eq!(log.kernel.as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(log.verdict(0), Verdict::Passed);
        assert_eq!(log.verdict(1), Verdict::Skipped("verbs-write: not in this build".into()));
        assert_eq!(log.verdict(2), Verdict::Failed("status 3".into()));
        assert_eq!([0, 2, 9].map(|number| log.output(number)), ["hca_id: rxe0\n", "", ""]);
        assert!(matches!(log.verdict(3), Verdict::Failed(why) if why.contains("in time")));
        for number in [4, 5] {
            assert!(matches!(log.verdict(number), Verdict::Failed(why) if why.contains("after 60 s")));
        }
    }

    #[test]
    fn a_machine_that_says_nothing_at_its_end_broke() {
        assert!(Log::read("@@ up 7 x\n@@ begin 0\n@@ end 0 0 8\n", None).broke.is_some());
        assert!(Log::read("Kernel panic", None).broke.unwrap().contains("did not come up"));
        assert_eq!(Log::read("@@ up 7 x\n@@ done\n", None).broke, None);
    }

    #[test]
    fn a_machine_that_ran_nothing_is_told_from_one_that_failed() {
        for nothing in ["", "Kernel panic\n", "@@ up 7 x\r\n@@ the other machine does not answer\r\n"] {
            assert!(!Log::read(nothing, None).has_begun(), "{nothing}");
        }
        assert!(Log::read(CONSOLE, None).has_begun());
        assert!(begins("@@ begin 0\r") && !begins("@@ begin 1\r"));
        assert_eq!(Log::read(CONSOLE, None).last_lines(2, "x | "), "x |   @@ begin 4\nx |   half a line\n");
    }
}
