//! Reads a machine's console.

use std::collections::BTreeMap;

/// Exit status of a skipped test program.
const SKIPPED: i32 = 77;
/// Number of lines of the console's end that a failure shows.
const LAST_LINES: usize = 20;
/// The same number for a kernel that panicked: its report of the first fault is longer, and stands before its last
/// words.
const PANIC_LINES: usize = 90;
/// A kernel's last words.
const PANIC: &str = "Kernel panic - not syncing";

/// Log of a machine's run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Log {
    /// Its kernel's release, once it is up: it has its device, and has found the other machine of a pair.
    pub(super) kernel: Option<String>,
    /// The reason why it did not finish.
    pub(super) broke: Option<String>,
    /// The kernel's last words, if it panicked.
    pub(super) panic: Option<String>,
    commands: BTreeMap<usize, Ended>,
    /// The end of the console.
    last_lines: Vec<String>,
}

/// Returns whether a machine that prints this line is up.
pub(super) fn is_up(line: &str) -> bool {
    line.starts_with("@@ up ")
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
    /// Reads a console; `broke` is the reason why the machine did not end in order.
    pub(super) fn read(console: &str, broke: Option<String>) -> Log {
        let mut log = Log::default();
        let mut lacks = None;
        let mut is_done = false;
        let mut running = None;
        let lines: Vec<&str> = console.lines().collect();
        let panic = lines.iter().find_map(|line| line.find(PANIC).map(|at| line[at..].trim_end()));
        log.panic = panic.map(str::to_owned);
        let kept = if panic.is_some() { PANIC_LINES } else { LAST_LINES };
        let last = &lines[lines.len().saturating_sub(kept)..];
        log.last_lines = last.iter().map(|line| line.trim_end().to_owned()).collect();
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
                ["no", ..] => lacks = line.strip_prefix("@@ ").map(str::to_owned),
                ["done"] => is_done = true,
                _ => {
                    if let Some(ended) = running.and_then(|number| log.commands.get_mut(&number)) {
                        ended.output.push_str(line);
                        ended.output.push('\n');
                    }
                }
            }
        }
        // The machine's own words say more than QEMU's exit status.
        log.broke = lacks.or(broke);
        if log.broke.is_none() && !is_done {
            log.broke = Some("it was off before all was done".to_owned());
        }
        if !log.has_come_up() {
            log.broke = log.broke.map(|why| format!("it did not come up: {why}"));
        }
        log
    }

    /// Returns whether the machine came up. If not, no line of farjump's has run: the emulator, the kernel or the
    /// cable failed.
    pub(super) fn has_come_up(&self) -> bool {
        self.kernel.is_some()
    }

    /// The end of the console, each line behind `mark`.
    pub(super) fn last_lines(&self, mark: &str) -> String {
        self.last_lines.iter().map(|line| format!("{mark}  {line}\n")).collect()
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
            Some(Ended { status: Some(status), output }) => {
                let failed: Vec<_> = output.lines().filter(|line| line.starts_with("failed ")).collect();
                let colon = if failed.is_empty() { "" } else { ": " };
                Verdict::Failed(format!("status {status}{colon}{}", failed.join("; ")))
            }
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
ok one case (2 s)\r
failed a case (3 s): it panicked\r
at its line\r
failed another (0 s): so\r
@@ end 4 1 74\r
@@ begin 5\r
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
        let named = "status 1: failed a case (3 s): it panicked; failed another (0 s): so";
        assert_eq!(log.verdict(4), Verdict::Failed(named.into()));
        for number in [5, 6] {
            assert!(matches!(log.verdict(number), Verdict::Failed(why) if why.contains("after 60 s")));
        }
    }

    #[test]
    fn a_machine_that_says_nothing_at_its_end_broke() {
        let broke = |console, why: Option<&str>| Log::read(console, why.map(str::to_owned)).broke;
        assert_eq!(broke("@@ up 7 x\n@@ done\n", None), None);
        let off = broke("@@ up 7 x\n@@ begin 0\n@@ end 0 0 8\n", None);
        assert_eq!(off.unwrap(), "it was off before all was done");
        assert!(broke("Kernel panic", None).unwrap().starts_with("it did not come up: "));
    }

    #[test]
    fn a_machine_that_lacks_something_says_what() {
        let broke =
            |console| Log::read(console, Some("QEMU ended with exit status: 3".into())).broke.unwrap();
        assert_eq!(broke("@@ no eth0\r\n"), "it did not come up: no eth0");
        let late = "@@ up 7 x\n@@ begin 0\nstep 1: late 1\n@@ no other machine when command 0 begins\r\n";
        assert_eq!(broke(late), "no other machine when command 0 begins");
        assert_eq!(broke("@@ up 7 x\n"), "QEMU ended with exit status: 3");
    }

    #[test]
    fn a_machine_has_come_up_only_after_its_up_line() {
        for nothing in ["", "Kernel panic\n", "[    1.0] Linux\r\n@@ no other machine\r\n"] {
            assert!(!Log::read(nothing, None).has_come_up(), "{nothing}");
            assert!(!nothing.lines().any(is_up), "{nothing}");
        }
        assert!(Log::read(CONSOLE, None).has_come_up());
        assert!(is_up("@@ up 7 6.1.0-56-amd64\r"));
    }

    #[test]
    fn a_panic_is_reported_only_if_the_kernel_printed_one() {
        let console =
            format!("{CONSOLE}\n[  118.1] RIP: 0010:x+0x70\r\n[  118.2] {PANIC}: Fatal exception\r\n");
        let log = Log::read(&console, None);
        assert_eq!(log.panic.as_deref(), Some("Kernel panic - not syncing: Fatal exception"));
        assert!(log.last_lines("").contains("RIP: "));
        assert_eq!(Log::read(CONSOLE, None).panic, None);
    }

    #[test]
    fn the_last_lines_are_those_of_the_end() {
        assert_eq!(Log::read("one\r\ntwo", None).last_lines("x | "), "x |   one\nx |   two\n");
        let many: Vec<String> = (0..LAST_LINES + 5).map(|number| number.to_string()).collect();
        let last = Log::read(&many.join("\r\n"), None).last_lines("");
        assert_eq!(last.lines().map(str::trim).collect::<Vec<_>>(), many[5..]);
    }
}
