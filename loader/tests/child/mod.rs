//! Support for tests that end or permanently change their process: each runs in its own process.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "LOADER_TEST_IN_CHILD";
const LIMIT: Duration = Duration::from_secs(60);

/// Returns whether this process was started by [`run`] for the test `name`.
pub(crate) fn is_child(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

/// Runs the test `name` of this binary in its own process, where [`is_child`] is true for it. Kills a process that
/// takes longer than a minute, and fails the test.
pub(crate) fn run(name: &str, directory: &Path) -> (ExitStatus, String) {
    let child = farjump_fixtures::helper_process::again()
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, name)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watched = Watched(child);
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match watched.0.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => panic!("the child of {name} does not end"),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = std::io::read_to_string(watched.0.stderr.take().unwrap()).unwrap();
    (status, text)
}

struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `body` in a forked child and returns its exit code: the result of `body`, or 128 and the signal that
/// ended it. An alarm ends a child after a minute. `body` must not use anything that other threads may have
/// locked at the fork; allocating is fine, printing is not.
pub(crate) fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body`, which follows the rule above, and ends by `_exit`.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(LIMIT.as_secs() as u32);
                libc::_exit(body())
            }
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                if libc::WIFSIGNALED(status) {
                    128 + libc::WTERMSIG(status)
                } else {
                    libc::WEXITSTATUS(status)
                }
            }
        }
    }
}

/// Runs the test `name` in its own process, and returns whether this is that process.
pub(crate) fn is_alone(name: &str) -> bool {
    if !is_child(name) {
        let (status, text) = run(name, Path::new("."));
        assert!(status.success(), "{text}");
        return false;
    }
    true
}
