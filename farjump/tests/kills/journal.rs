//! The ledger: counts of calls run, sent and replied, in a file that outlives a killed process.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Capacity of the log in calls. `entry.h` has the same number.
pub(crate) const LOG: usize = 1 << 18;
/// Links that sources may make between two [`Ledger::clear`].
pub(crate) const LINKS: usize = 1 << 13;

/// The file. The first part is `struct ledger` of `entry.h`, which the injected function writes.
#[repr(C)]
pub(crate) struct Pages {
    begun: AtomicU64,
    ended: AtomicU64,
    torn: AtomicU64,
    /// While it is not 0, held calls do not end.
    pub(crate) hold: AtomicU64,
    log: [AtomicU64; LOG],
    /// The source has begun its scenario.
    pub(crate) acting: AtomicU64,
    /// The source has found the mailbox full.
    pub(crate) full: AtomicU64,
    /// The victim has been hit.
    pub(crate) struck: AtomicU64,
    /// The source is to finish.
    pub(crate) finish: AtomicU64,
    /// Links that the source has made.
    pub(crate) links: AtomicU64,
    journals: [Journal; LINKS],
}

/// The source's account of one link. Only the source writes here. Each store comes before the event that it
/// announces, or after the event that it confirms. So the account is right wherever its writer is killed.
#[repr(C)]
pub(crate) struct Journal {
    /// Frames whose sending has begun. They are numbered from 0.
    pub(crate) started: AtomicU64,
    /// Frames that were sent.
    pub(crate) sent: AtomicU64,
    /// One more than the number of the last call that has a reply.
    pub(crate) replied: AtomicU64,
    /// Calls that have a reply.
    pub(crate) replies: AtomicU64,
    /// One more than the number of the first call whose wait failed; 0 if none did.
    pub(crate) failed: AtomicU64,
    /// Calls whose wait failed.
    pub(crate) failures: AtomicU64,
}

/// Result of a round.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) links: u64,
    pub(crate) ran: u64,
    pub(crate) replied: u64,
    pub(crate) failed: u64,
    /// Calls that had begun and not ended.
    pub(crate) cut: u64,
    /// Frames that the source was about to send, or waited for credit for.
    pub(crate) unsent: u64,
    /// Handshakes that failed.
    pub(crate) failed_handshakes: u64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        let Outcome { links, ran, replied, failed, cut, unsent, failed_handshakes } = other;
        self.links += links;
        self.ran += ran;
        self.replied += replied;
        self.failed += failed;
        self.cut += cut;
        self.unsent += unsent;
        self.failed_handshakes += failed_handshakes;
    }
}

/// The process that the signal hit, and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    TargetKilled,
    SourceKilled,
    BothLive,
}

/// The part of a killed process's data that its peer still receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlives {
    /// Everything that it wrote: the memory belongs to both processes.
    Everything,
    /// Bytes that have arrived: those in the buffers of its system, or in its own, may be lost.
    WhatArrived,
}

pub(crate) struct Ledger(MmapRaw);

impl Ledger {
    pub(crate) fn create(path: &Path) -> Ledger {
        File::create_new(path).unwrap().set_len(size_of::<Pages>() as u64).unwrap();
        Ledger::open(path)
    }

    pub(crate) fn open(path: &Path) -> Ledger {
        let file = File::options().read(true).write(true).open(path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size_of::<Pages>() as u64);
        Ledger(MmapOptions::new().len(size_of::<Pages>()).map_raw(&file).unwrap())
    }

    pub(crate) fn pages(&self) -> &Pages {
        // SAFETY: the mapping is page-aligned, as long as `Pages` and lives as long as `self`. No process shortens
        // the file. `Pages` has atomics only, for which every bit pattern is valid.
        unsafe { &*self.0.as_ptr().cast::<Pages>() }
    }

