//! Machines of aarch64 with pages of 16 KiB and of 64 KiB, and the tests that depend on the length of a page.
//!
//! The emulator of single programs gives each program the pages of this machine. So QEMU emulates whole machines
//! here: one with a kernel of Debian's that has pages of 16 KiB, and one with a kernel that is built for 64 KiB
//! (`long_pages.rs`). They run the tests of code that maps memory, and the conformance suite.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::debian::{Kernel, kernel_of};
use super::initramfs::Archive;
use super::machine::{Hardware, Machine, Shown};
use super::table::Command;
use super::{INIT, again, booted, counted, limit, long_pages};
use crate::artifacts::Artifacts;
use crate::emulated::{self, Cross, Tools};
use crate::fetch::debs::{self, Outcome, Store};
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::test::programs::TestPrograms;
use crate::test::report::{Tally, Took};
use crate::workspace::{BUILDING, Workspace, built_as_for_tests};

/// The machines' name in counts, and the filter for them.
pub(crate) const NAME: &str = "long-pages";

/// The platform, and Debian's name of it.
const PLATFORM: (&str, &str) = ("aarch64-unknown-linux-gnu", "arm64");
/// The package, of Debian's newer release, that depends on the newest kernel with pages of 16 KiB.
const KERNEL: &str = "linux-image-arm64-16k";
/// Its series.
const SERIES: &str = "6.12";
/// The package with QEMU, and its program. Its libraries are those of the QEMU that is installed.
const QEMU: (&str, &str) = ("qemu-system-arm", "usr/bin/qemu-system-aarch64");
/// Packages of a machine, besides their dependencies.
const USERLAND: [&str; 7] =
    ["busybox-static", "dash", "iproute2", "libgcc-s1", "libllvm19", "libstdc++6", "libucx0"];

/// The tests that run there: package, test programs, and words in the names of tests that do not run. One of these
/// runs `/bin/true` by another name, which is busybox there; those of the loader with libraries, and those of the builder
/// and of the handles, need a compiler; one of the transports takes minutes on an emulated processor, and one floods a
/// socket with more bytes than a kernel with pages of 64 KiB takes into its buffers.
const TESTS: [(&str, &[&str], &[&str]); 7] = [
    ("farjump-core", &["--lib", "--test", "icache"], &[]),
    ("farjump-os", &["--lib", "--test", "descriptors"], &["a_checked_program_runs_as_opened"]),
    ("farjump-loader", &["--lib"], &[]),
    ("farjump-loader", &["--test", "loading"], &["debugger::", "library::", "sealed::", "wanted::"]),
    ("farjump-builder", &["--lib"], &["damaged_objects_are_linked"]),
    (
        "farjump-transports",
        &["--lib", "--test", "transports"],
        &["two_endpoints_that_only_send_never_deadlock", "a_flood_of_empty_records_takes_bounded_work"],
    ),
    ("farjump-handles", &["--lib"], &["a_function_without_its_object_reruns"]),
];
/// The transports of the conformance suite.
const TRANSPORTS: [&str; 4] = ["shm", "tcp", "ucx-put", "ucx-am"];
/// A function that is sent as bitcode, and compiled in the machine.
const COUNT: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(count)\n\
    FARJUMP_IFUNC void count_main(void *p, size_t n, void *a) { (void)p; (void)n; const struct farjump_data *data = a;\n\
    uint64_t lines = 0; for (size_t i = 0; i < data->len; i++) lines += data->bytes[i] == '\\n';\n\
    farjump_reply(&lines, sizeof lines); }\n";
