//! A kernel for aarch64 with pages of 64 KiB. Debian has none, so it is built from Debian's sources, with LLVM, and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fetch::debs::{self, Outcome, Store, failed};
use crate::fetch::whole;
use crate::process::{Failed, Interrupt, Run};

/// The package of the sources, of Debian's newer release, and its file.
const SOURCES: &str = "linux-source-6.12";
/// Packages of programs that the kernel's build calls and that few machines have.
const TOOLS: [&str; 4] = ["flex", "bison", "m4", "libsigsegv2"];
/// Folder of LLVM's programs.
const LLVM: &str = "/usr/lib/llvm-14/bin/";
/// Limit for the build. It takes five minutes on two processors.
const BUILDING: Duration = Duration::from_secs(60 * 60);

/// The kernel's options beyond the minimum: the pages, a console, files in memory, and the features that farjump
/// uses.
const CONFIG: &str = "
CONFIG_ARM64_64K_PAGES=y
CONFIG_SMP=y
CONFIG_NR_CPUS=4
CONFIG_HOTPLUG_CPU=y
CONFIG_EXPERT=y
CONFIG_PRINTK=y
CONFIG_BUG=y
CONFIG_TTY=y
CONFIG_UNIX98_PTYS=y
CONFIG_SERIAL_AMBA_PL011=y
CONFIG_SERIAL_AMBA_PL011_CONSOLE=y
CONFIG_BLK_DEV_INITRD=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_DEVTMPFS=y
CONFIG_DEVMEM=y
CONFIG_PROC_FS=y
CONFIG_PROC_SYSCTL=y
CONFIG_PROC_PAGE_MONITOR=y
CONFIG_SYSFS=y
CONFIG_TMPFS=y
CONFIG_SHMEM=y
CONFIG_MEMFD_CREATE=y
CONFIG_HUGETLBFS=y
CONFIG_TRANSPARENT_HUGEPAGE=y
CONFIG_TRANSPARENT_HUGEPAGE_MADVISE=y
CONFIG_MULTIUSER=y
CONFIG_SYSVIPC=y
CONFIG_FUTEX=y
CONFIG_EPOLL=y
CONFIG_SIGNALFD=y
CONFIG_TIMERFD=y
CONFIG_EVENTFD=y
CONFIG_AIO=y
CONFIG_IO_URING=y
CONFIG_ADVISE_SYSCALLS=y
CONFIG_MEMBARRIER=y
CONFIG_RSEQ=y
CONFIG_USERFAULTFD=y
CONFIG_CROSS_MEMORY_ATTACH=y
CONFIG_POSIX_TIMERS=y
CONFIG_HIGH_RES_TIMERS=y
CONFIG_KALLSYMS=y
CONFIG_FILE_LOCKING=y
CONFIG_NET=y
CONFIG_UNIX=y
CONFIG_INET=y
CONFIG_IPV6=y
CONFIG_NETDEVICES=y
CONFIG_SECCOMP=y
CONFIG_SECURITY=y
CONFIG_SECURITYFS=y
CONFIG_SECURITY_NETWORK=y
CONFIG_SECURITY_LANDLOCK=y
CONFIG_LSM=\"landlock\"
CONFIG_NAMESPACES=y
CONFIG_UTS_NS=y
CONFIG_IPC_NS=y
CONFIG_USER_NS=y
CONFIG_NET_NS=y
CONFIG_PID_NS=y
";

/// The kernel's file in `folder`; or the reason why it cannot be built.
///
/// # Errors
/// When interrupted, a folder cannot be written, or the build fails.
pub(super) fn kernel(folder: &Path, interrupt: &Interrupt) -> Result<Outcome<PathBuf>, Failed> {
    let (image, of) = (folder.join("Image-64k"), folder.join("Image-64k.of"));
    let Some(mirror) = debs::mirror() else {
        return Ok(Outcome::Missing("apt has no mirror of Debian's".to_owned()));
    };
    for tool in ["make", "bc", "tar", "xz"] {
        if !crate::fetch::packages::in_path(tool) {
            return Ok(Outcome::Missing(format!("{tool} is not there")));
        }
    }
    if !Path::new(LLVM).join("llvm-objcopy").exists() {
        return Ok(Outcome::Missing(format!("LLVM's programs are not in {LLVM}")));
    }
    let sources = debs::source(&mirror, debs::NEWER_RELEASE);
    let store = Store::viewing(&folder.join("sources"), Some("arm64"), Some(&sources), interrupt)?;
    let packed = match store.unpacked("linux", &[&["download", SOURCES]])? {
        Outcome::Here(unpacked) => unpacked.join("usr/src").join(format!("{SOURCES}.tar.xz")),
        Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
    };
    let made_of = format!("{}{CONFIG}", store.list("linux")?);
    if fs::read_to_string(&of).is_ok_and(|of| of == made_of) {
        return Ok(Outcome::Here(image));
    }
    let own = Store::new(&folder.join("own"), interrupt);
    let tools = match own.unpacked("builders", &[&[&["download"], &TOOLS[..]].concat()])? {
        Outcome::Here(tools) => tools.join("usr"),
        Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
    };
    say!("building a kernel with pages of 64 KiB");
    let (source, build) = (folder.join("linux"), folder.join("build"));
    for old in [&source, &build] {
        whole::remove(old).map_err(|error| failed(old, error))?;
        fs::create_dir_all(old).map_err(|error| failed(old, error))?;
    }
    let config = build.join("wanted");
    fs::write(&config, CONFIG).map_err(|error| failed(&config, error))?;
    let tar = Run::new("tar", interrupt).args(["--strip-components", "1", "-xf"]).args([&packed]);
    super::succeed(tar.args(["-C"]).args([&source]).limit(BUILDING), "the sources cannot be unpacked")?;
    let mut path = tools.join("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let make = || {
        Run::new("make", interrupt)
            .args(["-C".as_ref(), source.as_os_str()])
            .args([format!("O={}", build.display())])
            .args(["ARCH=arm64", &format!("LLVM={LLVM}")])
            .env("PATH", &path)
            .env("M4", tools.join("bin/m4"))
            .env("BISON_PKGDATADIR", tools.join("share/bison"))
            .env("LD_LIBRARY_PATH", tools.join("lib/x86_64-linux-gnu"))
            .limit(BUILDING)
            .quiet()
    };
    let least = make().env("KCONFIG_ALLCONFIG", &config).args(["allnoconfig"]);
    super::succeed(least, "the kernel's settings are refused")?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    super::succeed(make().args([format!("-j{jobs}"), "Image".to_owned()]), "the kernel does not build")?;
    let built = build.join("arch/arm64/boot/Image");
    fs::copy(&built, &image).map_err(|error| failed(&built, error))?;
    for done in [&source, &build] {
        fs::remove_dir_all(done).map_err(|error| failed(done, error))?;
    }
    // Last, so that it exists only if all else does.
    fs::write(&of, made_of).map_err(|error| failed(&of, error))?;
    Ok(Outcome::Here(image))
}
