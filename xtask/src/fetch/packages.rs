//! System packages that the tests need, and their installation.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use farjump_tools::Tool;

use crate::process::{self, Failed, Interrupt, Run, variable};

/// The tests' needs besides Rust. Debian and Ubuntu use the same package names.
const TESTS: &[Needed] = &[
    Needed::new("cc", "gcc", "links everything"),
    Needed::new("gcc", "gcc", "compiles ifuncs in C"),
    Needed::new("readelf", "binutils", "links images, and shows what a program needs"),
    Needed::new("g++", "g++", "compiles ifuncs in C++, and the C++ that must be refused"),
    Needed::new("clang", "clang", "compiles ifuncs with another compiler"),
    Needed::new("libLLVM.so.19.1", "libllvm19", "compiles bitcode, beside the newer LLVM of Rust").owed(),
    Needed::new("gfortran", "gfortran", "compiles ifuncs in Fortran"),
    Needed::new("flang-new-19", "flang-19", "compiles them to bitcode"),
    Needed::new("gdb", "gdb", "looks at injected code that runs"),
    Needed::new("valgrind", "valgrind", "watches each instruction of a target and a link"),
    Needed::new("gdb-multiarch", "gdb-multiarch", "looks at it on another architecture, in the emulator"),
    Needed::new("ld.lld", "lld", "links images with another linker"),
    Needed::new("liblz4.a", "liblz4-dev", "an archive that a distribution made"),
    Needed::new("pkg-config", "pkg-config", "finds the C library"),
    Needed::new("cmake", "cmake", "finds the C library, too"),
    Needed::new("libsqlite3.so", "libsqlite3-dev", "the database of the example in C"),
    Needed::new("sqlite3", "sqlite3", "looks into that database"),
    Needed::new("aplay", "alsa-utils", "comes with the recordings that go into it"),
    Needed::new("libucp.so.0", "libucx0", "moves frames over UCX").owed(),
    Needed::new("libucp.so", "libucx-dev", "has the headers that the bindings of UCX are compared with")
        .owed(),
    Needed::new(LIBCLANG, "libclang1", "reads these headers").owed(),
    Needed::new("libibverbs.so.1", "libibverbs1", "drives RDMA devices"),
    Needed::new(
        "libibverbs.so",
        "libibverbs-dev",
        "has the headers that the bindings of verbs are compared with",
    ),
    Needed::new("ucx_perftest", "ucx-utils", "measures messages of UCX without farjump").owed(),
    Needed::new("ip", "iproute2", "makes the networks between which frames travel").owed(),
    Needed::new(MPICC, "libopenmpi-dev", "compiles the MPI program").owed(),
    Needed::new("mpirun", "openmpi-bin", "starts it, and the conformance suite over its transport").owed(),
    Needed::new(OF_MPICH, "libmpich-dev", "compiles the MPI program over a second MPI").owed(),
    Needed::new("mpirun.mpich", "mpich", "starts that one").owed(),
];

/// Further needs of virtual machines.
pub(crate) const MACHINES: &[Needed] = &[
    Needed::new("qemu-system-x86_64", "qemu-system-x86", "boots machines with an RDMA device"),
    Needed::new("xz", "xz-utils", "unpacks their kernels"),
    Needed::new("zstd", "zstd", "unpacks newer kernels"),
];

/// The packages that the tests need, with those for virtual machines if `machines`.
pub(crate) fn wanted(machines: bool) -> Vec<Needed> {
    [TESTS, if machines { MACHINES } else { &[] }].concat()
}

/// Clang as a library. Its folder is LLVM's, where the C compiler does not look.
const LIBCLANG: &str = "libclang.so.1";

/// MPI's compiler.
const MPICC: &str = "mpicc";
/// The line that MPI's compiler has to compile.
pub(crate) const OF_MPI: &str = "#include <mpi.h>";
/// The compiler of Open MPI, as Debian names it.
pub(crate) const OF_OPEN_MPI: &str = "mpicc.openmpi";
/// The compiler of MPICH, as Debian names it.
pub(crate) const OF_MPICH: &str = "mpicc.mpich";

