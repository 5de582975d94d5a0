//! `cargo xtask vm-test`: virtual machines with an RDMA device in software (Linux's Soft-RoCE), and the tests
//! in them.
//!
//! `debian.rs` gets packages, and `kernel.rs` and `initramfs.rs` make bootable files of them. `machine.rs` boots
//! these. `init.sh` is the machine's first process. `table.rs` has its commands, and `setting.sh` their common
//! beginning. `log.rs` reads its output. `docs/design/vm-test.md` describes all of it for people.

mod debian;
pub(crate) mod hot_path;
mod initramfs;
mod kernel;
mod log;
mod long_pages;
mod machine;
mod newer;
pub(crate) mod pages;
mod table;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use crate::fetch::debs::{Outcome, Store};
use crate::fetch::packages;
use crate::guard;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::{Tally, Took};
use crate::test::suite::summarise;
use crate::workspace::{Workspace, built_as_for_tests, root};
use debian::Kernel;
use initramfs::Archive;
use log::{Log, Verdict};
use machine::{Hardware, Machine, QEMU, Role, Shown};
use table::{Command, KERNELS};

/// The programs that the chore needs, besides apt.
const PROGRAMS: [&str; 5] = [QEMU, "dpkg-deb", "strip", "xz", "zstd"];

/// The programs of this workspace that machines run.
const BUILT: [&str; 4] = ["farjump", "farjump-perf", "conformance", "verbs-faults"];

/// The machines' name in counts.
pub(crate) const NAME: &str = "virtual machines";

/// Limit for ending a machine, besides its commands.
const END: Duration = Duration::from_secs(60);

/// The first process of a machine.
const INIT: &str = include_str!("init.sh");

/// Options of `cargo xtask vm-test`.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Options {
    /// Install missing packages by apt, as root or by a sudo that needs no password. In CI this is the default.
    #[arg(long)]
    install: bool,
    /// Test only with this kernel. Otherwise tests with each, and with a pair of machines that have one each.
    #[arg(long, value_parser = KERNELS)]
    kernel: Option<String>,
    /// Test only two machines joined by a cable.
    #[arg(long)]
    pair: bool,
    /// Run all tests on each kernel and between two machines: an hour instead of minutes.
    #[arg(long)]
    whole: bool,
    /// Run only the lines of the table whose name contains this.
    #[arg(long, value_name = "WORDS", conflicts_with = "command")]
    only: Option<String>,
    /// Copies a file into the machines, where it is found by its name.
    #[arg(long, value_name = "FILE")]
    copy: Vec<PathBuf>,
    /// Kills COMMAND after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u32,
    /// Runs this line of a shell instead of the tests; of two machines, in both.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the chore. Returns `true` if nothing failed.
///
/// # Errors
/// When interrupted, or a part of the project cannot be built.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let lacking = packages::provide(packages::MACHINES, options.install, interrupt)?;
    let tally = tested(options, interrupt)?;
    summarise(&tally, &lacking);
    Ok(tally.failed.is_empty())
}

/// All tests of all machines, for `cargo xtask test`.
///
/// # Errors
/// As [`run`].
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    tested(&Options { limit: 300, ..Options::default() }, interrupt)
}

fn tested(options: &Options, interrupt: &Interrupt) -> Result<Tally, Failed> {
    say!("\n== virtual machines");
    let begun = Instant::now();
    let mut tally = Tally::default();
    if let Some(why) = impossible() {
        tally.skipped.push((NAME.to_owned(), why));
        return Ok(tally);
    }
    let folder = Workspace::load(false, interrupt)?.target().join("vm");
    let store = Store::new(&folder, interrupt);
    let userland = match store.userland()? {
        Outcome::Here(userland) => userland,
        Outcome::Missing(why) => {
            tally.skipped.push((NAME.to_owned(), why));
            return Ok(tally);
        }
    };
    let newer = match newer::get(interrupt)? {
        Ok(newer) => Some(newer),
        // Tests that need it report that they are skipped; the reason is reported here.
        Err(why) => {
            tally.skipped.push(("virtual machines, a newer UCX".to_owned(), why));
            None
        }
    };
    let job = Job::prepare(options, interrupt)?;
    let (building, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
    let bench = Bench { folder, userland, newer, job, interrupt };
    let mut kernels = Vec::new();
    for series in
        KERNELS.into_iter().filter(|series| options.kernel.as_deref().is_none_or(|only| only == *series))
    {
        match store.kernel(series)? {
            Outcome::Here(kernel) => kernels.push(kernel),
            Outcome::Missing(why) => tally.skipped.push((format!("virtual machine, kernel {series}"), why)),
        }
    }
    if !options.pair {
        for ran in bench.each(&kernels, options) {
            tally.add(ran?);
        }
    }
    if let (Some(requester), Some(serves)) = (kernels.first(), kernels.last())
        && (options.pair || (options.kernel.is_none() && options.command.is_empty()))
    {
        tally.add(bench.pair(requester, serves, options)?);
    }
    let (suite, running) = (NAME.to_owned(), begun.elapsed().as_secs_f64());
    tally.suites.push(Took { suite, building, running });
    if let Some(words) = options.only.as_ref().filter(|_| tally.is_empty()) {
        tally.fail(format!("no test in a machine has a name with {words:?}"));
    }
    Ok(tally)
}

/// The reason why there are no machines here.
fn impossible() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("only on x86-64".to_owned());
    }
    let lacking =
        PROGRAMS.into_iter().chain(["apt-get", "apt-cache"]).find(|program| !packages::in_path(program));
    lacking.map(|program| format!("{program} is not there"))
}

