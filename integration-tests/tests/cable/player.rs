//! Helper processes behind the cable: this program again, controlled line by line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::Duration;

use farjump_namespaces::{DEVICE, Namespaces, Side};
use rustix::process::{Pid, Signal, kill_process};

use crate::roles::{MARK, ROLE};

/// A helper process in one of the namespaces. It is killed when the value is dropped, and ends by itself
/// after a while.
pub(crate) struct Player {
    child: Child,
    orders: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Player {
    /// Starts one that runs the test `test` and takes the role there.
    pub(crate) fn start(namespaces: &Namespaces, side: Side, test: &str, role: &[&str]) -> Player {
        let mut command = namespaces.command(side, std::env::current_exe().unwrap());
        command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role.join("\n"))
            // UCX would use shared memory across them, and it takes all of a machine's networks for one.
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", DEVICE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, said) = (child.stdin.take(), child.stdout.take().unwrap());
        Player { child, orders, said: BufReader::new(said) }
    }

    /// Waits for a message that begins with `words`, and returns the rest. Its own watchdog ends it
    /// otherwise.
    pub(crate) fn hear(&mut self, words: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it ended and did not say {words:?}");
            // The rest is the output of the test harness.
            if let Some(rest) =
                line.split_once(MARK).and_then(|(_, said)| said.trim_end().strip_prefix(words))
            {
                return rest.to_owned();
            }
        }
    }

    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let status = format!("/proc/{}/status", self.child.id());
        while !fs::read_to_string(&status).unwrap().contains("State:\tT") {
            sleep(Duration::from_millis(1));
        }
    }

    /// Continues it.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the orders, and waits for a successful end.
    pub(crate) fn end(mut self) {
        self.orders = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
