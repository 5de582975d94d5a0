//! Scenarios: the source's actions when it, or its target, is killed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use farjump::{Error, InjectError, Library, Link, WaitPolicy};
use fastrand::Rng;

use crate::counted_link::{Call, CountedLink, Shape};
use crate::fixture::link;
use crate::journal::{LINKS, LOG, Ledger};
use crate::support::PATIENCE;

/// Capacity for replies, in bytes.
const REPLY_MAILBOX_SIZE: usize = 256 * 1024;
/// Most bytes of a mailbox. Over streams a single frame may have more; it would wait for an empty window.
const MAILBOX: usize = 1 << 22;
/// Words of the longest reply: 100 KiB.
const LONG_REPLY: u64 = 100 * 1024 / 8;
/// Most frames of a scenario, and most links, so that the ledger has capacity for a farewell, too.
const MOST: (u64, u64) = (LOG as u64 - 1024, LINKS as u64 - 16);

/// Number of wait policies.
pub(crate) const POLICIES: usize = 3;

/// One of the wait policies, of which the first always sleeps.
pub(crate) fn wait_policy(number: usize) -> WaitPolicy {
    match number {
        0 => WaitPolicy::sleep_only(),
        1 => WaitPolicy { spins: 100, pauses: 0, events: 0, yields: 0 },
        _ => WaitPolicy::for_cores(2, 2),
    }
}

/// The scenarios. Each continues until a process is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Scenario {
    /// Links are made and dropped.
    Connecting,
    /// Each link sends code, and runs it once.
    CodeTravels,
    /// A function runs that does not end before a process is killed.
    FunctionRuns,
    /// Replies of up to 100 KiB are on their way.
    ReplyTravels,
    /// Hundreds of calls are in flight, and the source polls for no reply before a process is hit.
    LookingAway,
    /// The target is held, its mailbox is full and the source waits for credit.
    MailboxFull,
    /// The source sleeps until a function ends.
    Asleep,
    /// A link is made anew, with pending calls.
    Reconnecting,
    /// Frames of up to half a mailbox are written and read.
    LargeFrame,
    /// Every operation of a link, at random.
    Mixed,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 10] = [
        Scenario::Connecting,
        Scenario::CodeTravels,
        Scenario::FunctionRuns,
        Scenario::ReplyTravels,
        Scenario::LookingAway,
        Scenario::MailboxFull,
        Scenario::Asleep,
        Scenario::Reconnecting,
        Scenario::LargeFrame,
        Scenario::Mixed,
    ];

    /// Returns whether a call of it is held until `hold` of the ledger is 0.
    pub(crate) fn holds(self) -> bool {
        matches!(self, Scenario::FunctionRuns | Scenario::MailboxFull | Scenario::Asleep)
    }
}

/// A source that plays scenarios.
pub(crate) struct Source<'l> {
    pub(crate) ledger: &'l Ledger,
    pub(crate) address: String,
    /// The function that writes into the ledger.
    pub(crate) entry: Library,
    /// The same in a large image.
    pub(crate) bulky: Library,
}