/// Files of machines, besides their system.
#[derive(Debug)]
struct Job {
    /// The files, and their names in the machine.
    files: Vec<(String, PathBuf)>,
    /// Folder of the files that were made for these machines.
    _made: tempfile::TempDir,
}

impl Job {
    /// Builds farjump's programs and the ifuncs that they inject.
    fn prepare(options: &Options, interrupt: &Interrupt) -> Result<Job, Failed> {
        let made =
            tempfile::tempdir().map_err(|error| Failed::Because(format!("a temporary folder: {error}")))?;
        let mut files = Vec::new();
        for file in &options.copy {
            let Some(name) = file.file_name() else {
                return Err(Failed::Because(format!("{} has no name", file.display())));
            };
            files.push((format!("programs/{}", name.to_string_lossy()), file.clone()));
        }
        if !options.command.is_empty() {
            return Ok(Job { files, _made: made });
        }
        let chosen: Vec<_> = BUILT.iter().flat_map(|program| ["--bin", *program]).collect();
        let built = built_as_for_tests(&chosen, interrupt)?;
        let mut programs =
            BUILT.iter().map(|program| built.program(program)).collect::<Result<Vec<_>, _>>()?;
        // This program takes longer to build than the others, and only the table of all tests has its line.
        if options.whole {
            programs.push(guard::build(interrupt)?);
        }
        for program in &programs {
            let name = program.file_name().unwrap_or_default();
            // Nine tenths of the program are debug information.
            let stripped = made.path().join(name);
            let strip = Run::new("strip", interrupt).args(["-o"]).args([&stripped, program]);
            succeed(strip.quiet(), "strip failed")?;
            files.push((format!("programs/{}", name.to_string_lossy()), stripped));
        }
        files.push(("hot-path.json".to_owned(), root().join(guard::RECORD)));
        // The machines have no compiler.
        let libraries = made.path().join("libraries");
        let failed = |error| Failed::Because(format!("{}: {error}", libraries.display()));
        fs::create_dir(&libraries).map_err(failed)?;
        let build =
            Run::new(built.program("conformance")?, interrupt).args(["--libraries"]).args([&libraries]);
        succeed(build, "the functions to inject do not build")?;
        for entry in fs::read_dir(&libraries).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push((format!("libraries/{name}"), path.clone()));
        }
        Ok(Job { files, _made: made })
    }
}

fn succeed(run: Run<'_>, otherwise: &str) -> Result<(), Failed> {
    let ended = run.run()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because(format!("{otherwise}: {}", ended.output.trim_end()))),
    }
}

/// Parts of all machines, except the kernel.
struct Bench<'i> {
    folder: PathBuf,
    userland: PathBuf,
    /// A folder with the libraries of a newer UCX.
    newer: Option<PathBuf>,
    job: Job,
    interrupt: &'i Interrupt,
}

