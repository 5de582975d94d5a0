//! A pseudo-terminal, for what a program shows to people alone.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal of this test's own, and the thread that reads from it.
pub(crate) struct Terminal {
    /// The programs' end.
    end: File,
    reader: JoinHandle<()>,
    /// The bytes read so far.
    read: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn new() -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let mut screen = File::from(openpt(flags).expect("a terminal can be made"));
        grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("it is this process's own");
        let name = ptsname(&screen, Vec::new()).expect("it has a name");
        let mut options = OpenOptions::new();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let end = options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed()).open(path);
        let read = Arc::new(Mutex::new(Vec::new()));
        let so_far = read.clone();
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is its end: the last program has closed it.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                so_far.lock().expect("nobody panics with it").extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { end: end.expect("it can be opened"), reader, read }
    }

    /// Returns the programs' end once more.
    pub(crate) fn end(&self) -> File {
        self.end.try_clone().expect("descriptors can be duplicated")
    }

    /// Returns what was written to it so far.
    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.read.lock().expect("nobody panics with it")).into_owned()
    }

    /// Returns whether these words were written to it.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.so_far().contains(words)
    }

    /// Returns all that was written to it. The programs have ended, and `command` ends here with its ends of the
    /// terminal.
    pub(crate) fn shown(self, command: Command) -> String {
        drop((command, self.end));
        self.reader.join().expect("it reads");
        String::from_utf8_lossy(&self.read.lock().expect("nobody panics with it")).into_owned()
    }
}
