//! Files that processes map or have open, from /proc.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use farjump_cli::program::procfs::field;
use rustix::fs::{Stat, major, minor, stat};

/// Number of looks at /proc. If the last look still finds new processes, they start faster than they can be looked at.
const ROUNDS: usize = 16;

/// The identity of a file: major and minor number of its device, and inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileId(u32, u32, u64);

impl FileId {
    pub(super) fn of(stat: &Stat) -> FileId {
        FileId(major(stat.st_dev), minor(stat.st_dev), stat.st_ino)
    }

    /// Returns the file of a line of /proc/PID/maps (proc_pid_maps(5)).
    fn mapped(line: &[u8]) -> Option<FileId> {
        let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let (device, inode) = (fields.nth(3)?, fields.next()?);
        let (device, inode) = (str::from_utf8(device).ok()?, str::from_utf8(inode).ok()?);
        let (major, minor) = device.split_once(':')?;
        let hex = |digits| u32::from_str_radix(digits, 16).ok();
        Some(FileId(hex(major)?, hex(minor)?, inode.parse().ok()?))
    }
}

/// The files among some that processes hold.
#[derive(Default, Debug)]
pub(super) struct Held {
    /// The files that a process maps, or has open.
    pub(super) files: HashSet<FileId>,
    /// Processes that could not be read, as `NAME (PID)`.
    pub(super) unread: Vec<String>,
    /// Whether processes kept starting until the end.
    pub(super) unsettled: bool,
}

/// Looks for `files`, whose names all contain `name`, in each process under `proc` whose user counts.
///
/// Descriptors are read before mappings: a file that is being opened and mapped meanwhile is in one of them.
/// A child that a process forks meanwhile is found when /proc is listed again.
pub(super) fn look(proc: &Path, files: &HashSet<FileId>, name: &str, counts: impl Fn(u32) -> bool) -> Held {
    let mut held = Held::default();
    let mut known = HashSet::new();
    for _ in 0..ROUNDS {
        let mut new = 0;
        for (pid, folder) in processes(proc) {
            // Its start distinguishes it from another process of the same number.
            if !known.insert((pid, start(&folder))) {
                continue;
            }
            new += 1;
            let of_user = match users(&folder) {
                Ok(users) => users.into_iter().any(&counts),
                Err(error) if is_gone(&error) => false,
                Err(_) => true,
            };
            if of_user
                && let Err(error) = look_into(&folder, files, name, &mut held.files)
                && !is_gone(&error)
                && !is_zombie(&folder)
            {
                let command = fs::read_to_string(folder.join("comm")).unwrap_or_default();
                held.unread.push(format!("{} ({pid})", command.trim_end()));
            }
        }
        if new == 0 {
            return held;
        }
    }
    held.unsettled = true;
    held
}

/// Returns the current processes, with their folders.
fn processes(proc: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect()
}

/// Returns the time at which a process started, in the kernel's ticks.
fn start(folder: &Path) -> Option<u64> {
    stat_field(folder, 22)?.parse().ok()
}

/// Returns whether a process has ended and only waits for its parent. Such a process holds nothing.
fn is_zombie(folder: &Path) -> bool {
    stat_field(folder, 3).is_some_and(|state| state == "Z" || state == "X")
}

/// Returns a field of /proc/PID/stat behind the name, by its number in proc_pid_stat(5).
fn stat_field(folder: &Path, number: usize) -> Option<String> {
    let stat = fs::read(folder.join("stat")).ok()?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(str::from_utf8(&stat[name_end..]).ok()?.split(' ').nth(number - 2)?.trim_end().to_owned())
}

/// Returns the user ids of a process: real, effective, saved, and of file systems.
fn users(folder: &Path) -> io::Result<Vec<u32>> {
    let status = fs::read(folder.join("status"))?;
    let status = String::from_utf8_lossy(&status);
    let users = field(&status, "Uid").unwrap_or_default().split_whitespace();
    Ok(users.filter_map(|user| user.parse().ok()).collect())
}

fn look_into(
    folder: &Path,
    files: &HashSet<FileId>,
    name: &str,
    held: &mut HashSet<FileId>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder.join("fd"))? {
        let descriptor = entry?.path();
        // Looks only at files that may be among them: a query to another file's server may block for ever.
        let target = fs::read_link(&descriptor).unwrap_or_default();
        if target.to_string_lossy().contains(name)
            && let Ok(stat) = stat(&descriptor)
        {
            held.extend(files.get(&FileId::of(&stat)));
        }
    }
    let maps = fs::read(folder.join("maps"))?;
    let mapped = maps.split(|&byte| byte == b'\n').filter_map(FileId::mapped);
    held.extend(mapped.filter(|file| files.contains(file)));
    Ok(())
}

/// Returns whether an error says that the process has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_lines_of_maps_and_nothing_else_is() {
        let line = b"7f00-7f01 rw-s 00000000 00:1a 249610                     /dev/shm/a b";
        assert_eq!(FileId::mapped(line), Some(FileId(0, 0x1a, 249_610)));
        assert_eq!(FileId::mapped(b"7f00-7f01 rw-p 00000000 00:00 0"), Some(FileId(0, 0, 0)));
        for wrong in [&b""[..], b"7f00-7f01", b"a b c d e", b"a b c 1:x 3", b"a b c 1:2 \xff"] {
            assert_eq!(FileId::mapped(wrong), None);
        }
    }

    #[test]
    fn an_unreadable_process_is_named_and_an_ended_one_is_not() {
        let proc = tempfile::tempdir().expect("a folder can be made");
        let make = |pid: &str, file: &str, text: &str| {
            let folder = proc.path().join(pid);
            fs::create_dir_all(&folder).expect("a folder can be made");
            fs::write(folder.join(file), text).expect("a file can be written");
        };
        // Not a folder: reading it fails otherwise than for a process that has ended.
        for (pid, user) in [("12", 5), ("13", 6)] {
            make(pid, "status", &format!("Name:\tx\nUid:\t{user}\t5{user}\t{user}\t{user}\n"));
            make(pid, "comm", "ssh-agent\n");
            make(pid, "fd", "");
        }
        // It ends between the two looks.
        make("14", "status", "Uid:\t5\t5\t5\t5\n");
        fs::create_dir(proc.path().join("self")).expect("a folder can be made");
        let held = look(proc.path(), &HashSet::new(), "ucx", |user| user == 5);
        assert_eq!((held.unread, held.unsettled), (vec!["ssh-agent (12)".to_owned()], false));
        let held = look(proc.path(), &HashSet::new(), "ucx", |user| user == 56);
        assert_eq!(held.unread, ["ssh-agent (13)"]);
    }
}
