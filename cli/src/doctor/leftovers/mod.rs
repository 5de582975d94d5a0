//! UCX's leftovers: the files of shared memory that processes over UCX leave in /dev/shm when they are killed.
//!
//! UCX makes such a file for each segment of memory, and removes it at the end of the process. Nothing removes those of
//! a killed process. `docs/guide/operations.md` states the proof that `doctor --clean` requires before it does.

mod processes;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, process, thread};

use farjump_os::limits;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstatfs, open, statat, unlinkat};
use serde_json::json;

use self::processes::{FileId, Held};
use super::finding::{Finding, Verdict};
use super::memory::show_rough;
use crate::report;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::procfs::read;
use farjump_os::TMPFS;

const NAME: &str = "UCX's leftovers";
const FOLDER: &str = "/dev/shm";
/// UCX names a segment by this and a random number of 64 bits in hexadecimal digits.
const PREFIX: &str = "ucx_shm_posix_";
const MOST_DIGITS: usize = 16;
/// Inode of the first pid namespace (`PROC_PID_INIT_INO` of linux/proc_ns.h).
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;
/// Files that changed less than this ago stay: their process may not have mapped them yet.
const YOUNG: Duration = Duration::from_secs(2);
/// Time limit of looking at processes. A process that hangs in the kernel may hold the list of its mappings.
const PATIENCE: Duration = Duration::from_secs(20);
/// Names that a sentence lists.
const LISTED: usize = 3;

/// A file that no process holds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Leftover {
    name: String,
    id: FileId,
    bytes: u64,
    /// Time of its last change, since 1970.
    changed: Duration,
}

/// The leftovers in a folder.
#[derive(Debug)]
struct Found {
    folder: PathBuf,
    leftovers: Vec<Leftover>,
    /// The reasons why processes that were not seen may hold some of them.
    doubts: Vec<String>,
}

impl Found {
    fn bytes(&self) -> u64 {
        self.leftovers.iter().map(|leftover| leftover.bytes).sum()
    }

    fn paths(&self) -> Vec<String> {
        let path = |leftover: &Leftover| self.folder.join(&leftover.name).display().to_string();
        self.leftovers.iter().map(path).collect()
    }
}

/// Looks for leftovers of this user, of all users if that is root.
pub(super) fn look() -> Finding {
    match find(Path::new(FOLDER)) {
        Ok(found) => judge(&found),
        Err(error) => {
            let found = format!("cannot look into {FOLDER}: {error}");
            Finding::new(NAME, Verdict::Note, found, "files of killed processes would stay unseen")
        }
    }
}

fn judge(found: &Found) -> Finding {
    let (count, bytes) = (found.leftovers.len(), found.bytes());
    let finding = if count == 0 {
        Finding::new(NAME, Verdict::Ok, format!("none in {FOLDER}"), "killed processes left no files of UCX")
    } else {
        let names: Vec<_> = found.leftovers.iter().map(|leftover| leftover.name.as_str()).collect();
        let what = format!("{}, {}: {}", files(count), show_rough(bytes), some_of(&names));
        let means =
            "processes that were killed left them, no process maps them, and nothing else removes them";
        let finding = Finding::new(NAME, Verdict::Note, what, means);
        match found.doubts.is_empty() {
            true => finding.mend("farjump doctor --clean"),
            false => {
                finding.mend("sudo farjump doctor --clean   # on the machine itself, not in a container")
            }
        }
    };
    finding.figure("files", count).figure("bytes", bytes).figure("paths", found.paths())
}

/// Removes the leftovers, if it is proved that no process holds them, and reports them.
///
/// # Errors
/// The reason why it is not proved, with nothing removed; a file that cannot be removed.
pub(super) fn clean(as_json: bool) -> Result<(), Failure> {
    let unreadable = |error| Failure::new(format!("cannot look into {FOLDER}: {error}"));
    let found = find(Path::new(FOLDER)).map_err(unreadable)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let removed = remove(&found, now)?;
    let young = found.leftovers.len() - removed.leftovers.len();
    let for_programs = || json!({ "removed": removed.paths(), "bytes": removed.bytes(), "kept": young });
    let for_people = || {
        let mut text: String = removed.paths().iter().map(|path| format!("removed {path}\n")).collect();
        text.push_str(&match removed.leftovers.len() {
            0 => format!("{FOLDER} has nothing to remove\n"),
            count => format!("{}, {}\n", files(count), show_rough(removed.bytes())),
        });
        if young != 0 {
            text.push_str(&format!("{} changed just now: kept, try again\n", files(young)));
        }
        text
    };
    report::print(as_json, for_programs, for_people)
}

