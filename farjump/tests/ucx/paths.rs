//! The paths of UCX, and of `tcp`, that tests run on, and their processes.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use farjump::{Key, Link, LinkBuilder, Target, TargetBuilder};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::helper::{HelperProcess, commands, role, say};
use crate::support::{PATIENCE, Place, library, words};

/// The file with the address of a fixture's target.
const ADDRESS: &str = "address";
/// Variable with the name of the path that a process is to run on.
const PATH: &str = "PLAY_ON_PATH";

/// A transport of farjump's, and UCX's environment.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) transport: &'static str,
    /// Names and values; other variables of UCX's are not set.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// The handshake is on loopback, with a key, and not on a Unix socket.
    pub(crate) loopback: bool,
}

pub(crate) const fn am(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Path {
    Path { name, transport: "ucx-am", settings, loopback: false }
}

const fn put(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Path {
    Path { name, transport: "ucx-put", settings, loopback: false }
}

/// A stream: clear on a Unix socket, encrypted on loopback.
const fn tcp(name: &'static str, loopback: bool) -> Path {
    Path { name, transport: "tcp", settings: &[], loopback }
}

/// The paths on which everything has to work.
const PATHS: [Path; 8] = [
    am("ucx-am over what UCX takes by itself", &[]),
    am("ucx-am over posix", &[("UCX_TLS", "posix,self")]),
    am("ucx-am over sysv", &[("UCX_TLS", "sysv,self")]),
    am("ucx-am over tcp", &[("UCX_TLS", "tcp,self")]),
    tcp("tcp over a unix socket", false),
    tcp("tcp over loopback, sealed", true),
    put("ucx-put over posix", &[("UCX_TLS", "posix,self")]),
    put("ucx-put over sysv", &[("UCX_TLS", "sysv,self")]),
];

/// Number of them, from the first on, that deliver messages.
const MESSAGES: usize = 6;
/// The key of both processes, if they have one.
const KEY: [u8; Key::LEN] = [7; Key::LEN];

/// Whether this process was started for a path over UCX's TCP, which has to be allowed.
pub(crate) fn has_tcp() -> bool {
    std::env::var("UCX_TLS").is_ok_and(|transports| transports.contains("tcp"))
}

/// Runs `body` on every path, in a process for each; unavailable paths are skipped by name. `test` is the
/// name of the calling test.
pub(crate) fn on_every_path(test: &str, body: fn(&Path, &str)) {
    on_paths(test, &PATHS, body);
}

/// As [`on_every_path`], on the paths that deliver frames whole, as messages.
pub(crate) fn on_every_path_of_messages(test: &str, body: fn(&Path, &str)) {
    on_paths(test, &PATHS[..MESSAGES], body);
}

/// As [`on_every_path`], on `paths`. Returns the output of each process.
pub(crate) fn on_paths(test: &str, paths: &[Path], body: fn(&Path, &str)) -> Vec<String> {
    let mut outputs = Vec::new();
    if plays() {
        return outputs;
    }
    if let Ok(name) = std::env::var(PATH) {
        let path = paths.iter().find(|path| path.name == name);
        body(path.expect("a path of this test's"), test);
        return outputs;
    }
    for path in paths {
        let backends = farjump::transports::available();
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
        outputs.push(format!("{said}{wrong}"));
    }
    outputs
}

impl Path {
    /// A target of the fixture, in a process of its own.
    pub(crate) fn target(&self, test: &str, place: &Place) -> HelperProcess {
        let actor = HelperProcess::of_test(test, &["target", &self.address(place), self.transport]);
        let said = actor.hear();
        let address = said.strip_prefix("ready ").unwrap_or_else(|| panic!("it said {said}"));
        fs::write(place.path(ADDRESS), address).unwrap();
        actor
    }

    /// A target of the fixture in this process.
    pub(crate) fn listen<'a>(&self, place: &Place) -> TargetBuilder<'a> {
        Target::listen(&self.address(place))
            .key(Key::from_bytes(KEY))
            .transport(self.transport)
            .ucx_tcp(has_tcp())
    }

    /// A link to a target in this process.
    pub(crate) fn link_to(&self, address: &str) -> LinkBuilder {
        Link::builder(address)
            .key(Key::from_bytes(KEY))
            .transport(self.transport)
            .ucx_tcp(has_tcp())
            .connect_timeout(PATIENCE)
            .send_timeout(PATIENCE)
    }

    /// Address of the fixture's target, or for one to come: at the port of the one before, if there was one.
    pub(crate) fn address(&self, place: &Place) -> String {
        match self.loopback {
            true => fs::read_to_string(place.path(ADDRESS)).unwrap_or_else(|_| "tcp:127.0.0.1:0".to_owned()),
            false => place.address(),
        }
    }

    /// A source that is connected to the fixture's target and takes no replies, in a process of its own.
    pub(crate) fn source(&self, test: &str, place: &Place) -> HelperProcess {
        let actor = HelperProcess::of_test(test, &["source", &self.address(place), self.transport]);
        assert_eq!(actor.hear(), "connected");
        actor
    }

    /// A link to the fixture's target, with limits for a busy machine.
    pub(crate) fn link(&self, place: &Place) -> LinkBuilder {
        self.link_to(&self.address(place))
    }
}

/// Plays the role that this process was started for, if any.
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
    let target = Target::listen(address).key(Key::from_bytes(KEY)).transport(transport);
    let mut target = target.ucx_tcp(has_tcp()).build().unwrap();
    let stopper = target.stopper();
    thread::spawn(move || {
        commands().for_each(drop);
        stopper.stop();
    });
    say(&format!("ready {}", target.address()));
    target.run().unwrap();
}

fn play_source(address: &str, transport: &str) {
    let sequence = library("sequence");
    let link = Link::builder(address).key(Key::from_bytes(KEY)).transport(transport).ucx_tcp(has_tcp());
    let link = link.send_timeout(PATIENCE).connect().unwrap();
    say("connected");
    let mut sent = 0_u64;
    let mut send = |len: usize| {
        let mut payload = words(&[sent]);
        payload.resize(len.max(8), 1);
        link.send(&sequence, &payload).unwrap();
        sent += 1;
    };
    for order in commands() {
        match order.split_once(' ') {
            Some(("send", count)) => (0..count.parse().unwrap()).for_each(|_| send(8)),
            // A single one-way call.
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

/// Waits for a condition; the watchdog bounds the wait.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_millis(2));
    }
}
