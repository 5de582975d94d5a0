//! A source that is a process of its own: it is stopped, and killed, at any point of its work.

use std::time::Duration;

use farjump::Target;
use farjump_fixtures::helper_process::{HelperProcess, commands, role, say};
use farjump_handles::{Client, Error, View};
use rustix::process::Signal;

use super::Conversation;
use crate::alongside::{PATIENCE, alongside};

/// The test that the process runs.
const ENTRY: &str = "a_process_plays_the_role_that_it_was_started_for";
/// Length of its objects, and the value of their bytes.
const LEN: usize = 40_000;
const BYTE: u8 = 0xbd;
/// Its reports on the bytes that it reads.
const SAME: &str = "same";
const CHANGED: &str = "bytes have changed under a process that reads them";

/// Plays the process: puts objects, and reads and evicts them, until its link is over. It then keeps its last view,
/// and reports on each command whether the bytes are unchanged, until its input ends.
pub fn play() {
    let role = role();
    let Some(address) = role.first().filter(|address| !address.is_empty()) else { return };
    let client = Client::builder(address).connect_timeout(PATIENCE).connect().expect("a client");
    say("works");
    let mut view = None;
    let over = loop {
        match put_and_get(&client) {
            Ok(got) => view = Some(got),
            Err(Error::Full { .. }) => {}
            Err(error) => break error,
        }
        assert!(is_same(view.as_ref()), "{CHANGED}");
    };
    assert!(!over.to_string().is_empty());
    say("over");
    commands().for_each(|_| say(if is_same(view.as_ref()) { SAME } else { CHANGED }));
}

/// Makes an object that is evicted, and stays for its reader alone.
fn put_and_get(client: &Client) -> Result<View, Error> {
    let handle = client.put(&[BYTE; LEN])?;
    let view = client.get(&handle);
    client.evict(&handle)?;
    view
}

fn is_same(view: Option<&View>) -> bool {
    view.is_none_or(|view| **view == [BYTE; LEN])
}

impl Conversation {
    /// Starts a process that writes and reads, and stops it at some point. By the bits of `how`, the owner ends its
    /// link, and the process continues or not. The owner uses the store meanwhile. Then kills the process.
    pub(super) fn process(&mut self, how: u8) {
        let Some(target) = &mut self.target else { return };
        let (address, before) = (target.address(), target.sources());
        // The process ends with the thread that starts it.
        let mut process = self.hear(HelperProcess::of_test(ENTRY, &[&address]), "works");
        for _ in 0..how {
            self.turn();
        }
        process.signal(Signal::STOP);
        let ends = how.is_multiple_of(2);
        if ends {
            if let Some(target) = &mut self.target {
                target.end_links("the owner ends its links");
            }
            self.links_are_over(0);
        }
        self.use_beside();
        if !(how / 2).is_multiple_of(4) {
            process.signal(Signal::CONT);
            if ends {
                process = self.hear(process, "over");
                self.use_beside();
                process.order("look");
                process = self.hear(process, SAME);
            } else {
                for _ in 0..20 {
                    self.turn();
                    std::thread::sleep(Duration::from_micros(200));
                    self.compare();
                }
                self.use_beside();
            }
        }
        assert!(!process.has_ended(), "{CHANGED}");
        process.kill();
        // An object that the process had finished and not evicted stays.
        self.strays += 1;
        let left = self.until(|all| all.target.as_ref().map_or(0, Target::sources) <= before);
        assert!(left, "a link of a killed process does not end");
    }

    /// Polls the target until the process has sent this line.
    fn hear(&mut self, process: HelperProcess, expected: &str) -> HelperProcess {
        alongside(
            || self.turn(),
            move || {
                assert_eq!(process.hear(), expected);
                process
            },
        )
    }

    /// Makes the owner put and evict objects, and compares.
    fn use_beside(&mut self) {
        for which in 0..4 {
            self.owner_puts(16 << 10);
            self.owner_puts(LEN);
            self.owner_gets(self.objects.len().saturating_sub(1));
            self.compare();
            self.owner_evicts(which);
            self.turn();
        }
    }
}
