//! Memory of an idle link over `tcp`, control connection included: on the heap, and in all mappings.

use std::fs::read_to_string;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farjump::{Key, Link, Target};
use farjump_fixtures::helper_process::{HelperProcess, commands, role, say, test_in_role};
use farjump_fixtures::this_test;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::counting::held;
use crate::support::{PATIENCE, Watchdog, library};

const TRANSPORT: &str = "tcp";
/// Links before and between the two measurements.
const BEFORE: usize = 20;
const LINKS: usize = 1000;
/// Most bytes that each may take in a process.
const MOST: i64 = 16 << 10;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// On the heap, by this thread.
    heap: i64,
    /// In anonymous memory, including the heap's pages and stacks.
    anonymous: i64,
    /// Mapped, in memory or not.
    mapped: i64,
}

impl Taken {
    fn now() -> Taken {
        let number = |file: &str, name: &str| {
            let text = read_to_string(file).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name).to_owned();
            line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
        };
        let anonymous = number("/proc/self/smaps_rollup", "Anonymous:");
        Taken { heap: held(), anonymous, mapped: number("/proc/self/status", "VmData:") }
    }

    fn parse(text: &str) -> Taken {
        let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        let [heap, anonymous, mapped] = numbers[..] else { panic!("{text}") };
        Taken { heap, anonymous, mapped }
    }

    /// Checks that no link since `before` took more than its limit.
    fn assert_little(self, before: Taken, side: &str) {
        let each = |now: i64, then: i64| (now - then) / LINKS as i64;
        let heap = each(self.heap, before.heap);
        let (anonymous, mapped) = (each(self.anonymous, before.anonymous), each(self.mapped, before.mapped));
        println!(
            "{side}, for each of {LINKS} links: heap {heap}, anonymous {anonymous}, mapped {mapped} bytes"
        );
        assert!(heap > 100, "{side}: {heap} bytes on the heap for each link: not counted");
        assert!(
            heap <= MOST && anonymous <= MOST,
            "{side}: heap {heap}, anonymous {anonymous} for each link"
        );
        assert!(mapped <= 2 * MOST, "{side}: {mapped} bytes mapped for each link");
    }
}

fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn key() -> Key {
    Key::from_bytes([7; Key::LEN])
}

/// Memory of a target, in a process of its own.
fn taken(target: &mut HelperProcess) -> Taken {
    target.order("look");
    Taken::parse(&target.hear())
}

fn play_target() {
    raise_file_limit();
    let asked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(|| commands().for_each(|_| asked.store(true, Ordering::Relaxed)));
    let mut count = 0_u64;
    let target = Target::listen("tcp:127.0.0.1:0").transport(TRANSPORT).key(key());
    let mut target = target.args(&mut count).max_sources(BEFORE + LINKS).build().unwrap();
    say(&target.address());
    loop {
        while target.poll().unwrap() != 0 {}
        target.wait(Duration::from_millis(1)).unwrap();
        if asked.swap(false, Ordering::Relaxed) {
            let Taken { heap, anonymous, mapped } = Taken::now();
            say(&format!("{heap} {anonymous} {mapped}"));
        }
    }
}

#[test]
fn an_idle_link_takes_at_most_16_kib_in_each_process() {
    match &*role() {
        [] => {
            // In processes of their own, apart from the memory of other tests.
            let output = test_in_role(this_test!(), &["source"]).output().unwrap();
            println!("{}", String::from_utf8_lossy(&output.stdout));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        [role] if role == "target" => play_target(),
        _ => play_source(this_test!()),
    }
}

fn play_source(test: &str) {
    let _watchdog = Watchdog::new();
    raise_file_limit();
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 3 * (BEFORE + LINKS) as u64) {
        return println!("skipped: a process may not have descriptors for {LINKS} links here");
    }
    let mut target = HelperProcess::of_test(test, &["target"]);
    let (address, counter) = (target.hear(), library("counter"));
    let mut links = Vec::with_capacity(BEFORE + LINKS);
    let mut grow = |count: usize| {
        for _ in 0..count {
            let link = Link::builder(&address).transport(TRANSPORT).key(key()).connect().unwrap();
            // The link has been in use: memory kept by use would show.
            link.inject(&counter, &[1; 8]).unwrap().wait(PATIENCE).unwrap();
            link.inject(&counter, &[1; 5000]).unwrap().wait(PATIENCE).unwrap();
            links.push(link);
        }
    };
    grow(BEFORE);
    let (before, theirs_before) = (Taken::now(), taken(&mut target));
    grow(LINKS);
    Taken::now().assert_little(before, "source");
    taken(&mut target).assert_little(theirs_before, "target");
}
