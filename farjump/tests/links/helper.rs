//! Helper processes that play a target or a source: this binary again, driven by commands, one a line.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use farjump::{Data, Link, Mode, Target, WaitPolicy};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::support::{PATIENCE, library, words};

const ROLE: &str = "BEHAVIOUR_ROLE";

/// The name of the enclosing test, as its binary knows it.
macro_rules! this_test {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        name.strip_suffix("::here").and_then(|name| name.split_once("::")).expect("inside a test").1
    }};
}
pub(crate) use this_test;

/// A helper process. It is killed at the end of the test, and ends by itself if this process ends.
pub(crate) struct Actor {
    child: Child,
    orders: ChildStdin,
    said: mpsc::Receiver<String>,
}

impl Actor {
    /// Starts a process that runs the test `test` of this binary, in which [`role`] is the role.
    pub(crate) fn start(
        test: &str,
        role: &str,
        args: &[&str],
        surroundings: impl FnOnce(&mut Command),
    ) -> Actor {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, [&[role], args].concat().join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        surroundings(&mut command);
        let mut child = command.spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The rest is output of the test harness.
                if let Some((_, words)) = line.split_once('@')
                    && sender.send(words.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Actor { child, orders, said }
    }

    /// Starts a target at `address` with `data` as its functions' data, and libc to link against.
    pub(crate) fn target(test: &str, address: &str, data: &str) -> Actor {
        Actor::target_in(test, address, data, |_| {})
    }

    pub(crate) fn target_in(
        test: &str,
        address: &str,
        data: &str,
        surroundings: impl FnOnce(&mut Command),
    ) -> Actor {
        let actor = Actor::start(test, "target", &[address, data], surroundings);
        assert_eq!(actor.hear(), "ready");
        actor
    }

    /// Starts a target at `address` that prints its statistics when it is ended, see [`Actor::end`].
    pub(crate) fn counting_target(test: &str, address: &str) -> Actor {
        let actor = Actor::start(test, "counting-target", &[address], |_| {});
        assert_eq!(actor.hear(), "ready");
        actor
    }

    /// Stops it, and returns its last output. It must have ended in order.
    pub(crate) fn end(mut self) -> String {
        self.start_order("stop");
        let words = self.hear();
        assert!(self.child.wait().unwrap().success(), "the actor failed");
        words
    }

    /// Starts a source that is connected to `address` and takes no replies.
    pub(crate) fn source(test: &str, address: &str) -> Actor {
        let actor = Actor::start(test, "source", &[address], |_| {});
        assert_eq!(actor.hear(), "connected");
        actor
    }

    /// Its next line of output.
    pub(crate) fn hear(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("the actor says something")
    }

    /// Gives it a command, and waits until it is done.
    pub(crate) fn order(&mut self, order: &str) {
        self.start_order(order);
        assert_eq!(self.hear(), "done");
    }

    pub(crate) fn start_order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The lowest number that none of its descriptors has.
    pub(crate) fn next_descriptor(&self) -> u64 {
        (0..).find(|number| !fs::exists(format!("/proc/{}/fd/{number}", self.child.id())).unwrap()).unwrap()
    }

    /// Lets it open no descriptor with this number or a higher one.
    pub(crate) fn limit_descriptors(&self, number: u64) {
        let limits = Rlimit { current: Some(number), maximum: getrlimit(Resource::Nofile).maximum };
        prlimit(Some(self.pid()), Resource::Nofile, limits).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
        // A stop takes effect at once or a little later.
        while signal == Signal::STOP && !self.status().contains("State:\tT") {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn status(&self) -> String {
        self.file("status")
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }

    /// Number of open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Lines of its `maps` (proc(5)).
    pub(crate) fn maps(&self) -> Vec<String> {
        self.file("maps").lines().map(str::to_owned).collect()
    }

    /// Mappings of shared regions.
    pub(crate) fn regions(&self) -> BTreeSet<String> {
        self.maps().into_iter().filter(|line| line.contains("memfd:farjump")).collect()
    }

    /// Processor time used by its threads.
    pub(crate) fn cpu_time(&self) -> Duration {
        // Not the sum over its threads: one may end between two readings.
        let (pid, mut clock) = (self.child.id().cast_signed(), 0);
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both write to a local value of the type that they expect.
        unsafe {
            assert_eq!(libc::clock_getcpuclockid(pid, &raw mut clock), 0);
            assert_eq!(libc::clock_gettime(clock, &raw mut time), 0);
        }
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
    }
}

/// The first number in a `schedstat` of proc(5): nanoseconds on a processor.
pub(crate) fn cpu_time(schedstat: &std::path::Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role that this process was started for, and its arguments; empty if there is none.
pub(crate) fn role() -> Vec<String> {
    std::env::var(ROLE).map_or(Vec::new(), |role| role.split('\n').map(str::to_owned).collect())
}

/// Plays a role if this process was started for one; the test then returns.
pub(crate) fn plays() -> bool {
    let role = role();
    let args: Vec<&str> = role.iter().map(String::as_str).collect();
    match args[..] {
        [] => return false,
        ["target", address, data] => play_target(address, data),
        ["counting-target", address] => play_counting_target(address),
        ["source", address] => play_source(address),
        _ => panic!("no such role: {args:?}"),
    }
    true
}

pub(crate) fn say(words: &str) {
    println!("@{words}");
}

/// The commands for this process, until its parent is gone.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

fn play_target(address: &str, data: &str) {
    let mut data = Data::open(data).unwrap();
    // SAFETY: it is the system's C library, which this program has loaded.
    let mut target = unsafe { Target::listen(address).args(&mut data).export_library("libc.so.6") }
        .wait_policy(WaitPolicy { spins: 100, pauses: 0, yields: 0 })
        .build()
        .unwrap();
    let stopper = target.stopper();
    thread::spawn(move || {
        for order in orders() {
            match order.split_once(' ') {
                // Only an empty folder remains of the file system.
                Some(("shut-in", folder)) => {
                    std::env::set_current_dir(folder).unwrap();
                    rustix::process::chroot(".").unwrap();
                }
                _ => panic!("no such order: {order}"),
            }
            say("done");
        }
        stopper.stop();
    });
    say("ready");
    target.run().unwrap();
}

fn play_counting_target(address: &str) {
    let mut target = Target::listen(address).mailbox(1 << 16).modes(&Mode::ALL).build().unwrap();
    let stopper = target.stopper();
    let orders = thread::spawn(move || {
        // An end without a command means that the parent is gone.
        let ordered = orders().any(|order| order == "stop");
        stopper.stop();
        ordered
    });
    say("ready");
    target.run().unwrap();
    if orders.join().unwrap() {
        let stats = target.stats();
        let (calls, images, links) = (stats.calls, stats.images_linked, stats.links);
        say(&format!("{calls} calls, {} refusals, {images} images, {links} links", stats.refusals()));
    }
}

fn play_source(address: &str) {
    let sequence = library("sequence");
    let echo = library("echo");
    let link = Link::builder(address).reply_room(4096).send_timeout(PATIENCE).connect().unwrap();
    say("connected");
    let mut sent = 0_u64;
    for order in orders() {
        match order.split_once(' ') {
            Some(("send", count)) => {
                for _ in 0..count.parse().unwrap() {
                    link.send(&sequence, &words(&[sent])).unwrap();
                    sent += 1;
                }
            }
            // Nothing takes these replies.
            Some(("call", count)) => {
                for _ in 0..count.parse().unwrap() {
                    std::mem::forget(link.inject(&echo, &[7; 1000]).unwrap());
                }
            }
            _ => panic!("no such order: {order}"),
        }
        say("done");
    }
}