    /// The start of the pages, for the injected function.
    pub(crate) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }

    pub(crate) fn journal(&self, link: u64) -> &Journal {
        &self.pages().journals[link as usize]
    }

    /// Clears the ledger. No process may be writing.
    pub(crate) fn clear(&self) {
        let pages = self.pages();
        let links = pages.links.swap(0, Ordering::Relaxed);
        for journal in &pages.journals[..(links as usize + 1).min(LINKS)] {
            let Journal { started, sent, replied, replies, failed, failures } = journal;
            for word in [started, sent, replied, replies, failed, failures] {
                word.store(0, Ordering::Relaxed);
            }
        }
        let Pages { begun, ended, torn, hold, acting, full, struck, finish, .. } = pages;
        for word in [begun, ended, torn, hold, acting, full, struck, finish] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Makes the players finish.
    pub(crate) fn finish(&self) {
        self.pages().hold.store(0, Ordering::Release);
        self.pages().finish.store(1, Ordering::Release);
    }

    pub(crate) fn begun(&self) -> u64 {
        self.pages().begun.load(Ordering::Acquire)
    }

    pub(crate) fn ended(&self) -> u64 {
        self.pages().ended.load(Ordering::Acquire)
    }

    /// Returns whether a call is running.
    pub(crate) fn runs(&self) -> bool {
        self.begun() > self.ended()
    }

    /// The name of the call that ran as number `place` of all.
    pub(crate) fn ran_at(&self, place: u64) -> u64 {
        self.pages().log[place as usize].load(Ordering::Relaxed)
    }

    /// Compares the calls run with those sent and those with a reply. No process may be writing.
    pub(crate) fn audit(&self, fate: Fate, outlives: Outlives) -> Outcome {
        let (begun, ended) = (self.begun(), self.ended());
        assert!(begun <= LOG as u64, "the log is too short for this");
        assert!(ended <= begun && begun - ended <= 1, "{begun} calls began and {ended} ended");
        assert_eq!(self.pages().torn.load(Ordering::Relaxed), 0, "payloads came damaged");
        let links = self.pages().links.load(Ordering::Relaxed);
        let (mut ran, mut whole) = (vec![0; links as usize], vec![0; links as usize]);
        for place in 0..begun {
            let (link, number) = parts(self.ran_at(place));
            assert!(link < links, "call {place} is of link {link}, and there are {links}");
            assert_eq!(number, ran[link as usize], "link {link}: a frame ran twice, out of order or never");
            ran[link as usize] += 1;
            whole[link as usize] += u64::from(place < ended);
        }
        let mut outcome = Outcome { links, ran: begun, cut: begun - ended, ..Outcome::default() };
        for link in 0..links {
            let journal = self.journal(link);
            let [started, sent, replied, replies, failed, failures] = [
                &journal.started,
                &journal.sent,
                &journal.replied,
                &journal.replies,
                &journal.failed,
                &journal.failures,
            ]
            .map(|word| word.load(Ordering::Acquire));
            let (ran, whole) = (ran[link as usize], whole[link as usize]);
            let account = format!(
                "link {link} of {links}: {started} started, {sent} sent, {ran} ran, {whole} to their end; answered {replies} up to {replied}; {failures} failed from {failed} on; {fate:?}"
            );
            assert!(replied <= whole, "an answer to what did not run: {account}");
            match fate {
                // Only the last messages are lost. A call can have run only if its sending had begun.
                Fate::TargetKilled if outlives == Outlives::WhatArrived => {
                    assert!(ran <= sent, "what was not sent ran: {account}");
                }
                Fate::SourceKilled if outlives == Outlives::WhatArrived => {
                    assert!(ran <= started, "what was not sent ran: {account}");
                }
                // Each call that ran counts as sent at its source.
                Fate::TargetKilled => {
                    assert!(ran <= sent, "what was said not to be sent ran: {account}");
                    // The target replies to a call before it takes the next frame.
                    assert!(failed == 0 || ran <= failed + 1, "an answer was lost: {account}");
                }
                Fate::SourceKilled => assert!(sent <= ran && ran <= started, "a frame was lost: {account}"),
                Fate::BothLive => {
                    assert!(sent == ran && ran == whole, "a frame was lost: {account}");
                    assert_eq!(failures, 0, "a call failed: {account}");
                }
            }
            outcome.replied += replies;
            outcome.failed += failures;
            outcome.unsent += started - sent;
        }
        outcome
    }
}

/// The name of frame `number` of `link`.
pub(crate) fn name(link: u64, number: u64) -> u64 {
    link << 32 | number
}

/// Link and number of a name.
pub(crate) fn parts(name: u64) -> (u64, u64) {
    (name >> 32, name & 0xffff_ffff)
}
