//! Sections that are measured in a virtual machine, which has an RDMA device: `farjump-perf` runs there, and its
//! report comes back over the machine's console.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::section_file::Kept;
use super::{failed, succeeded};
use crate::process::{Failed, Interrupt, Run};
use crate::workspace::root;

/// Prefix of the report's lines on the console, which also has the kernel's messages.
const MARK: &str = "report: ";
/// Limit for building, booting and ending a machine, besides its work.
const AROUND: Duration = Duration::from_secs(10 * 60);

/// Runs `farjump-perf` with these arguments in a machine with a kernel of this series, and takes its rows.
///
/// # Errors
/// When interrupted, or the run failed. Rows that it printed before are in `run`.
pub(super) fn measure(
    kernel: &str,
    arguments: &[String],
    limit: Duration,
    program: &Path,
    run: &mut Kept,
    interrupt: &Interrupt,
) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|error| failed(Path::new("a temporary folder"), &error))?;
    // The machine has no compiler.
    let counter = folder.path().join("libcounter.so");
    let source = root().join("ifuncs/samples/c/counter.c");
    let built = Run::new(program, interrupt).args(["build"]).args([&source]).args(["-o"]).args([&counter]);
    // Nine tenths of the program are debug information.
    let stripped = folder.path().join(super::PROGRAM);
    let strip = Run::new("strip", interrupt).args(["-o"]).args([&stripped, program]);
    for made in [built, strip] {
        succeeded(&made.quiet().run()?)?;
    }
    let printed = folder.path().join("console");
    let console = fs::File::create(&printed).map_err(|error| failed(&printed, &error))?;
    let own = std::env::current_exe().map_err(|error| failed(Path::new("this program's file"), &error))?;
    let ended = Run::new(own, interrupt)
        .args(["vm-test", "--kernel", kernel, "--limit", &limit.as_secs().to_string()])
        .args(["--copy".as_ref(), stripped.as_os_str(), "--copy".as_ref(), counter.as_os_str()])
        .args(["--", &line(arguments)])
        .output(console.into())
        .shown_as(format!("{} (in a virtual machine, Linux {kernel})", run.command))
        .limit(limit + AROUND)
        .run();
    let console = fs::read(&printed).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let why = |_| why_not(&console).map_or(Ok(()), |why| Err(Failed::Because(why)));
    let taken = run.take(&report(&console));
    ended.and_then(why).and(taken)
}

/// The machine's command: a line of a shell.
fn line(arguments: &[String]) -> String {
    let arguments = arguments.join(" ");
    // The report is searched for errors: a pipe's status is that of its last command.
    format!(
        "farjump-perf {arguments} --counter programs/libcounter.so --json >report 2>errors || status=$?
         sed 's/^/{MARK}/' report; grep '^error: ' errors || true; exit ${{status:-0}}"
    )
}

/// The report on a console.
fn report(console: &str) -> String {
    // Lines end as on a terminal.
    let lines = console.lines().filter_map(|line| line.trim_end().strip_prefix(MARK));
    lines.collect::<Vec<_>>().join("\n")
}

/// The reason why a machine measured nothing, or stopped early: farjump's message, or the chore's report on the
/// machine.
fn why_not(console: &str) -> Option<String> {
    let lines = || console.lines().map(str::trim_end);
    let said = lines().find_map(|line| line.strip_prefix("error: "));
    let of_machine = || {
        let mut lines = lines().filter(|line| line.starts_with("failed   ") || line.starts_with("skipped  "));
        lines.next().map(|line| line[9..].trim_start())
    };
    said.or_else(of_machine).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_from_marked_console_lines_despite_kernel_messages() {
        let console = "@@ begin 0\r\nreport: {\r\n[    3.2] rdma_rxe: loaded\r\nreport:   \"rows\": []\r\nreport: }\r\n@@ end 0 0 9\r\n";
        assert_eq!(report(console), "{\n  \"rows\": []\n}");
        assert_eq!(why_not(console), None);
    }

    #[test]
    fn why_a_machine_measured_nothing_is_what_farjump_said_or_the_chore() {
        let said =
            "@@ begin 0\r\nerror: this machine has no RDMA device\r\n\nfailed   virtual machine: status 1\n";
        assert_eq!(why_not(said).as_deref(), Some("this machine has no RDMA device"));
        let skipped = "\nskipped  virtual machines: zstd is not there\n";
        assert_eq!(why_not(skipped).as_deref(), Some("virtual machines: zstd is not there"));
    }

    #[test]
    fn the_machines_line_runs_in_a_shell_and_fails_with_farjump() {
        let arguments = ["latency".to_owned()];
        let folder = tempfile::tempdir().expect("a folder can be made");
        let script = format!(
            "farjump-perf() {{ echo '{{}}'; echo 'error: no' >&2; return 3; }}\n{}",
            line(&arguments)
        );
        let ended =
            std::process::Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output();
        let ended = ended.expect("bash is there");
        assert_eq!(ended.status.code(), Some(3));
        let said = String::from_utf8_lossy(&ended.stdout);
        assert_eq!((report(&said), why_not(&said)), ("{}".to_owned(), Some("no".to_owned())));
    }
}