/// Serves a file of four lines, counts them by the function, and checks that the target has compiled bitcode.
const BITCODE: &str = "printf '1\\n2\\n3\\n4\\n' >four
farjump serve --listen unix:/tmp/target --data four --bitcode=prefer --handshake-timeout 60s &
for _ in $(seq 600); do [ -S /tmp/target ] && break; sleep 0.1; done
[ \"$(farjump inject libraries/libcount.so --to unix:/tmp/target --format u64)\" = 4 ]
farjump store --to unix:/tmp/target | tee stored
grep -q bitcode stored
kill $!; wait $!
";
/// Limit of a test program and of the suite over one transport, in seconds.
const LIMIT: u32 = 1200;

/// A length of a page, in KiB, with the kernel that has it.
struct Pages {
    kib: u32,
    kernel: PathBuf,
}

/// Runs the machines, or reports why they cannot run.
///
/// # Errors
/// When interrupted, or a part of the project cannot be built.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let folder = workspace.target().join("vm").join(NAME);
    let tools = Tools::get(&emulated::folder(&workspace), interrupt)?;
    let cross = match &tools {
        Outcome::Here(tools) => {
            Cross::for_platform(PLATFORM.0, tools, &emulated::folder(&workspace), interrupt)?
        }
        Outcome::Missing(why) => Outcome::Missing(why.clone()),
    };
    let mut tally = Tally::default();
    let (cross, parts) = match (cross, Parts::get(&folder, interrupt)?) {
        (Outcome::Here(cross), Outcome::Here(parts)) => (cross, parts),
        (Outcome::Missing(why), _) | (_, Outcome::Missing(why)) => {
            tally.skipped.push((NAME.to_owned(), why));
            return Ok(tally);
        }
    };
    let begun = Instant::now();
    let job = Job::build(&cross, &workspace, interrupt)?;
    let (suite, building) = (NAME.to_owned(), begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let pages = Pages { kib: 16, kernel: parts.kernel.clone() };
    tally.add(run(&pages, &parts, &job, &folder, interrupt)?);
    match long_pages::kernel(&folder, interrupt)? {
        Outcome::Here(kernel) => {
            tally.add(run(&Pages { kib: 64, kernel }, &parts, &job, &folder, interrupt)?);
        }
        Outcome::Missing(why) => tally.skipped.push((format!("{NAME} of 64 KiB"), why)),
    }
    tally.suites.push(Took { suite, building, running: begun.elapsed().as_secs_f64() });
    Ok(tally)
}

/// The downloads for the machines.
struct Parts {
    qemu: PathBuf,
    userland: PathBuf,
    /// The kernel with pages of 16 KiB.
    kernel: PathBuf,
}

impl Parts {
    fn get(folder: &Path, interrupt: &Interrupt) -> Result<Outcome<Parts>, Failed> {
        let Some(mirror) = debs::mirror() else {
            return Ok(Outcome::Missing("apt has no mirror of Debian's".to_owned()));
        };
        if !packages::in_path(super::QEMU) {
            return Ok(Outcome::Missing(format!("{} is not there", super::QEMU)));
        }
        let newer = debs::source(&mirror, debs::NEWER_RELEASE);
        let store = Store::viewing(&folder.join("newer"), Some(PLATFORM.1), Some(&newer), interrupt)?;
        let machine = Store::viewing(&folder.join(PLATFORM.1), Some(PLATFORM.1), None, interrupt)?;
        let own = Store::new(&folder.join("own"), interrupt);
        let emulator = own.unpacked("qemu", &[&["download", QEMU.0]])?;
        let needs = machine.with_dependencies(&USERLAND)?;
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        let userland = machine.unpacked("userland", &[&needs])?;
        // Also gets apt's lists.
        let kernel = match store.fetch(&["download", KERNEL])? {
            Outcome::Here(_) => match kernel_of(SERIES, &store.depends(&[KERNEL])?) {
                Some(package) => store.unpacked("kernel", &[&["download", package]])?.map(|root| {
                    let release = package.trim_start_matches("linux-image-").to_owned();
                    Kernel { series: SERIES.to_owned(), release, root }.file()
                }),
                None => Outcome::Missing(format!("{KERNEL} depends on no kernel {SERIES}")),
            },
            Outcome::Missing(why) => Outcome::Missing(why),
        };
        Ok(match (emulator, userland, kernel) {
            (Outcome::Here(emulator), Outcome::Here(userland), Outcome::Here(kernel)) => {
                Outcome::Here(Parts { qemu: emulator.join(QEMU.1), userland, kernel })
            }
            (Outcome::Missing(why), ..) | (_, Outcome::Missing(why), _) | (.., Outcome::Missing(why)) => {
                Outcome::Missing(why)
            }
        })
    }
}

/// The files and commands of the machines.
struct Job {
    /// The files, and their names in the machine.
    files: Vec<(String, PathBuf)>,
    commands: Vec<Command>,
    /// Folder of the files that were made for these machines.
    _made: tempfile::TempDir,
}

impl Job {
    /// Builds the tests, the conformance suite, and the functions that it sends.
    fn build(cross: &Cross<'_, '_>, workspace: &Workspace, interrupt: &Interrupt) -> Result<Job, Failed> {
        let made =
            tempfile::tempdir().map_err(|error| Failed::Because(format!("a temporary folder: {error}")))?;
        let cargo = |what: &[&str]| cross.cargo().args(what).args(["--target", cross.rust()]).limit(BUILDING);
        let words = TESTS.iter().flat_map(|(package, programs, _)| {
            let others = programs.iter().copied().filter(|word| *word != "--lib");
            ["--package", package].into_iter().chain(others)
        });
        let tests = TestPrograms::of_build(
            cargo(&["test", "--no-run", "--lib"]).args(words),
            "the tests of memory",
            interrupt,
        )?;
        let (mut files, mut commands) = (Vec::new(), Vec::new());
        for (package, programs, skipped) in TESTS {
            for (name, file) in tests.of(&[workspace.folder_of(package)?]).selected(programs).files() {
                let program = format!("{package}-{name}");
                let skipped: String = skipped.iter().map(|word| format!(" --skip {word}")).collect();
                let line = format!("{program} --test-threads 2{skipped}");
                commands.push(command(&format!("{package}, {name}"), &line));
                files.push((format!("programs/{program}"), file.to_owned()));
            }
        }
        let suite = cargo(&["build", "--package", "farjump-integration-tests", "--bin", "conformance"]);
        let suite = Artifacts::of(suite, "the conformance suite")?.program("conformance")?;
        let libraries = made.path().join("libraries");
        let failed = |error| Failed::Because(format!("{}: {error}", libraries.display()));
        fs::create_dir(&libraries).map_err(failed)?;
        let build = Run::new(cross.runner(), interrupt).args([&*suite, "--libraries".as_ref(), &libraries]);
        super::succeed(build, "the functions to inject do not build")?;
        for entry in fs::read_dir(&libraries).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("libraries/{name}"), path));
        }
        files.push(("programs/conformance".to_owned(), suite));
        let programs = ["farjump", "farjump_compiler"];
        let words = programs.iter().flat_map(|name| ["--bin", name]);
        let built = cargo(&["build", "--package", "farjump-cli"]).args(words);
        let built = Artifacts::of(built, "the program farjump")?;
        for name in programs {
            files.push((format!("programs/{name}"), built.program(name)?));
        }
        let source = made.path().join("count.c");
        fs::write(&source, COUNT).map_err(failed)?;
        let library = made.path().join("libcount.so");
        let own = built_as_for_tests(&["--bin", "farjump"], interrupt)?.program("farjump")?;
        let words = ["build", "--cc", "clang", "--bitcode", "--target", cross.rust(), "-o"];
        let build = Run::new(own, interrupt).args(words).args([&library, &source]);
        super::succeed(build, "a function of bitcode does not build")?;
        files.push(("libraries/libcount.so".to_owned(), library));
        commands.push(command("serve, with bitcode that is compiled there", BITCODE));
        for transport in TRANSPORTS {
            let line = format!(
                "export CONFORMANCE_LIBRARIES=/job/libraries CONFORMANCE_VOLUME=2000 CONFORMANCE_LIMIT=240 CONFORMANCE_THREADS=no\n\
                 conformance {transport}"
            );
            commands.push(command(&format!("conformance, {transport}"), &line));
        }
        Ok(Job { files, commands, _made: made })
    }
}

