//! The roles of the processes behind the cable.

use std::path::Path;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Error, Key, Library, Link, LinkBuilder, Target, WaitError};
use farjump_fixtures::helper_process::{commands, role, say};
use farjump_fixtures::watchdog::Watchdog;

/// Longer than any honest operation takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A wait whose timeout no test should see.
const FOREVER: Duration = Duration::from_secs(3600);
/// Deadline of events that cannot come.
const SHORT: Duration = Duration::from_millis(500);
/// Time that a machine may be silent.
const SILENCE: Duration = Duration::from_secs(1);
/// The key of both processes.
const KEY: [u8; 32] = [7; 32];
/// Payloads of the calls on their way: in a line, in one packet, in several, and fetched by the target.
const LENGTHS: [usize; 4] = [10, 1000, 20_000, 300_000];

/// Plays the role for which this process was started. Returns whether there is one.
pub(crate) fn plays(transport: &str) -> bool {
    let role = role();
    if role.is_empty() {
        return false;
    }
    let _watchdog = Watchdog::over("a process behind the cable".to_owned());
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["target", address] => play_target(address, transport),
        ["source", address] => Source::new(address, transport).play(),
        _ => panic!("no such role: {role:?}"),
    }
    true
}

fn await_order(expected: &str) {
    let order = commands().next().expect("an order comes");
    assert_eq!(order, expected);
}

fn play_target(address: &str, transport: &str) {
    let target = Target::listen(address)
        .transport(transport)
        .ucx_tcp(true)
        .key(Key::from_bytes(KEY))
        .peer_timeout(SILENCE);
    let mut target = target.on_peer_gone(|peer, why| say(&format!("gone {peer}: {why}"))).build().unwrap();
    let stopper = target.stopper();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        stopper.stop();
    });
    say(&format!("ready {}", target.address()));
    target.run().unwrap();
}

/// A source, each of whose calls gets an outcome.
struct Source<'a> {
    address: &'a str,
    transport: &'a str,
    echo: Library,
}

impl<'a> Source<'a> {
    fn new(address: &'a str, transport: &'a str) -> Source<'a> {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            inputs: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("ifuncs/echo.c")],
            output: folder.path().join("libecho.so"),
            ..Options::default()
        };
        let echo = Library::open(build(&options).unwrap().library).unwrap();
        Source { address, transport, echo }
    }

    fn play(&self) {
        let mut link = self.link().connect().unwrap();
        self.check_replies(&link);
        say("connected");
        await_order("inject");
        let calls: Vec<_> =
            LENGTHS.iter().map(|len| link.inject(&self.echo, &vec![2; *len]).unwrap()).collect();
        say("under way");
        await_order("pulled");
        if self.address.starts_with("tcp:") {
            for call in calls {
                self.silent(call.wait(FOREVER));
            }
            self.silent(link.inject(&self.echo, &[3; 10]));
            let error = link.reconnect().unwrap_err().to_string();
            assert!(error.contains(self.address), "{error}");
            say("noticed");
            await_order("plugged");
            link.reconnect().unwrap();
            self.check_replies(&link);
        } else {
            for call in calls {
                self.late(call.wait(SHORT));
            }
            self.fill(&link);
            self.late(link.flush(SHORT));
            say("noticed");
            await_order("plugged");
            self.check_replies(&self.link().connect().unwrap());
        }
        self.check_replies(&self.link().connect().unwrap());
        say("done");
    }

    fn link(&self) -> LinkBuilder {
        Link::builder(self.address)
            .transport(self.transport)
            .ucx_tcp(true)
            .key(Key::from_bytes(KEY))
            .peer_timeout(SILENCE)
            .reply_mailbox_size(4 << 20)
            .send_timeout(SHORT)
            .connect_timeout(PATIENCE)
    }

    fn check_replies(&self, link: &Link) {
        for len in LENGTHS {
            let reply = link.inject(&self.echo, &vec![1; len]).unwrap().wait(PATIENCE).unwrap();
            assert!(reply.len() == len && reply.iter().all(|byte| *byte == 1));
        }
    }

    /// Sends short and long frames until there is no credit. The link has to report that in time.
    fn fill(&self, link: &Link) {
        for len in LENGTHS {
            let payload = vec![3; len];
            let full = loop {
                if let Err(error) = link.send(&self.echo, &payload) {
                    break error;
                }
            };
            self.late::<()>(Err(full));
        }
    }

    /// Checks that `tried` failed because the target's machine was silent, with an error that names this.
    fn silent<T>(&self, tried: Result<T, Error>) {
        match tried {
            Err(Error::Wait(WaitError::PeerGone { peer, cause })) => {
                assert_eq!(peer, self.address);
                assert!(cause.to_string().contains("did not answer for 1 s"), "{cause}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("something came through a cable that is not there"),
        }
    }

    /// Checks that `tried` failed by its deadline, with an error that names the peer.
    fn late<T>(&self, tried: Result<T, Error>) {
        match tried {
            Err(Error::Wait(WaitError::TimedOut { peer, .. })) => assert_eq!(peer, self.address),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("something came through a cable that is not there"),
        }
    }
}
