//! Sources that account for each of their calls.

use std::collections::VecDeque;
use std::io::BufRead;
use std::time::Duration;

use farjump::{Error, Library, Link, LinkBuilder, Pending, WaitError};
use farjump_fixtures::helper_process::say;

use crate::helper::library;

/// A wait whose timeout no case should see. It ends before the watchdog does, and its error names the wait.
pub(crate) const FOREVER: Duration = Duration::from_secs(120);
/// Payloads of calls: in a line, in one packet, in several, and in a large mailbox or in pieces.
pub(crate) const LENGTHS: [usize; 4] = [10, 1000, 20_000, 300_000];

/// The outcomes of calls of one link, which come in order.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    /// Injected calls.
    pub(crate) made: u64,
    pub(crate) replied: u64,
    /// Calls that were reported as lost.
    pub(crate) lost: u64,
    /// The reason for the first lost call.
    pub(crate) why: String,
}

/// A link without timeouts.
pub(crate) fn link(backend: &str, address: &str) -> LinkBuilder {
    Link::builder(address).transport(backend).connect_timeout(FOREVER).send_timeout(FOREVER)
}

impl Account {
    /// Takes the reply of a call, or the report of its loss.
    pub(crate) fn settle(&mut self, call: Pending<'_>) {
        match call.wait(FOREVER) {
            Ok(_) => {
                assert_eq!(self.lost, 0, "a call is answered behind one that was lost");
                self.replied += 1;
            }
            Err(Error::Wait(WaitError::PeerGone { cause, .. })) => {
                if self.lost == 0 {
                    self.why = cause.to_string();
                }
                self.lost += 1;
            }
            Err(other) => panic!("a call is neither answered nor lost: {other}"),
        }
    }

    /// Checks that every call has an outcome, and that the target ran all calls with replies and no call that was not
    /// made.
    pub(crate) fn balances(&self, ran: u64) {
        assert_eq!(self.made, self.replied + self.lost, "{self:?}");
        assert!((self.replied..=self.made).contains(&ran), "{ran} have run: {self:?}");
    }
}

/// Calls `counter` `count` times with payloads of all lengths, and takes all replies.
pub(crate) fn check_replies(link: &Link, counter: &Library, count: u64) {
    for number in 0..count {
        let len = LENGTHS[number as usize % LENGTHS.len()];
        let answer = link.inject(counter, &vec![1; len]).and_then(|call| call.wait(FOREVER));
        answer.unwrap_or_else(|error| panic!("call {number} with {len} bytes: {error}"));
    }
}

/// Injects until an error, `ahead` calls before the first reply. Calls `replied` for each reply.
pub(crate) fn stream(link: &Link, counter: &Library, ahead: usize, mut replied: impl FnMut(u64)) -> Account {
    let mut account = Account::default();
    let mut calls = VecDeque::new();
    while account.lost == 0 {
        let len = LENGTHS[account.made as usize % LENGTHS.len()];
        match link.inject(counter, &vec![2; len]) {
            Ok(call) => {
                account.made += 1;
                calls.push_back(call);
            }
            // The link can end between two calls: then none may be lost.
            Err(error @ Error::Wait(WaitError::PeerGone { .. })) => {
                account.why = error.to_string();
                break;
            }
            Err(other) => panic!("call {}: {other}", account.made),
        }
        if calls.len() >= ahead
            && let Some(call) = calls.pop_front()
        {
            account.settle(call);
            replied(account.replied);
        }
    }
    calls.into_iter().for_each(|call| account.settle(call));
    account
}

/// Plays a source that reports the result of the handshake, and then calls without end, or once for each
/// order.
pub(crate) fn play(backend: &str, address: &str) {
    let counter = library("counter");
    let link = match link(backend, address).connect() {
        Ok(link) => link,
        Err(error) => return say(&format!("refused {error}")),
    };
    say("connected");
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        match &*order {
            "stream" => {
                let account = stream(&link, &counter, 8, |replied| {
                    if replied == 10 {
                        say("streams");
                    }
                });
                say(&format!("ended {}", account.why));
            }
            "call" => match link.inject(&counter, &[1; 10]).and_then(|call| call.wait(FOREVER)) {
                Ok(_) => say("answered"),
                Err(error) => say(&format!("failed {error}")),
            },
            other => panic!("no such order: {other}"),
        }
    }
}
