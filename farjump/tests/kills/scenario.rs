//! Scenes: the source's actions when it, or its target, is killed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use farjump::{Error, InjectError, Library, Link, WaitPolicy};
use fastrand::Rng;

use crate::counted_link::{Call, Line, Shape};
use crate::fixture::link;
use crate::journal::{LINKS, LOG, Ledger};
use crate::support::PATIENCE;

/// Capacity for replies, in bytes.
const REPLY_MAILBOX_SIZE: usize = 256 * 1024;
/// Most bytes of a mailbox. Over streams a single frame may have more, which would wait for an empty window.
const MAILBOX: usize = 1 << 22;
/// Words of the longest reply: 100 KiB.
const LONG_REPLY: u64 = 100 * 1024 / 8;
/// Most frames of a scene, and most links, so that the ledger has space for a farewell, too.
const MOST: (u64, u64) = (LOG as u64 - 1024, LINKS as u64 - 16);

/// The scenes. Each continues until a process is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Scene {
    /// Links are made and dropped.
    Meeting,
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

impl Scene {
    pub(crate) const ALL: [Scene; 10] = [
        Scene::Meeting,
        Scene::CodeTravels,
        Scene::FunctionRuns,
        Scene::ReplyTravels,
        Scene::LookingAway,
        Scene::MailboxFull,
        Scene::Asleep,
        Scene::Reconnecting,
        Scene::LargeFrame,
        Scene::Mixed,
    ];

    /// Whether a call of it is held until `hold` of the ledger is 0.
    pub(crate) fn holds(self) -> bool {
        matches!(self, Scene::FunctionRuns | Scene::MailboxFull | Scene::Asleep)
    }
}

/// A source that plays scenes.
pub(crate) struct Source<'l> {
    pub(crate) ledger: &'l Ledger,
    pub(crate) address: String,
    /// The function that writes into the ledger.
    pub(crate) entry: Library,
    /// The same in a large image.
    pub(crate) bulky: Library,
}