impl Bench<'_> {
    /// Runs a machine for each kernel. They run at the same time, because each alone leaves a processor of this
    /// machine idle. With a user's own command, which may be a measurement, they run one after the other.
    fn each(&self, kernels: &[Kernel], options: &Options) -> Vec<Result<Tally, Failed>> {
        if kernels.len() < 2 || !options.command.is_empty() {
            return kernels.iter().map(|kernel| self.alone(kernel, "", options)).collect();
        }
        thread::scope(|scope| {
            let run = |kernel: &Kernel| self.alone(kernel, &format!("{:4} | ", kernel.series), options);
            let threads: Vec<_> = kernels.iter().map(|kernel| scope.spawn(move || run(kernel))).collect();
            threads.into_iter().map(joined).collect()
        })
    }

    /// Runs a machine, with `mark` before each of its shown lines.
    fn alone(&self, kernel: &Kernel, mark: &str, options: &Options) -> Result<Tally, Failed> {
        let name = format!("virtual machine, {}", kernel.release);
        let commands =
            chosen(options).unwrap_or_else(|| options.among(table::alone(&kernel.series, options.whole)));
        if commands.is_empty() {
            return Ok(Tally::default());
        }
        say!("\n== {name}");
        let begun = Instant::now();
        let parts = self.build(kernel, &commands)?;
        let log = self.folder.join(format!("{}.log", kernel.release));
        let read = booted(
            &name,
            |read: &Log| again(&[read]),
            || {
                let machine = Machine {
                    hardware: Hardware::Pc,
                    kernel: &parts.kernel,
                    initramfs: &parts.initramfs,
                    log: &log,
                    mark,
                    shown: options.shown(&commands),
                    pair: None,
                    limit: limit(&commands),
                };
                machine.run(self.interrupt)
            },
        )?;
        say!("{name}: {} s; the console is kept in {}", begun.elapsed().as_secs(), log.display());
        Ok(counted(&name, &commands, &read))
    }

    /// Runs two machines with a cable between them.
    fn pair(&self, requester: &Kernel, serves: &Kernel, options: &Options) -> Result<Tally, Failed> {
        let name = format!("virtual machines, {} and {}", requester.release, serves.release);
        let commands = chosen(options).unwrap_or_else(|| options.among(table::pair(options.whole)));
        if commands.is_empty() {
            return Ok(Tally::default());
        }
        say!("\n== {name}");
        let begun = Instant::now();
        let roles = [(requester, Role::Requests), (serves, Role::Serves)];
        let logs = roles.map(|(_, role)| self.folder.join(format!("pair-{}.log", role.word())));
        let parts = [self.build(requester, &commands)?, self.build(serves, &commands)?];
        let run = || -> Result<(Log, Log), Failed> {
            let ends =
                UnixStream::pair().map_err(|error| Failed::Because(format!("a pair of sockets: {error}")))?;
            let broke = AtomicBool::new(false);
            let machine = |at: usize, end: UnixStream| {
                let role = roles[at].1;
                let machine = Machine {
                    hardware: Hardware::Pc,
                    kernel: &parts[at].kernel,
                    initramfs: &parts[at].initramfs,
                    log: &logs[at],
                    mark: &format!("{:6} | ", role.word()),
                    // On success the other machine's output is the same.
                    shown: if role == Role::Requests { options.shown(&commands) } else { Shown::Nothing },
                    pair: Some((OwnedFd::from(end), role, &broke)),
                    limit: limit(&commands),
                };
                machine.run(self.interrupt)
            };
            let (asked, served) = thread::scope(|scope| {
                let other = scope.spawn(|| machine(1, ends.1));
                let asked = machine(0, ends.0);
                (asked, joined(other))
            });
            Ok((asked?, served?))
        };
        let (asked, served) = booted(&name, |(asked, served): &(Log, Log)| again(&[asked, served]), run)?;
        let logs = logs.map(|log| log.display().to_string());
        say!("{name}: {} s; the consoles are kept in {}", begun.elapsed().as_secs(), logs.join(" and "));
        let mut tally = counted(&name, &commands, &asked);
        tally.failed.extend(counted(&format!("{name}, serving"), &commands, &served).failed);
        Ok(tally)
    }

    /// Makes the bootable files.
    fn build(&self, kernel: &Kernel, commands: &[Command]) -> Result<Parts, Failed> {
        let folder = tempfile::tempdir_in(&self.folder)
            .map_err(|error| Failed::Because(format!("{}: {error}", self.folder.display())))?;
        let parts = Parts {
            kernel: folder.path().join("kernel"),
            initramfs: folder.path().join("initramfs"),
            _folder: folder,
        };
        kernel.unpack(&parts.kernel, self.interrupt)?;
        let mut archive = Archive::create(&parts.initramfs)?;
        archive.add_userland(&self.userland)?;
        if let Some(newer) = &self.newer {
            archive.add_newer(newer)?;
        }
        archive.add_bytes("init", INIT.as_bytes())?;
        let modules = kernel.modules(self.interrupt)?;
        let order: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
        archive.add_bytes("modules/order", order.as_bytes())?;
        for module in &modules {
            archive.add_bytes(&format!("modules/{}", module.name), &module.bytes)?;
        }
        archive.add_folder("job/libraries")?;
        for (name, file) in &self.job.files {
            archive.add_file(&format!("job/{name}"), file)?;
        }
        for (number, command) in commands.iter().enumerate() {
            archive.add_bytes(&format!("job/{number}.sh"), command.script.as_bytes())?;
            archive.add_bytes(&format!("job/{number}.limit"), command.limit.to_string().as_bytes())?;
            if let Some((script, port)) = &command.serving {
                archive.add_bytes(&format!("job/{number}.there.sh"), script.as_bytes())?;
                archive.add_bytes(&format!("job/{number}.port"), port.to_string().as_bytes())?;
            }
        }
        archive.finish()?;
        Ok(parts)
    }
}

