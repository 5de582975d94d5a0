//! A source that is a process of its own: it is stopped, and killed, wherever it is in its work.

use std::time::Duration;

use farjump::Target;
use farjump_fixtures::helper_process::{HelperProcess, commands, role, say};
use farjump_handles::{Client, Error};
use rustix::process::Signal;

use super::Conversation;
use crate::alongside::{PATIENCE, alongside};

/// The test that the process runs.
const ENTRY: &str = "a_process_plays_the_role_that_it_was_started_for";
/// Bytes of its objects, and what they are.
const LEN: usize = 40_000;
const BYTE: u8 = 0xbd;

/// As the process: puts and evicts objects until its link is over, and stays until its input ends.
pub fn play() {
    let role = role();
    let Some(address) = role.first().filter(|address| !address.is_empty()) else { return };
    let client = Client::builder(address).connect_timeout(PATIENCE).connect().expect("a client");
    say("writes");
    let over = loop {
        match client.put(&[BYTE; LEN]).and_then(|handle| client.evict(&handle)) {
            Ok(_) | Err(Error::Full { .. }) => {}
            Err(error) => break error,
        }
    };
    assert!(!over.to_string().is_empty());
    commands().for_each(drop);
}

impl Conversation {
    /// Starts a process that writes, stops it somewhere, ends its link or not, uses the store, and lets it go on. Then kills it.
    pub(super) fn process(&mut self, how: u8) {
        let Some(target) = &mut self.target else { return };
        let (address, before) = (target.address(), target.sources());
        // It ends with the thread that starts it.
        let writer = HelperProcess::of_test(ENTRY, &[&address]);
        let mut writer = alongside(
            || super::turn(target),
            move || {
                assert_eq!(writer.hear(), "writes");
                writer
            },
        );
        for _ in 0..how {
            self.turn();
        }
        writer.signal(Signal::STOP);
        if how.is_multiple_of(2) {
            if let Some(target) = &mut self.target {
                target.end_links("the owner ends its links");
            }
            self.links_are_over(0);
        }
        self.use_beside();
        writer.signal(Signal::CONT);
        for _ in 0..20 {
            self.turn();
            std::thread::sleep(Duration::from_micros(200));
            self.compare();
        }
        self.use_beside();
        writer.kill();
        // An object that it had finished and not evicted stays.
        self.strays += 1;
        let left = self.until(|all| all.target.as_ref().map_or(0, Target::sources) <= before);
        assert!(left, "a link of a killed process does not end");
    }

    /// The owner puts and evicts, and compares.
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