impl Source<'_> {
    /// Plays until the target is gone, or until the order to finish: then all sent frames have run, and
    /// every call was answered.
    pub(crate) fn play(&self, scene: Scene, dice: &mut Rng) -> Result<(), Error> {
        self.ledger.pages().acting.store(1, Ordering::Release);
        let mut link = self.meet(scene, dice)?;
        match scene {
            Scene::Meeting => {
                while self.goes_on() {
                    drop(std::mem::replace(&mut link, self.meet(scene, dice)?));
                }
                Ok(())
            }
            Scene::CodeTravels => {
                while self.goes_on() {
                    link = self.meet(scene, dice)?;
                    let shape = Shape { payload: dice.u64(..100), ..Shape::default() };
                    let line = self.line(&link);
                    line.settle(line.inject(&self.bulky, shape)?)?;
                }
                self.idle(&link)
            }
            Scene::Reconnecting => {
                while self.goes_on() {
                    let line = self.line(&link);
                    let frames = dice.u64(1..20);
                    self.stream(&line, scene, frames, dice)?;
                    if let Err(error) = link.reconnect() {
                        // The link is unchanged: its target is gone.
                        self.line(&link).is_gone(&link.flush(PATIENCE).unwrap_err());
                        return Err(error);
                    }
                }
                self.idle(&link)
            }
            Scene::FunctionRuns | Scene::Asleep => {
                let line = self.line(&link);
                line.settle(line.inject(&self.entry, Shape { held: true, ..Shape::default() })?)?;
                self.idle(&link)
            }
            Scene::LookingAway => {
                self.look_away(&self.line(&link), dice)?;
                self.idle(&link)
            }
            Scene::MailboxFull => {
                self.fill(&self.line(&link))?;
                self.idle(&link)
            }
            Scene::ReplyTravels | Scene::LargeFrame | Scene::Mixed => {
                self.stream(&self.line(&link), scene, MOST.0, dice)?;
                self.idle(&link)
            }
        }
    }

    /// Makes a few calls over a link of their own, which all have to succeed.
    pub(crate) fn greet(&self, dice: &mut Rng) {
        let link = self.meet(Scene::Mixed, dice).unwrap();
        let line = self.line(&link);
        self.stream(&line, Scene::Mixed, 20, dice).unwrap();
        line.settle(line.inject(&self.bulky, Shape::default()).unwrap()).unwrap();
    }

    fn meet(&self, scene: Scene, dice: &mut Rng) -> Result<Link, Error> {
        let policies = [
            WaitPolicy::sleep_only(),
            WaitPolicy { spins: 100, pauses: 0, yields: 0 },
            WaitPolicy::for_cores(2, 2),
        ];
        let policy = if scene == Scene::Asleep { 0 } else { dice.usize(..policies.len()) };
        link(&self.address)
            .reply_mailbox_size(REPLY_MAILBOX_SIZE)
            .wait_policy(policies[policy])
            .connect_timeout(PATIENCE)
            .send_timeout(PATIENCE)
            .connect()
    }

    fn line<'a>(&'a self, link: &'a Link) -> Line<'a> {
        Line::open(link, &self.address, self.ledger)
    }

    fn is_finished(&self) -> bool {
        self.ledger.pages().finish.load(Ordering::Acquire) != 0
    }

    /// Whether a scene that makes many links makes one more.
    fn goes_on(&self) -> bool {
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

    /// Sends up to `most` frames. All calls are answered at the end, or failed.
    fn stream(&self, line: &Line<'_>, scene: Scene, most: u64, dice: &mut Rng) -> Result<(), Error> {
        let in_flight = if scene == Scene::LargeFrame { 2 } else { 8 };
        let mut calls = VecDeque::new();
        let mut streamed = Ok(());
        for _ in 0..most {
            if self.is_finished() {
                break;
            }
            streamed = self.turn(line, scene, dice, &mut calls);
            if streamed.is_err() {
                break;
            }
            if calls.len() > in_flight
                && let Some(call) = calls.pop_front()
            {
                streamed = line.settle(call);
                if streamed.is_err() {
                    break;
                }
            }
        }
        // Pending calls are answered, or fail with a reason.
        for call in calls {
            streamed = line.settle(call).and(streamed);
        }
        streamed?;
        line.link.flush(PATIENCE).inspect_err(|error| line.is_gone(error))
    }

    /// One operation of a link.
    fn turn<'a>(
        &self,
        line: &Line<'a>,
        scene: Scene,
        dice: &mut Rng,
        calls: &mut VecDeque<Call<'a>>,
    ) -> Result<(), Error> {
        let large = mailbox(line.link) / 16;
        let mut shape = Shape { payload: dice.u64(..10), ..Shape::default() };
        match scene {
            Scene::ReplyTravels => shape.reply = dice.u64(..LONG_REPLY),
            Scene::LargeFrame => shape.payload = dice.u64(large / 2..large - 64),
            Scene::Mixed if dice.u8(..16) == 0 => shape.payload = dice.u64(..large - 64),
            Scene::Mixed if dice.u8(..8) == 0 => shape.reply = dice.u64(..LONG_REPLY),
            _ => {}
        }
        let entry = if scene == Scene::Mixed && dice.u8(..8) == 0 { &self.bulky } else { &self.entry };
        match dice.u8(..16) {
            0..6 if scene != Scene::ReplyTravels => line.send(entry, shape),
            6 if let Some(call) = calls.pop_front() => {
                if let Some(call) = line.look(call)? {
                    calls.push_front(call);
                }
                Ok(())
            }
            // Cancelled: it runs, and its outcome is dropped.
            7 if scene == Scene::Mixed => line.inject(entry, shape).map(drop),
            8 if scene == Scene::Mixed => line.link.flush(PATIENCE),
            _ => line.inject(entry, shape).map(|call| calls.push_back(call)),
        }
        .inspect_err(|error| line.is_gone(error))
    }

    /// Makes calls, and takes the outcomes only when a process was hit.
    fn look_away(&self, line: &Line<'_>, dice: &mut Rng) -> Result<(), Error> {
        let calls = (0..dice.u64(300..1000)).map(|_| line.inject(&self.entry, Shape::default()));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        while self.ledger.pages().struck.load(Ordering::Acquire) == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        let mut looked = line.link.progress().inspect_err(|error| line.is_gone(error));
        for call in calls {
            looked = line.settle(call).and(looked);
        }
        looked
    }

    /// Fills the mailbox of a target that is held, and waits for credit.
    fn fill(&self, line: &Line<'_>) -> Result<(), Error> {
        let shape = Shape { payload: mailbox(line.link) / 128, ..Shape::default() };
        line.send(&self.entry, Shape { held: true, ..shape })?;
        let call = line.inject(&self.entry, shape)?;
        loop {
            match line.try_send(&self.entry, shape) {
                Ok(()) => {}
                Err(Error::Inject(InjectError::Full)) => break,
                Err(error) => return line.settle(call).and(Err(error)),
            }
        }
        self.ledger.pages().full.store(1, Ordering::Release);
        let sent = line.send(&self.entry, shape);
        let settled = line.settle(call);
        sent?;
        settled?;
        line.link.flush(PATIENCE)
    }
}

/// Length from which frames count as large, in bytes.
fn mailbox(link: &Link) -> u64 {
    link.max_frame().min(MAILBOX) as u64
}