/// Finds the leftovers in `folder`.
fn find(folder: &Path) -> io::Result<Found> {
    let user = rustix::process::geteuid().as_raw();
    let counts = move |other: u32| user == 0 || other == user;
    // Lists the files before it looks at processes, and so leaves out files that are made later.
    let mut leftovers = candidates(folder, counts)?;
    if leftovers.is_empty() {
        return Ok(Found { folder: folder.to_owned(), leftovers, doubts: Vec::new() });
    }
    let mut doubts = unseen(Path::new("/proc"));
    let files: HashSet<_> = leftovers.iter().map(|leftover| leftover.id).collect();
    let (sender, looked) = mpsc::channel();
    // If this thread hangs, it ends with this process.
    let looking = thread::Builder::new().spawn(move || {
        let _ = sender.send(processes::look(Path::new("/proc"), &files, PREFIX, counts));
    });
    if let Err(error) = looking {
        leftovers.clear();
        doubts.push(format!("no thread looks at the processes: {error}{}", limits::behind_thread(&error)));
        return Ok(Found { folder: folder.to_owned(), leftovers, doubts });
    }
    match looked.recv_timeout(PATIENCE) {
        Ok(held) => {
            leftovers.retain(|leftover| !held.files.contains(&leftover.id));
            doubts.extend(unproved(&held));
        }
        Err(_) => {
            leftovers.clear();
            doubts.push(format!("looking at the processes took more than {} s", PATIENCE.as_secs()));
        }
    }
    Ok(Found { folder: folder.to_owned(), leftovers, doubts })
}

/// Returns the files in `folder` that UCX made for a user who counts.
fn candidates(folder: &Path, counts: impl Fn(u32) -> bool) -> io::Result<Vec<Leftover>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let directory = open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| is_ucx_name(name)) else { continue };
        // A file that is gone again or unreadable is none to remove.
        let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if is_ucx_file(&stat) && counts(stat.st_uid) {
            found.push(Leftover {
                name: name.to_owned(),
                id: FileId::of(&stat),
                bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
                changed: Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0)),
            });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn is_ucx_name(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX)
        .is_some_and(|digits| (1..=MOST_DIGITS).contains(&digits.len()) && digits.bytes().all(is_digit))
}

/// Returns whether a file is as UCX makes them: ordinary, with one name, and for its user alone.
fn is_ucx_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o177 == 0
        && stat.st_nlink == 1
}

/// Returns the reasons why /proc may not show every process of this machine.
fn unseen(proc: &Path) -> Vec<String> {
    let mut doubts = Vec::new();
    let namespace = fs::metadata(proc.join("self/ns/pid")).map(|found| found.ino()).ok();
    if namespace != Some(FIRST_PID_NAMESPACE) {
        doubts.push(
            "this process is in a container (not in the first pid namespace), and processes outside are not seen: \
             run it on the machine itself"
                .to_owned(),
        );
    }
    if fs::read_link(proc.join("self")).ok() != Some(PathBuf::from(process::id().to_string())) {
        doubts.push("/proc shows the processes of another pid namespace: mount this one's".to_owned());
    }
    if read(proc.join("self/mounts")).is_none_or(|mounts| hides(&mounts)) {
        doubts.push("/proc hides processes (hidepid): mount -o remount,hidepid=0 /proc".to_owned());
    }
    doubts
}

/// Returns whether /proc is mounted so that it hides processes, by /proc/self/mounts.
fn hides(mounts: &str) -> bool {
    let of_proc = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(1)? == "/proc").then(|| fields.nth(1)).flatten()
    });
    let mut options = of_proc.flat_map(|options| options.split(','));
    options.any(|option| option.strip_prefix("hidepid=").is_some_and(|how| !["0", "off"].contains(&how)))
}

