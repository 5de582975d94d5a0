//! The paths of UCX that tests play on, and the processes that play.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use farjump::{Link, LinkBuilder, Target};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::actor::{Actor, orders, role, say};
use crate::support::{PATIENCE, Place, library, words};

/// Name of the path that a process is to play on.
const PATH: &str = "PLAY_ON_PATH";

/// A transport of farjump's, and what UCX is told by its environment.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) transport: &'static str,
    /// Names and values; variables of UCX's that are not here are not set.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

const fn am(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Path {
    Path { name, transport: "ucx-am", settings }
}

const fn put(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Path {
    Path { name, transport: "ucx-put", settings }
}

/// Those that everything has to work on.
const PATHS: [Path; 6] = [
    am("ucx-am over what UCX takes by itself", &[]),
    am("ucx-am over posix", &[("UCX_TLS", "posix,self")]),
    am("ucx-am over sysv", &[("UCX_TLS", "sysv,self")]),
    am("ucx-am over tcp", &[("UCX_TLS", "tcp,self")]),
    put("ucx-put over posix", &[("UCX_TLS", "posix,self")]),
    put("ucx-put over sysv", &[("UCX_TLS", "sysv,self")]),
];

/// How many of them, from the first on, are of `ucx-am`.
const MESSAGES: usize = 4;

/// Whether this process was started for a path over UCX's TCP, which has to be allowed.
pub(crate) fn has_tcp() -> bool {
    std::env::var("UCX_TLS").is_ok_and(|transports| transports.contains("tcp"))
}

/// Plays `body` on every path, in a process for each; what is not there is skipped by name. `test` is the name of the test
/// that calls this.
pub(crate) fn on_every_path(test: &str, body: fn(&Path, &str)) {
    on_paths(test, &PATHS, body);
}

/// As [`on_every_path`], on those by which frames come whole, as messages of UCX's.
pub(crate) fn on_every_path_of_messages(test: &str, body: fn(&Path, &str)) {
    on_paths(test, &PATHS[..MESSAGES], body);
}

/// As [`on_every_path`], on `paths`.
pub(crate) fn on_paths(test: &str, paths: &[Path], body: fn(&Path, &str)) {
    if plays() {
        return;
    }
    if let Ok(name) = std::env::var(PATH) {
        let path = paths.iter().find(|path| path.name == name);
        return body(path.expect("a path of this test's"), test);
    }
    for path in paths {
        let backends = farjump::available();
        let found = backends.into_iter().find(|backend| backend.name == path.transport);
        let usable =
            found.map_or_else(|| Err("this build has no such transport".into()), |found| found.usable);
        if let Err(why) = usable {
            println!("skipped: {}: {why}", path.name);
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PATH, path.name);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UCX_") {
                command.env_remove(name);
            }
        }
        let output = command.envs(path.settings.iter().copied()).stdin(Stdio::null()).output().unwrap();
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{said}\n{wrong}", path.name, output.status);
        assert!(said.contains("1 passed"), "{}: nothing ran\n{said}", path.name);
    }
}

impl Path {
    /// A target at the place, in a process of its own.
    pub(crate) fn target(&self, test: &str, place: &Place) -> Actor {
        let actor = Actor::start(test, "target", &[&place.address(), self.transport], |_| {});
        assert_eq!(actor.hear(), "ready");
        actor
    }

    /// A source that is connected to the place's target and takes no replies, in a process of its own.
    pub(crate) fn source(&self, test: &str, place: &Place) -> Actor {
        let actor = Actor::start(test, "source", &[&place.address(), self.transport], |_| {});
        assert_eq!(actor.hear(), "connected");
        actor
    }

    /// A link to the place's target, which waits as long as a busy machine needs.
    pub(crate) fn link(&self, place: &Place) -> LinkBuilder {
        place
            .link()
            .transport(self.transport)
            .ucx_tcp(has_tcp())
            .connect_timeout(PATIENCE)
            .send_timeout(PATIENCE)
    }
}

/// Plays the role that this process was started for, if it was for one.
fn plays() -> bool {
    let role = role();
    let args: Vec<&str> = role.iter().map(String::as_str).collect();
    match args[..] {
        [] => return false,
        // Also where it is stopped at that moment.
        _ => set_parent_process_death_signal(Some(Signal::KILL)).unwrap(),
    }
    match args[..] {
        ["target", address, transport] => play_target(address, transport),
        ["source", address, transport] => play_source(address, transport),
        _ => panic!("no such role: {args:?}"),
    }
    true
}

fn play_target(address: &str, transport: &str) {
    let mut target = Target::listen(address).transport(transport).ucx_tcp(has_tcp()).build().unwrap();
    let stopper = target.stopper();
    thread::spawn(move || {
        orders().for_each(drop);
        stopper.stop();
    });
    say("ready");
    target.run().unwrap();
}

fn play_source(address: &str, transport: &str) {
    let sequence = library("sequence");
    let link = Link::builder(address).transport(transport).ucx_tcp(has_tcp());
    let link = link.send_timeout(PATIENCE).connect().unwrap();
    say("connected");
    let mut sent = 0_u64;
    let mut send = |len: usize| {
        let mut payload = words(&[sent]);
        payload.resize(len.max(8), 1);
        link.send(&sequence, &payload).unwrap();
        sent += 1;
    };
    for order in orders() {
        match order.split_once(' ') {
            Some(("send", count)) => (0..count.parse().unwrap()).for_each(|_| send(8)),
            // One, of which nothing is waited for.
            Some(("post", len)) => {
                send(len.parse().unwrap());
                say("posted");
            }
            // Until it is killed.
            Some(("stream", len)) => loop {
                send(len.parse().unwrap());
            },
            _ => panic!("no such order: {order}"),
        }
        link.flush(PATIENCE).unwrap();
        say("done");
    }
}

/// Waits for what comes in a while; the watchdog sees to it that it does.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_millis(2));
    }
}