/// The reason for booting machines once more, if their failure has no cause in farjump. A failed test never runs
/// again.
fn again(machines: &[&Log]) -> Option<String> {
    if machines.iter().all(|log| !log.has_come_up()) {
        return Some("not up, and no line of farjump's has run".to_owned());
    }
    // A program cannot make a kernel panic unless the kernel, or QEMU's emulated processor, has a defect. Seen with
    // 6.12 while it allocated a packet: flags that no processor can hold.
    let panic = machines.iter().find_map(|log| log.panic.as_deref())?;
    Some(format!("the kernel fell ({panic}), as the console's end above says"))
}

/// Runs machines, and once more if `again` has a reason.
fn booted<T>(
    name: &str,
    again: impl Fn(&T) -> Option<String>,
    run: impl Fn() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let first = run()?;
    let Some(why) = again(&first) else {
        return Ok(first);
    };
    say!("{name}: {why}: booting once more");
    run()
}

/// The result of a thread that runs a machine.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T, Failed>>) -> Result<T, Failed> {
    thread.join().unwrap_or_else(|_| Err(Failed::Because("the thread of a machine panicked".into())))
}

/// The bootable files of one machine; removed when dropped.
struct Parts {
    kernel: PathBuf,
    initramfs: PathBuf,
    _folder: tempfile::TempDir,
}

impl Options {
    /// The tests chosen by the options.
    fn among(&self, mut commands: Vec<Command>) -> Vec<Command> {
        if let Some(words) = &self.only {
            commands.retain(|command| command.name.contains(words));
        }
        commands
    }

    /// The shown part of a machine with these commands.
    fn shown(&self, commands: &[Command]) -> Shown {
        match self.command.is_empty() {
            true => Shown::Commands(commands.iter().map(|command| command.name.clone()).collect()),
            false => Shown::Console,
        }
    }
}

/// The user's command in place of the tests.
fn chosen(options: &Options) -> Option<Vec<Command>> {
    let line = options.command.join(" ");
    (!options.command.is_empty()).then(|| vec![Command::shell_line(&line, options.limit)])
}

/// Time limit of a machine with these commands.
fn limit(commands: &[Command]) -> Duration {
    let seconds: u64 = commands.iter().map(|command| u64::from(command.limit)).sum();
    END + Duration::from_secs(seconds)
}

/// Results of the commands in a machine.
fn counted(machine: &str, commands: &[Command], log: &Log) -> Tally {
    let mut tally = Tally::default();
    for (number, command) in commands.iter().enumerate() {
        let name = format!("{machine}: {}", command.name);
        match log.verdict(number) {
            Verdict::Passed => tally.passed += 1,
            Verdict::Failed(why) => tally.fail_with(format!("{name}: {why}"), log.output(number)),
            Verdict::Skipped(why) => tally.skipped.push((name, why)),
        }
    }
    if let Some(why) = log.broke.as_ref().filter(|_| tally.failed.is_empty()) {
        tally.fail(format!("{machine}: {why}"));
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_a_machine_that_is_not_up_is_booted_once_more() {
        for (up_at, boots) in [(1, 1), (2, 2), (3, 2)] {
            let count = Cell::new(0);
            let run = || {
                count.set(count.get() + 1);
                Ok(count.get())
            };
            let again = |number: &u32| (*number < up_at).then(|| "not up".to_owned());
            assert_eq!(booted("a machine", again, run).unwrap(), boots);
            assert_eq!(count.get(), boots);
        }
    }

    #[test]
    fn machines_are_booted_again_only_for_what_is_not_farjumps() {
        let up = "@@ up 7 6.1\n@@ begin 0\n";
        let read = |console: &str| Log::read(console, Some("QEMU was killed".to_owned()));
        let (none, failed) = (read(""), read(&format!("{up}@@ end 0 1 9\n")));
        let fell = read(&format!("{up}[  9.9] Kernel panic - not syncing: Fatal exception in interrupt\n"));
        assert!(again(&[&none]).unwrap().contains("not up"));
        assert!(again(&[&none, &none]).unwrap().contains("not up"));
        assert!(again(&[&failed, &fell]).unwrap().contains("Fatal exception"));
        for machines in [&[&failed][..], &[&failed, &none], &[&read(up), &failed]] {
            assert_eq!(again(machines), None);
        }
    }

    #[test]
    fn a_machine_that_cannot_be_run_is_not_run_again() {
        let count = Cell::new(0);
        let run = || {
            count.set(count.get() + 1);
            Err::<(), _>(Failed::Interrupted)
        };
        assert!(booted("a machine", |()| Some(String::new()), run).unwrap_err().is_interrupt());
        assert_eq!(count.get(), 1);
    }
}
