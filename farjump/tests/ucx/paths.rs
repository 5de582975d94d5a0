//! The paths of frames that tests run on, and their processes.

use std::fs;
use std::panic::resume_unwind;
use std::thread;

use farjump::{LinkBuilder, TargetBuilder};
use farjump_fixtures::helper_process::ROLE;

use crate::helper::{HelperProcess, link_to, listen, start_source, start_target_over, test_in_role};
use crate::support::Place;

/// The file with the address of a fixture's target.
const ADDRESS: &str = "address";
/// Variable with the name of the path that a process runs on.
const PATH: &str = "PLAY_ON_PATH";

/// A transport of farjump's, and UCX's environment.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) transport: &'static str,
    /// Names and values; other variables of UCX's are not set.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// True if the handshake is on loopback, with a key, and not on a Unix socket.
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
const PATHS: [Path; 9] = [
    am("ucx-am over what UCX takes by itself", &[]),
    am("ucx-am over posix", &[("UCX_TLS", "posix,self")]),
    am("ucx-am over sysv", &[("UCX_TLS", "sysv,self")]),
    am("ucx-am over tcp", &[("UCX_TLS", "tcp,self")]),
    tcp("tcp over a unix socket", false),
    tcp("tcp over loopback, sealed", true),
    put("ucx-put over posix", &[("UCX_TLS", "posix,self")]),
    put("ucx-put over sysv", &[("UCX_TLS", "sysv,self")]),
    Path { name: "shm", transport: "shm", settings: &[], loopback: false },
];

/// Runs `body` on every path, in a process for each. Skips unavailable paths, and prints their names. `test` is the
/// name of the calling test.
pub(crate) fn on_every_path(test: &str, body: fn(&Path)) {
    on_paths(test, &PATHS, body);
}

/// As [`on_every_path`], on all paths at once: for bodies that mostly wait.
pub(crate) fn on_every_path_at_once(test: &str, body: fn(&Path)) {
    if is_on_path(&PATHS, body) {
        return;
    }
    thread::scope(|scope| {
        let runs: Vec<_> = usable(&PATHS).map(|path| scope.spawn(|| path.run(test))).collect();
        runs.into_iter().for_each(|run| drop(run.join().unwrap_or_else(|panic| resume_unwind(panic))));
    });
}

/// As [`on_every_path`], on `paths`. Returns the output of each process.
pub(crate) fn on_paths(test: &str, paths: &[Path], body: fn(&Path)) -> Vec<String> {
    if is_on_path(paths, body) {
        return Vec::new();
    }
    usable(paths).map(|path| path.run(test)).collect()
}

/// Runs `body` if this process was started for a path, and returns whether it was.
fn is_on_path(paths: &[Path], body: fn(&Path)) -> bool {
    let Ok(name) = std::env::var(PATH) else { return false };
    body(paths.iter().find(|path| path.name == name).expect("a path of this test's"));
    true
}

/// The paths that are usable here. Prints the names of the others.
fn usable(paths: &[Path]) -> impl Iterator<Item = &Path> {
    let backends = farjump::transports::available();
    paths.iter().filter(move |path| {
        let found = backends.iter().find(|backend| backend.name == path.transport);
        let usable = found.map_or(Err("this build has no such transport"), |found| {
            found.usable.as_ref().map_err(|why| &**why).copied()
        });
        if let Err(why) = usable {
            println!("skipped: {}: {why}", path.name);
        }
        usable.is_ok()
    })
}

impl Path {
    /// Runs `test` on this path, in a process of its own, and returns its output.
    fn run(&self, test: &str) -> String {
        let mut command = test_in_role(test, &[]);
        command.env(PATH, self.name).env_remove(ROLE);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UCX_") {
                command.env_remove(name);
            }
        }
        let output = command.envs(self.settings.iter().copied()).output().unwrap();
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{said}\n{wrong}", self.name, output.status);
        assert!(said.contains("1 passed"), "{}: nothing ran\n{said}", self.name);
        format!("{said}{wrong}")
    }

    /// A target of the fixture, in a process of its own.
    pub(crate) fn target(&self, place: &Place) -> HelperProcess {
        let (target, address) = start_target_over(&self.address(place), self.transport);
        fs::write(place.path(ADDRESS), address).unwrap();
        target
    }

    /// A target of the fixture in this process.
    pub(crate) fn listen<'a>(&self, place: &Place) -> TargetBuilder<'a> {
        listen(&self.address(place), self.transport)
    }

    /// A link to a target in this process, with limits for a busy machine.
    pub(crate) fn link_to(&self, address: &str) -> LinkBuilder {
        link_to(address, self.transport)
    }

    /// Address of the fixture's target, or for a new one: at the port of the one before, if there was one.
    pub(crate) fn address(&self, place: &Place) -> String {
        match self.loopback {
            true => fs::read_to_string(place.path(ADDRESS)).unwrap_or_else(|_| "tcp:127.0.0.1:0".to_owned()),
            false => place.address(),
        }
    }

    /// A source that is connected to the fixture's target and takes no replies, in a process of its own.
    pub(crate) fn source(&self, place: &Place) -> HelperProcess {
        start_source(&self.address(place), self.transport)
    }

    /// A link to the fixture's target.
    pub(crate) fn link(&self, place: &Place) -> LinkBuilder {
        self.link_to(&self.address(place))
    }
}