fn command(name: &str, line: &str) -> Command {
    let script = format!("set -e\ncd /job\n{line}\n");
    Command { name: name.to_owned(), script, serving: None, limit: LIMIT }
}

/// Runs the machine with these pages.
fn run(
    pages: &Pages,
    parts: &Parts,
    job: &Job,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Tally, Failed> {
    let name = format!("virtual machine, pages of {} KiB", pages.kib);
    say!("\n== {name}");
    // Checks the pages first: a test on other pages is no test of these.
    let has = format!("grep -q '^KernelPageSize: *{} kB' /proc/self/smaps", pages.kib);
    let mut commands = vec![command("the length of a page", &has)];
    commands.extend(job.commands.iter().cloned());
    let initramfs = folder.join(format!("initramfs-{}", pages.kib));
    let mut archive = Archive::create(&initramfs)?;
    archive.add_userland(&parts.userland)?;
    archive.add_bytes("init", INIT.as_bytes())?;
    archive.add_bytes("modules/order", b"")?;
    archive.add_folder("job/libraries")?;
    for (name, file) in &job.files {
        archive.add_file(&format!("job/{name}"), file)?;
    }
    for (number, command) in commands.iter().enumerate() {
        archive.add_bytes(&format!("job/{number}.sh"), command.script.as_bytes())?;
        archive.add_bytes(&format!("job/{number}.limit"), command.limit.to_string().as_bytes())?;
    }
    archive.finish()?;
    let log = folder.join(format!("{}.log", pages.kib));
    let read = booted(
        &name,
        |read| again(&[read]),
        || {
            let machine = Machine {
                hardware: Hardware::Arm(&parts.qemu),
                kernel: &pages.kernel,
                initramfs: &initramfs,
                log: &log,
                mark: "",
                shown: Shown::Commands(commands.iter().map(|command| command.name.clone()).collect()),
                pair: None,
                limit: limit(&commands),
            };
            machine.run(interrupt)
        },
    )?;
    fs::remove_file(&initramfs)
        .map_err(|error| Failed::Because(format!("{}: {error}", initramfs.display())))?;
    say!("the console is kept in {}", log.display());
    Ok(counted(&name, &commands, &read))
}