/// Returns the reasons why processes in /proc may hold more files than `held` says.
fn unproved(held: &Held) -> Vec<String> {
    let mut doubts = Vec::new();
    if !held.unread.is_empty() {
        let unread: Vec<_> = held.unread.iter().map(String::as_str).collect();
        let who = some_of(&unread);
        doubts.push(format!("the mappings of {who} cannot be read: run it as root"));
    }
    if held.unsettled {
        doubts.push("processes start all the time: try again".to_owned());
    }
    doubts
}

/// Removes the files found, except those that changed less than [`YOUNG`] before `now`. Returns the removed ones.
fn remove(found: &Found, now: Duration) -> Result<Found, Failure> {
    if let Some(doubt) = found.doubts.first() {
        return Err(Failure::new(format!("nothing was removed, because a process might use it: {doubt}")));
    }
    let failed = |what: &str, error: rustix::io::Errno| {
        Failure::new(format!("cannot remove {}: {error}", found.folder.join(what).display()))
    };
    let mut removed = Found { folder: found.folder.clone(), leftovers: Vec::new(), doubts: Vec::new() };
    if found.leftovers.is_empty() {
        return Ok(removed);
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(&found.folder, flags, Mode::empty()).map_err(|error| failed("", error))?;
    let kind = fstatfs(&folder).map_err(|error| failed("", error))?;
    if kind.f_type != TMPFS {
        // Other file systems may show another device in maps than the file has.
        let folder = found.folder.display();
        return Err(Failure::new(format!(
            "nothing was removed: {folder} is no tmpfs, so what is mapped cannot be seen"
        )));
    }
    for leftover in &found.leftovers {
        if now.saturating_sub(leftover.changed) < YOUNG {
            continue;
        }
        // Removes only the same file, not another of this name.
        match statat(&folder, &*leftover.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileId::of(&stat) == leftover.id && is_ucx_file(&stat) => {}
            _ => continue,
        }
        match unlinkat(&folder, &*leftover.name, AtFlags::empty()) {
            Ok(()) => removed.leftovers.push(leftover.clone()),
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(failed(&leftover.name, error)),
        }
    }
    Ok(removed)
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Lists the first of these, and says how many more there are.
fn some_of(names: &[&str]) -> String {
    let listed = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const LATER: Duration = Duration::from_secs(100);

    /// Returns a folder in /dev/shm, if that is one here.
    fn folder() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir_in(FOLDER);
        if let Err(error) = &folder {
            println!("skipped: no folder can be made in {FOLDER}: {error}");
        }
        folder.ok()
    }

    fn make(folder: &Path, name: &str) -> fs::File {
        let path = folder.join(name);
        fs::write(&path, [1; 5000]).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
        fs::File::open(path).expect("it is there")
    }

    fn names(found: &Found) -> Vec<&str> {
        found.leftovers.iter().map(|leftover| leftover.name.as_str()).collect()
    }

    #[test]
    fn only_names_that_ucx_gives_are_looked_at() {
        for name in ["ucx_shm_posix_0", "ucx_shm_posix_1a2b", "ucx_shm_posix_ffffffffffffffff"] {
            assert!(is_ucx_name(name), "{name}");
        }
        let wrong = ["", "1a", "ucx_shm_posix_", "ucx_shm_posix_1G", "ucx_shm_posix_1A", "aucx_shm_posix_1"];
        for name in wrong.into_iter().chain(["ucx_shm_posix_1.bak", "ucx_shm_posix_0ffffffffffffffff"]) {
            assert!(!is_ucx_name(name), "{name}");
        }
    }

    #[test]
    fn only_unused_files_of_ucx_are_found_and_removed() {
        let Some(folder) = folder() else { return };
        let path = folder.path();
        let mapped = make(path, "ucx_shm_posix_1");
        // SAFETY: nothing changes the file.
        let _mapping = unsafe { memmap2::Mmap::map(&mapped) }.expect("it can be mapped");
        drop(mapped);
        let _open = make(path, "ucx_shm_posix_2");
        for name in ["ucx_shm_posix_3", "ucx_shm_posix_4", "ucx_shm_posix_5", "ucx_shm_posix_x", "other"] {
            drop(make(path, name));
        }
        // Readable by others too: UCX makes no such file.
        fs::set_permissions(path.join("ucx_shm_posix_5"), fs::Permissions::from_mode(0o644))
            .expect("it is ours");
        fs::create_dir(path.join("ucx_shm_posix_6")).expect("a folder can be made");
        symlink(path.join("other"), path.join("ucx_shm_posix_7")).expect("a link can be made");
        drop(make(path, "ucx_shm_posix_8"));
        fs::hard_link(path.join("ucx_shm_posix_8"), path.join("linked")).expect("a link can be made");

        let mut found = find(path).expect("it can be read");
        assert_eq!(names(&found), ["ucx_shm_posix_3", "ucx_shm_posix_4"]);
        assert_eq!(found.bytes(), 2 * 8192);
        let finding = judge(&found);
        assert_eq!((finding.verdict, &finding.figures["files"]), (Verdict::Note, &2.into()));
        assert!(finding.found.starts_with("2 files, 16 KiB: ucx_shm_posix_3, "), "{}", finding.found);

        // Whatever this machine's /proc shows.
        found.doubts = vec!["the mappings of x (7) cannot be read: run it as root".to_owned()];
        let why = remove(&found, LATER).unwrap_err().to_string();
        assert!(why.starts_with("nothing was removed") && why.contains("x (7)"), "{why}");
        assert!(judge(&found).mend.is_some_and(|mend| mend.starts_with("sudo ")));
        found.doubts.clear();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        assert_eq!(names(&remove(&found, found.leftovers[0].changed).expect("none is old")), [""; 0]);
        // Another file has the name of one of them by now.
        fs::rename(path.join("ucx_shm_posix_x"), path.join("ucx_shm_posix_4")).expect("it can be renamed");
        assert_eq!(names(&remove(&found, now + LATER).expect("it is proved")), ["ucx_shm_posix_3"]);
        let mut left: Vec<_> = fs::read_dir(path).expect("it is there").flatten().collect();
        left.sort_by_key(fs::DirEntry::file_name);
        let left: Vec<_> = left.iter().map(|entry| entry.file_name().into_string().expect("text")).collect();
        let digits = |name: &&str| name.strip_prefix(PREFIX).map(str::to_owned);
        let ours: Vec<_> = left.iter().filter_map(|name| digits(&name.as_str())).collect();
        assert_eq!((ours.concat(), left.len()), ("1245678".to_owned(), 9));
    }

    #[test]
    fn a_folder_that_is_not_there_has_none() {
        let found = find(Path::new("/no/such/folder")).expect("it is no error");
        let finding = judge(&found);
        assert_eq!((finding.verdict, &finding.figures["bytes"]), (Verdict::Ok, &0.into()));
    }

    #[test]
    fn processes_that_may_be_unseen_are_a_doubt() {
        let mounts =
            |options: &str| format!("tmpfs /dev/shm tmpfs hidepid=2 0 0\nproc /proc proc rw,{options} 0 0");
        for (options, hidden) in [("relatime", false), ("hidepid=0", false), ("hidepid=off", false)]
            .into_iter()
            .chain([("hidepid=1", true), ("gid=4,hidepid=invisible", true), ("hidepid=ptraceable", true)])
        {
            assert_eq!(hides(&mounts(options)), hidden, "{options}");
        }
        let folder = tempfile::tempdir().expect("a folder can be made");
        assert_eq!(unseen(folder.path()).len(), 3, "nothing there shows that all processes are seen");
        let held = Held {
            unread: ["a (1)", "b (2)", "c (3)", "d (4)"].map(str::to_owned).into(),
            ..Held::default()
        };
        assert!(unproved(&held)[0].contains("a (1), b (2), c (3) and 1 more"));
        assert_eq!(unproved(&Held { unsettled: true, ..Held::default() }).len(), 1);
        assert_eq!(unproved(&Held::default()), [""; 0]);
    }
}