/// Limit for installing.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A program that tests run, or a library that they link or load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needed {
    /// A program's name in `PATH`, or the file name of a library.
    pub(crate) file: &'static str,
    /// The package that has it.
    pub(crate) package: &'static str,
    /// Its use.
    pub(crate) used: &'static str,
    /// True if CI fails when the package is missing after an attempt to install it: without it whole transports go
    /// untested.
    owed: bool,
}

impl Needed {
    const fn new(file: &'static str, package: &'static str, used: &'static str) -> Needed {
        Needed { file, package, used, owed: false }
    }

    const fn owed(self) -> Needed {
        Needed { owed: true, ..self }
    }

    fn is_there(&self) -> bool {
        match self.file {
            LIBCLANG => linkable(LIBCLANG) || beside_llvm(LIBCLANG),
            file if file.starts_with("lib") => linkable(file),
            file => in_path(file),
        }
    }
}

/// Missing packages, after an attempt to install them where that is allowed.
#[derive(Debug)]
pub(crate) struct Lacking {
    /// The packages.
    pub(crate) needed: Vec<Needed>,
    /// Whether there was an attempt to install them.
    tried: bool,
}

impl Lacking {
    /// Packages for which CI fails: they could not be installed, and without them tests of a transport are skipped,
    /// which a mere pass would hide. `ci` is whether this is CI.
    pub(crate) fn unexcused(&self, ci: bool) -> impl Iterator<Item = &Needed> {
        self.needed.iter().filter(move |needed| ci && self.tried && needed.owed)
    }
}

/// Returns whether this runs for CI, by the variable that all CI services set.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// The missing packages of `wanted`, without an attempt to install them.
pub(crate) fn missing(wanted: &[Needed]) -> Lacking {
    let needed = wanted.iter().copied().filter(|needed| !needed.is_there()).collect();
    Lacking { needed, tried: false }
}

/// Installs missing packages of `wanted` if the user `asked` for it or this is CI, and returns those still missing.
/// Otherwise prints the packages that it would install, and changes nothing.
///
/// # Errors
/// As [`install`].
pub(crate) fn provide(wanted: &[Needed], asked: bool, interrupt: &Interrupt) -> Result<Lacking, Failed> {
    if asked || in_ci() {
        return install(wanted, interrupt);
    }
    let lacking = missing(wanted);
    if !lacking.needed.is_empty() {
        let packages = package_names(&lacking.needed).join(" ");
        say!("Some tests are skipped. To run them, `--install` would install by apt, as root: {packages}");
    }
    Ok(lacking)
}

/// The names of these packages, each once.
fn package_names(lacking: &[Needed]) -> Vec<&'static str> {
    let mut names: Vec<_> = lacking.iter().map(|needed| needed.package).collect();
    names.dedup();
    names
}

/// Installs missing packages of `wanted` if that needs no password, and returns those still missing.
///
/// # Errors
/// When interrupted. A failure of apt is no error: packages that it did not install are returned.
pub(crate) fn install(wanted: &[Needed], interrupt: &Interrupt) -> Result<Lacking, Failed> {
    let lacking = missing(wanted);
    if lacking.needed.is_empty() {
        return Ok(lacking);
    }
    let Some(prefix) = privileged(interrupt) else { return Ok(lacking) };
    let names = package_names(&lacking.needed);
    for arguments in [vec!["update"], [&["install", "-y", "--no-install-recommends"], &names[..]].concat()] {
        let words = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], &arguments].concat();
        let ended = Run::new(words[0], interrupt).args(&words[1..]).limit(LIMIT).run()?;
        if !ended.status.success() {
            say!("apt-get {} failed: the tests go on with what is there", arguments[0]);
        }
    }
    Ok(Lacking { tried: true, ..missing(wanted) })
}

/// Updates apt's lists. Returns `false` if this user may not, or if that failed.
///
/// # Errors
/// When interrupted.
pub(crate) fn update(interrupt: &Interrupt) -> Result<bool, Failed> {
    let Some(prefix) = privileged(interrupt) else { return Ok(false) };
    let words = [prefix, &["apt-get", "update"]].concat();
    Ok(Run::new(words[0], interrupt).args(&words[1..]).limit(LIMIT).run()?.status.success())
}