impl Source<'_> {
    /// Plays until the target is gone, or until the order to finish. In the second case all sent frames have run, and
    /// every call has a reply.
    pub(crate) fn play(&self, scenario: Scenario, random: &mut Rng) -> Result<(), Error> {
        self.ledger.pages().acting.store(1, Ordering::Release);
        let mut link = self.connect(scenario, random)?;
        match scenario {
            Scenario::Connecting => {
                while self.makes_another() {
                    drop(std::mem::replace(&mut link, self.connect(scenario, random)?));
                }
                Ok(())
            }
            Scenario::CodeTravels => {
                while self.makes_another() {
                    link = self.connect(scenario, random)?;
                    let shape = Shape { payload: random.u64(..100), ..Shape::default() };
                    let counted = self.counted(&link);
                    counted.settle(counted.inject(&self.bulky, shape)?)?;
                }
                self.idle(&link)
            }
            Scenario::Reconnecting => {
                while self.makes_another() {
                    let counted = self.counted(&link);
                    let frames = random.u64(1..20);
                    self.stream(&counted, scenario, frames, random)?;
                    if let Err(error) = link.reconnect() {
                        // The link is unchanged: its target is gone.
                        self.counted(&link).is_gone(&link.flush(PATIENCE).unwrap_err());
                        return Err(error);
                    }
                }
                self.idle(&link)
            }
            Scenario::FunctionRuns | Scenario::Asleep => {
                let counted = self.counted(&link);
                counted.settle(counted.inject(&self.entry, Shape { held: true, ..Shape::default() })?)?;
                self.idle(&link)
            }
            Scenario::LookingAway => {
                self.look_away(&self.counted(&link), random)?;
                self.idle(&link)
            }
            Scenario::MailboxFull => {
                self.fill(&self.counted(&link))?;
                self.idle(&link)
            }
            Scenario::ReplyTravels | Scenario::LargeFrame | Scenario::Mixed => {
                self.stream(&self.counted(&link), scenario, MOST.0, random)?;
                self.idle(&link)
            }
        }
    }

    /// Makes a few calls over a new link. All have to succeed.
    pub(crate) fn greet(&self, random: &mut Rng) {
        let link = self.connect(Scenario::Mixed, random).unwrap();
        let counted = self.counted(&link);
        self.stream(&counted, Scenario::Mixed, 20, random).unwrap();
        counted.settle(counted.inject(&self.bulky, Shape::default()).unwrap()).unwrap();
    }

    fn connect(&self, scenario: Scenario, random: &mut Rng) -> Result<Link, Error> {
        let policy = if scenario == Scenario::Asleep { 0 } else { random.usize(..POLICIES) };
        link(&self.address)
            .reply_mailbox_size(REPLY_MAILBOX_SIZE)
            .wait_policy(wait_policy(policy))
            .connect_timeout(PATIENCE)
            .send_timeout(PATIENCE)
            .connect()
    }

    fn counted<'a>(&'a self, link: &'a Link) -> CountedLink<'a> {
        CountedLink::open(link, &self.address, self.ledger)
    }

    fn is_finished(&self) -> bool {
        self.ledger.pages().finish.load(Ordering::Acquire) != 0
    }

    /// Returns whether a scenario that makes many links makes one more.
    fn makes_another(&self) -> bool {
        !self.is_finished() && self.ledger.pages().links.load(Ordering::Acquire) < MOST.1
    }

    /// Waits while only the target acts.
    fn idle(&self, link: &Link) -> Result<(), Error> {
        while !self.is_finished() {
            link.progress()?;
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Sends up to `most` frames. At the end each call has a reply or has failed.
    fn stream(
        &self,
        counted: &CountedLink<'_>,
        scenario: Scenario,
        most: u64,
        random: &mut Rng,
    ) -> Result<(), Error> {
        let in_flight = if scenario == Scenario::LargeFrame { 2 } else { 8 };
        let mut calls = VecDeque::new();
        let mut streamed = Ok(());
        for _ in 0..most {
            if self.is_finished() {
                break;
            }
            streamed = self.turn(counted, scenario, random, &mut calls);
            if streamed.is_err() {
                break;
            }
            if calls.len() > in_flight
                && let Some(call) = calls.pop_front()
            {
                streamed = counted.settle(call);
                if streamed.is_err() {
                    break;
                }
            }
        }
        // Each pending call gets a reply, or fails with a reason.
        for call in calls {
            streamed = counted.settle(call).and(streamed);
        }
        streamed?;
        counted.link.flush(PATIENCE).inspect_err(|error| counted.is_gone(error))
    }

    /// One operation of a link.
    fn turn<'a>(
        &self,
        counted: &CountedLink<'a>,
        scenario: Scenario,
        random: &mut Rng,
        calls: &mut VecDeque<Call<'a>>,
    ) -> Result<(), Error> {
        let large = mailbox(counted.link) / 16;
        let mut shape = Shape { payload: random.u64(..10), ..Shape::default() };
        match scenario {
            Scenario::ReplyTravels => shape.reply = random.u64(..LONG_REPLY),
            Scenario::LargeFrame => shape.payload = random.u64(large / 2..large - 64),
            Scenario::Mixed if random.u8(..16) == 0 => shape.payload = random.u64(..large - 64),
            Scenario::Mixed if random.u8(..8) == 0 => shape.reply = random.u64(..LONG_REPLY),
            _ => {}
        }
        let entry =
            if scenario == Scenario::Mixed && random.u8(..8) == 0 { &self.bulky } else { &self.entry };
        match random.u8(..16) {
            0..6 if scenario != Scenario::ReplyTravels => counted.send(entry, shape),
            6 if let Some(call) = calls.pop_front() => {
                if let Some(call) = counted.look(call)? {
                    calls.push_front(call);
                }
                Ok(())
            }
            // Cancelled: it runs, and its outcome is dropped.
            7 if scenario == Scenario::Mixed => counted.inject(entry, shape).map(drop),
            8 if scenario == Scenario::Mixed => counted.link.flush(PATIENCE),
            _ => counted.inject(entry, shape).map(|call| calls.push_back(call)),
        }
        .inspect_err(|error| counted.is_gone(error))
    }

    /// Makes calls, and takes the outcomes only when a process was hit.
    fn look_away(&self, counted: &CountedLink<'_>, random: &mut Rng) -> Result<(), Error> {
        let calls = (0..random.u64(300..1000)).map(|_| counted.inject(&self.entry, Shape::default()));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        while self.ledger.pages().struck.load(Ordering::Acquire) == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        let mut looked = counted.link.progress().inspect_err(|error| counted.is_gone(error));
        for call in calls {
            looked = counted.settle(call).and(looked);
        }
        looked
    }

    /// Fills the mailbox of a target that is held, and waits for credit.
    fn fill(&self, counted: &CountedLink<'_>) -> Result<(), Error> {
        let shape = Shape { payload: mailbox(counted.link) / 128, ..Shape::default() };
        counted.send(&self.entry, Shape { held: true, ..shape })?;
        let call = counted.inject(&self.entry, shape)?;
        loop {
            match counted.try_send(&self.entry, shape) {
                Ok(()) => {}
                Err(Error::Inject(InjectError::Full)) => break,
                Err(error) => return counted.settle(call).and(Err(error)),
            }
        }
        self.ledger.pages().full.store(1, Ordering::Release);
        let sent = counted.send(&self.entry, shape);
        let settled = counted.settle(call);
        sent?;
        settled?;
        counted.link.flush(PATIENCE)
    }
}

/// Length from which frames count as large, in bytes.
fn mailbox(link: &Link) -> u64 {
    link.max_frame().min(MAILBOX) as u64
}
