//! A target's keys that change while it runs: it admits sources with a key with the key's rights, and cuts sources
//! with a removed key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use farjump::admin::Admin;
use farjump::{
    ConnectError, Error, Key, Keys, Link, RefusalCause, Rights, Target, TargetBuilder, WaitPolicy,
};
use farjump_control::{Control, HandshakeError, Message, RejectCause, TcpOptions};

use crate::support::{PATIENCE, Place, library, poll_until, rejected, while_polling};

/// Longer than a target takes to notice that its file has changed, and shorter than any limit of a wait.
const A_WHILE: Duration = Duration::from_millis(1500);

/// A target's key file, and the key of each source by its name.
struct Ring {
    place: Place,
    lines: Vec<(String, String)>,
}

impl Ring {
    /// Keys with these names and rights.
    fn new(keys: &[(&str, Option<Rights>)]) -> Ring {
        let place = Place::new();
        let file = place.path("keys");
        for (name, rights) in keys {
            Keys::add(&file, name, rights.map(Into::into)).unwrap();
        }
        let text = fs::read_to_string(&file).unwrap();
        let lines =
            text.lines().zip(keys).map(|(line, (name, _))| ((*name).to_owned(), line.to_owned())).collect();
        Ring { place, lines }
    }

    fn path(&self) -> PathBuf {
        self.place.path("keys")
    }

    fn line(&self, name: &str) -> &str {
        &self.lines.iter().find(|(own, _)| own == name).unwrap().1
    }

    /// The key of the source with this name, from a file that holds its line.
    fn key(&self, name: &str) -> Key {
        let path = self.place.path(name);
        write(&path, self.line(name));
        Key::read(&path).unwrap()
    }

    /// Replaces the whole file.
    fn put(&self, text: &str) {
        let aside = self.place.path("aside");
        write(&aside, text);
        fs::rename(&aside, self.path()).unwrap();
    }