/// Cargo's options for building programs that need a library of the system: the MPI program, if its needs are met.
pub(crate) fn features() -> &'static [&'static str] {
    if mpi().is_ok() { &["--features", "farjump-mpi-example/mpi"] } else { &[] }
}

/// The MPI compiler that the build takes, by the variable of the crate that binds MPI.
pub(crate) fn mpi_compiler() -> String {
    variable(process::MPICC).map_or_else(|| MPICC.to_owned(), |named| named.to_string_lossy().into_owned())
}

/// Compiles a line to find out whether the MPI program can be built: a compiler whose headers are missing would end
/// the build of all tests. The error is the reason.
pub(crate) fn mpi() -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    let tried = || {
        Tool::tried_on(&mpi_compiler(), OF_MPI)?;
        let reads = TESTS.iter().find(|needed| needed.file == LIBCLANG).filter(|needed| !needed.is_there());
        reads.map_or(Ok(()), |needed| Err(format!("there is no {} ({})", needed.file, needed.package)))
    };
    TRIED.get_or_init(tried).clone()
}

/// The command by which a user installs these packages.
pub(crate) fn advice(lacking: &[Needed]) -> String {
    let names = package_names(lacking).join(" ");
    format!("as root: apt-get install {names} (or what your system calls them)")
}

/// The words before `apt-get` that run it without a password; `None` if there are none.
fn privileged(interrupt: &Interrupt) -> Option<&'static [&'static str]> {
    if !in_path("apt-get") {
        return None;
    }
    if rustix::process::geteuid().is_root() {
        return Some(&[]);
    }
    let may = in_path("sudo")
        && Run::new("sudo", interrupt)
            .args(["-n", "true"])
            .limit(Duration::from_secs(10))
            .quiet()
            .run()
            .is_ok_and(|ended| ended.status.success());
    may.then_some(&["sudo", "-n"])
}

/// Returns whether there is a program of this name.
pub(crate) fn in_path(program: &str) -> bool {
    find(program).is_some()
}

/// Returns the program of this name that a shell would run. A name with slashes is a path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    match program.contains('/') {
        true => Some(PathBuf::from(program)).filter(|path| executable(path)),
        false => folders.find_map(|folder| Some(folder.join(program)).filter(|path| executable(path))),
    }
}

/// Returns whether the compiler finds a library. It prints the name of a missing one unchanged.
fn linkable(library: &str) -> bool {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let path = String::from_utf8_lossy(&output.stdout);
        Path::new(path.trim()).is_absolute() && Path::new(path.trim()).is_file()
    })
}

/// Returns whether a version of LLVM has a library in the folder where Debian puts it.
fn beside_llvm(library: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut llvm = versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"));
    llvm.any(|entry| entry.path().join("lib").join(library).is_file())
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use farjump_tools::fakes::Fakes;

    use super::*;

    #[test]
    fn an_mpi_compiler_that_fails_is_refused_with_its_own_message() {
        let said = "mpicc: cannot open configuration file";
        let fakes = Fakes::new().script("mpicc", &format!("echo '{said}' >&2\nexit 1"));
        let mpicc = fakes.program("mpicc").display().to_string();
        let why = Tool::tried_on(&mpicc, OF_MPI).unwrap_err();
        assert!(why.starts_with(&format!("{mpicc} is there and does")) && why.contains(said), "{why}");
    }

    #[test]
    fn a_missing_transport_package_fails_only_ci_that_tried_to_install_it() {
        let needed =
            vec![Needed::new("gdb", "gdb", "looks"), Needed::new("libucp.so.0", "libucx0", "moves").owed()];
        for (ci, tried, expected) in
            [(true, true, &["libucp.so.0"][..]), (false, true, &[]), (true, false, &[]), (false, false, &[])]
        {
            let lacking = Lacking { needed: needed.clone(), tried };
            let files: Vec<_> = lacking.unexcused(ci).map(|needed| needed.file).collect();
            assert_eq!(files, expected, "{ci} {tried}");
        }
    }
}
