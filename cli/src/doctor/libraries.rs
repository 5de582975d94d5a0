//! Libraries of backends, searched for without opening them: a library runs code of its own when it is
//! opened.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::finding::{Finding, Verdict};
use super::run_bounded;

/// Time limit for listing the known libraries.
const LIMIT: Duration = Duration::from_secs(5);
/// This machine's libraries, to the dynamic linker.
const HERE: Libraries = if cfg!(target_arch = "aarch64") {
    Libraries { debian: ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"], kind: "AArch64" }
} else if cfg!(target_arch = "riscv64") {
    Libraries { debian: ["/lib/riscv64-linux-gnu", "/usr/lib/riscv64-linux-gnu"], kind: "double-float" }
} else {
    Libraries { debian: ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"], kind: "x86-64" }
};
/// The last folders of the dynamic linker's search (ld.so(8)), after Debian's.
const LAST: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// The library of UCX, and the variable that names another one.
const UCX: &str = "libucp.so.0";
const NAMED: &str = "FARJUMP_UCX";

/// The dynamic linker's names for the libraries of a machine.
struct Libraries {
    /// Debian's folders for them.
    debian: [&'static str; 2],
    /// The word for them in the list of `ldconfig -p` (glibc, `elf/cache.c`).
    kind: &'static str,
}

struct Wanted {
    name: &'static str,
    soname: &'static str,
    serves: &'static str,
    mend: &'static str,
}

const WANTED: [Wanted; 2] = [
    Wanted {
        name: "libucp",
        soname: UCX,
        serves: "the transports ucx-put and ucx-am (not over TCP unless --ucx-tcp says so: a process that reaches a port of UCX's may \
                 write the memory of the one that has it)",
        mend: "sudo apt-get install libucx0",
    },
    Wanted {
        name: "libibverbs",
        soname: "libibverbs.so.1",
        serves: "the transports verbs-write and verbs-send",
        mend: "sudo apt-get install libibverbs1 ibverbs-providers",
    },
];

pub(super) fn look() -> Vec<Finding> {
    let folders: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH")
        .map(|paths| env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect())
        .unwrap_or_default();
    let known = known();
    WANTED
        .iter()
        .map(|wanted| match wanted.soname {
            UCX if cfg!(feature = "ucx") => {
                judge_ucx(wanted, find(wanted.soname, &folders, &known), opened())
            }
            soname => judge(wanted, find(soname, &folders, &known)),
        })
        .collect()
}

/// Returns version and file of the UCX that farjump opens, or the reason for none. Another process opens it, since UCX
/// stays in the process that opened it. `None` where that process does not reply.
fn opened() -> Option<Result<(String, String), String>> {
    let mut command = Command::new(env::current_exe().ok()?);
    command.args(["transports", "--json", "--transport", "ucx-am"]);
    // Log output would mix with the lines.
    command.env("FARJUMP_LOG", "off").env("UCX_LOG_LEVEL", "fatal");
    let (status, text) = run_bounded::run(command, LIMIT).ok()?;
    // A warning about the environment may come first.
    let list = &text[text.find('[')?..];
    let said: Value = serde_json::from_str(list).ok().filter(|_| status.success())?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (ucx, why) = (&said[0]["ucx"], &said[0]["why"]);
    match (text(&ucx["version"]), text(&ucx["file"]), text(why)) {
        (Some(version), Some(file), _) => Some(Ok((version, file))),
        (_, _, Some(why)) => Some(Err(why)),
        _ => None,
    }
}

/// Judges UCX: `found` is the file that the dynamic linker would take, `opened` the outcome of opening it.
fn judge_ucx(
    wanted: &Wanted,
    found: Option<PathBuf>,
    opened: Option<Result<(String, String), String>>,
) -> Finding {
    let named = env::var_os(NAMED).is_some_and(|named| !named.is_empty());
    match opened {
        Some(Ok((version, file))) => {
            let means = format!("for {}{}", wanted.serves, remark(&version));
            let verdict = if remark(&version).is_empty() { Verdict::Ok } else { Verdict::Note };
            Finding::new(wanted.name, verdict, format!("UCX {version}, {file}"), means)
                .figure("version", version)
                .figure("file", file)
        }
        Some(Err(why)) if named || found.is_some() => Finding::new(
            wanted.name,
            Verdict::Note,
            format!("cannot be used: {why}"),
            format!("needed for {}", wanted.serves),
        ),
        _ => judge(wanted, found),
    }
}

/// Returns a remark for users of this version of UCX.
fn remark(version: &str) -> String {
    match version {
        "1.20.0" | "1.20.1" => {
            format!(
                "; UCX {version} cannot use TCP on lo, by a defect of its own: with --ucx-tcp on one machine take another UCX"
            )
        }
        _ => String::new(),
    }
}

/// Returns the dynamic linker's own list, by the system's program: another one of that name may be in `PATH`.
fn known() -> String {
    let mut command = Command::new("/sbin/ldconfig");
    command.arg("-p");
    let list = run_bounded::run(command, LIMIT);
    list.ok().filter(|(status, _)| status.success()).map_or(String::new(), |(_, text)| text)
}

/// Finds a library as the dynamic linker does: in folders given first, in its list, in its last folders.
fn find(soname: &str, folders: &[PathBuf], known: &str) -> Option<PathBuf> {
    let in_folder = |folder: &Path| Some(folder.join(soname)).filter(|path| path.is_file());
    let first = folders.iter().find_map(|folder| in_folder(folder));
    let listed = || listed(soname, known, HERE.kind).filter(|path| path.is_file());
    let mut last = HERE.debian.iter().chain(&LAST);
    first.or_else(listed).or_else(|| last.find_map(|folder| in_folder(Path::new(folder))))
}

/// Reads a line of `ldconfig -p`: `libucp.so.0 (libc6,x86-64) => /usr/lib/libucp.so.0`. `kind` is the word
/// for the machine's libraries.
fn listed(soname: &str, known: &str, kind: &str) -> Option<PathBuf> {
    known.lines().find_map(|line| {
        let (name, rest) = line.trim().split_once(" (")?;
        let (kinds, path) = rest.split_once(") => ")?;
        let fits = name == soname && kinds.split(',').any(|part| part.trim() == kind);
        fits.then(|| PathBuf::from(path.trim()))
    })
}

fn judge(wanted: &Wanted, found: Option<PathBuf>) -> Finding {
    match found {
        Some(path) => {
            let means = format!("for {}", wanted.serves);
            Finding::new(wanted.name, Verdict::Ok, path.display().to_string(), means)
        }
        None => {
            let means = format!("needed for {}", wanted.serves);
            Finding::new(wanted.name, Verdict::Note, format!("no {}", wanted.soname), means).mend(wanted.mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LIST: &str = "\
6 libs found in cache `/etc/ld.so.cache'
\tlibucp.so.0 (libc6) => /lib32/libucp.so.0
\tlibucp.so.0 (libc6,x86-64, OS ABI: Linux 3.2.0) => /usr/lib/libucp.so.0
\tlibucp.so.0 (libc6,AArch64) => /arm/libucp.so.0
\tlibucp.so.0 (libc6,soft-float) => /soft/libucp.so.0
\tlibucp.so.0 (libc6,double-float) => /riscv/libucp.so.0
\tbroken line
\tlibx.so (libc6,x86-64)";

    #[test]
    fn the_list_is_read_for_this_machine_and_broken_lines_name_nothing() {
        for (kind, path) in [("x86-64", "/usr"), ("AArch64", "/arm"), ("double-float", "/riscv")] {
            let found = listed("libucp.so.0", LIST, kind).expect(kind);
            assert!(found.starts_with(path), "{kind}: {found:?}");
        }
        for absent in ["libucp.so", "libx.so", "broken", ""] {
            assert_eq!(listed(absent, LIST, "x86-64"), None, "{absent}");
        }
    }

    #[test]
    fn folders_come_before_the_list_and_a_stale_entry_is_no_library() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let list = format!("libfj.so.1 (libc6,{}) => {}", HERE.kind, second.display());
        assert_eq!(find("libfj.so.1", &[], &list), None);
        fs::write(&second, "").expect("a file can be written");
        assert_eq!(find("libfj.so.1", std::slice::from_ref(&first), &list), Some(second));
        fs::create_dir(&first).expect("a folder can be made");
        fs::write(first.join("libfj.so.1"), "").expect("a file can be written");
        assert_eq!(find("libfj.so.1", std::slice::from_ref(&first), &list), Some(first.join("libfj.so.1")));
    }

    #[test]
    fn a_missing_library_names_its_package() {
        let [ucp, verbs] = WANTED.each_ref().map(|wanted| judge(wanted, None));
        assert!(ucp.mend.is_some_and(|mend| mend.contains("libucx0")));
        assert!(verbs.mend.is_some_and(|mend| mend.contains("libibverbs1")));
        assert_eq!(judge(&WANTED[0], Some("/x/libucp.so.0".into())).verdict, Verdict::Ok);
    }

    #[test]
    fn ucx_is_shown_with_version_file_and_known_defects() {
        let of = |opened| judge_ucx(&WANTED[0], Some("/x/libucp.so.0".into()), opened);
        let with = |version: &str| of(Some(Ok((version.to_owned(), "/y/libucp.so.0".to_owned()))));
        let finding = with("1.22.0");
        assert_eq!((finding.verdict, &*finding.found), (Verdict::Ok, "UCX 1.22.0, /y/libucp.so.0"));
        assert_eq!(finding.figures["version"], "1.22.0");
        for version in ["1.20.0", "1.20.1"] {
            let finding = with(version);
            assert_eq!(finding.verdict, Verdict::Note);
            assert!(finding.means.contains("cannot use TCP on lo"), "{}", finding.means);
        }
        let finding = of(Some(Err("it is UCX 1.12".to_owned())));
        assert!(finding.verdict == Verdict::Note && finding.found.contains("1.12"), "{finding:?}");
        assert_eq!(of(None).found, "/x/libucp.so.0");
    }
}