    /// A target on a port that the system chooses, which sleeps unless an event comes.
    fn target<'a>(&self) -> TargetBuilder<'a> {
        Target::listen("tcp:127.0.0.1:0").key_file(self.path()).wait_policy(WaitPolicy::sleep_only())
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn admin_with_key(address: &str, key: Key) -> Admin {
    Admin::new(address).unwrap().timeout(PATIENCE).key(key)
}

/// Repeats a request until the response is right.
#[track_caller]
fn until<T: std::fmt::Debug>(
    request: impl Fn() -> Result<T, Error>,
    right: impl Fn(&Result<T, Error>) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reply = request();
        if right(&reply) {
            return;
        }
        assert!(Instant::now() < deadline, "{reply:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_unknown<T>(reply: &Result<T, Error>) -> bool {
    matches!(reply, Err(Error::Connect(ConnectError::Handshake(HandshakeError::WrongKey { .. }))))
}

fn lacks<T>(reply: &Result<T, Error>, right: &str) -> bool {
    let text = format!("the right `{right}`");
    matches!(reply, Err(Error::Connect(ConnectError::Handshake(HandshakeError::Refused { cause: RejectCause::Rights, text: reported, .. }))) if reported.contains(&text))
}

#[test]
fn each_key_has_its_own_rights_or_the_targets_default_ones() {
    let ring = Ring::new(&[
        ("all", Some(Rights::all())),
        ("none", Some(Rights::empty())),
        ("drops", Some(Rights::DROP)),
        ("plain", None),
    ]);
    let target = ring.target().rights(Rights::OBSERVE).build().unwrap();
    let address = target.address();
    let target = target.spawn().unwrap();
    let may = |name: &str| {
        let admin = admin_with_key(&address, ring.key(name));
        // The target reads a long library from peers with the right, and from no others.
        let exported = admin.export("libnone.so", &vec![7; 200_000]);
        let lacks = lacks(&exported, "export");
        rejected(exported, if lacks { RejectCause::Rights } else { RejectCause::Failed });
        [admin.stats().is_ok(), admin.drop_all().is_ok(), !lacks]
    };
    assert_eq!(may("all"), [true, true, true]);
    assert_eq!(may("none"), [false, false, false]);
    assert_eq!(may("drops"), [false, true, false]);
    assert_eq!(may("plain"), [true, false, false]);
    assert!(is_unknown(&admin_with_key(&address, Key::draw().unwrap()).stats()));
    target.stop().unwrap();
}

#[test]
fn a_sleeping_target_notices_added_and_removed_keys_and_changed_rights() {
    let ring = Ring::new(&[("a", None), ("b", None)]);
    let target = ring.target().build().unwrap();
    let address = target.address();
    let target = target.spawn().unwrap();
    let [a, b] = ["a", "b"].map(|name| admin_with_key(&address, ring.key(name)));
    a.stats().unwrap();
    b.stats().unwrap();
    ring.put(ring.line("b"));
    until(|| a.stats(), is_unknown);
    b.stats().unwrap();
    ring.put(&format!("{}\n{} allow=drop\n", ring.line("a"), ring.line("b")));
    until(|| a.stats(), Result::is_ok);
    until(|| b.stats(), |reply| lacks(reply, "observe"));
    b.drop_all().unwrap();

    // A malformed file, and one that other users may read, change nothing.
    for spoil in [0, 1] {
        match spoil {
            0 => ring.put(&format!("{}\n{}", ring.line("a"), &ring.line("b")[..40])),
            _ => fs::set_permissions(ring.path(), fs::Permissions::from_mode(0o640)).unwrap(),
        }
        let start = Instant::now();
        while start.elapsed() < A_WHILE {
            a.stats().unwrap();
            b.drop_all().unwrap();
            thread::sleep(Duration::from_millis(50));
        }
    }
    fs::remove_file(ring.path()).unwrap();
    until(|| a.stats(), is_unknown);
    until(|| b.drop_all(), is_unknown);
    ring.put(ring.line("a"));
    until(|| a.stats(), Result::is_ok);
    target.stop().unwrap();
}

#[test]
fn removing_a_key_rejects_only_its_handshakes_and_names_the_key() {
    let ring = Ring::new(&[("a", None), ("b", None)]);
    let target = ring.target().handshake_timeout(PATIENCE).build().unwrap();
    let address = target.address().parse().unwrap();
    let target = target.spawn().unwrap();
    let connected = |name: &str| {
        let options = TcpOptions::default().with_key(Some(ring.key(name)));
        Control::connect_with(&address, &options, Instant::now() + PATIENCE).unwrap()
    };
    let [mut a, mut b] = ["a", "b"].map(connected);
    // Both have proved their key, and send nothing more.
    for control in [&mut a, &mut b] {
        let deadline = Instant::now() + A_WHILE / 5;
        while Instant::now() < deadline {
            assert!(control.recv().unwrap().is_none());
            thread::sleep(Duration::from_millis(5));
        }
    }
    ring.put(ring.line("b"));
    let deadline = Instant::now() + PATIENCE;
    let reported = loop {
        assert!(Instant::now() < deadline, "nothing is sent to it");
        match a.recv().unwrap() {
            Some((message, _)) => break message,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let Message::Reject { cause: RejectCause::Rights, text } = reported else { panic!("{reported:?}") };
    assert_eq!(text, "its key `a` was taken out of the target's key file");
    thread::sleep(A_WHILE / 5);
    assert!(b.recv().unwrap().is_none(), "it is connected still");
    target.stop().unwrap();
}

#[test]
fn a_bad_key_file_fails_the_build_only_where_needed() {
    let ring = Ring::new(&[("a", None)]);
    for (text, words) in [("# none\n", "holds none"), ("no key", "line 1"), ("", "holds none")] {
        ring.put(text);
        let error = ring.target().build().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    fs::remove_file(ring.path()).unwrap();
    assert!(ring.target().build().unwrap_err().to_string().contains("keys"));
    ring.place.target().key_file(ring.path()).build().unwrap();
}

/// Makes a call with this key that forwards itself to its own target for ever, over a link that ends.
fn leave_behind(target: &mut Target<'_>, key: Key) {
    extern "C" fn lend() -> u32 {
        1
    }
    target.export("lend", lend as extern "C" fn() -> _).unwrap();
    let (address, before) = (target.address(), target.stats().calls);
    let link = while_polling(target, || Link::builder(&address).key(key).transport("tcp").connect()).unwrap();
    link.send(&library("later"), b".").unwrap();
    poll_until(target, |target| target.stats().calls > before + 100);
    drop(link);
    poll_until(target, |target| target.sources() == 0);
    let calls = target.stats().calls;
    poll_until(target, |target| target.stats().calls > calls + 100);
}

#[test]
fn a_withdrawn_key_or_right_drops_calls_that_outlive_their_link() {
    let ring = Ring::new(&[("a", None), ("b", None)]);
    // These calls continue for as long as this test takes.
    let mut target = ring.target().max_again(u32::MAX).build().unwrap();
    leave_behind(&mut target, ring.key("a"));
    leave_behind(&mut target, ring.key("b"));
    let dropped = |target: &Target<'_>| target.stats().refused(RefusalCause::Rights);
    // The calls of the other key continue.
    ring.put(ring.line("b"));
    poll_until(&mut target, |target| dropped(target) == 1);
    let calls = target.stats().calls;
    poll_until(&mut target, |target| target.stats().calls > calls + 1000);
    ring.put(&format!("{} allow=call", ring.line("b")));
    poll_until(&mut target, |target| dropped(target) == 2);
    let calls = target.stats().calls;
    for _ in 0..2000 {
        target.poll().unwrap();
    }
    assert_eq!(target.stats().calls, calls, "nothing runs any more");
}
