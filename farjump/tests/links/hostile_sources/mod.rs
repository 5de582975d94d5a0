//! Sources that break the protocol over shared memory. The target detects and counts each, cuts its link with a
//! reason, and serves the other sources as before.

mod code;
mod control;
mod doorbells;
mod frames;
mod large_mailbox;
mod mailbox;
mod rewritten_frames;

use farjump::core::transport::Transport;
use farjump::{Library, Link, RefusalCause, Stats, TargetBuilder, TargetThread};
use farjump_fixtures::raw_source::RawSource;
use farjump_transports::shm::Shm;

use crate::support::{PATIENCE, Place, Seen, library, words};

/// A target on a thread of its own, and an honest source of it.
pub(super) struct Fixture {
    pub(super) place: Place,
    target: TargetThread,
    honest: Link,
    sequence: Library,
    calls: u64,
    /// Reports to the target's handlers: refused frames, and sources that are gone.
    refusals: Seen<String>,
    pub(super) gone: Seen<String>,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        Fixture::of(|target| target)
    }

    /// A fixture with a target that `change` alters.
    pub(super) fn of(change: impl FnOnce(TargetBuilder<'static>) -> TargetBuilder<'static>) -> Fixture {
        let place = Place::new();
        let (refusals, note_refusals) = Seen::new();
        let (gone, note_gone) = Seen::new();
        let target = change(place.target())
            .mailbox_size(1 << 16)
            .on_refused(move |_, refusal| note_refusals(refusal.to_string()))
            .on_peer_gone(move |_, why| note_gone(why.to_owned()))
            .build()
            .unwrap()
            .spawn()
            .unwrap();
        let honest = place.link().connect().unwrap();
        let sequence = library("sequence");
        Fixture { place, target, honest, sequence, calls: 0, refusals, gone }
    }

    /// A hostile source that has called honest code once, at index 0.
    pub(super) fn hostile(&self) -> RawSource {
        self.hostile_by(Box::new(Shm::new()))
    }

    /// The same, over `transport`.
    pub(super) fn hostile_by(&self, transport: Box<dyn Transport>) -> RawSource {
        let mut hostile = RawSource::connect_by(&self.place.address(), transport);
        let echo = library("echo");
        assert_eq!(hostile.call_new("echo", echo.images()[0].bytes(), b"honest so far"), b"honest so far");
        hostile
    }

    /// Checks that the target serves the honest source as before.
    pub(super) fn serves_on(&mut self) {
        for _ in 0..20 {
            let call = self.honest.inject(&self.sequence, &words(&[self.calls])).unwrap();
            self.calls += 1;
            assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[self.calls, 0]));
        }
    }

    /// Checks that the target cuts the link of `hostile` alone, with a text that contains `words`.
    pub(super) fn cuts(&mut self, mut hostile: RawSource, words: &str, what: &str) {
        let text = hostile.closing();
        assert!(text.starts_with("the target cut the link: ") && text.contains(words), "{what}: {text}");
        assert!(hostile.message().is_none(), "{what}");
        self.serves_on();
        assert_eq!(self.refusals.all().last(), Some(&text), "{what}");
        assert_eq!(self.gone.all().last(), Some(&text), "{what}");
    }

    /// Checks that the target refuses a frame of `hostile` for this cause with `words`; its link continues.
    pub(super) fn refuses(&mut self, hostile: &mut RawSource, cause: RefusalCause, words: &str, what: &str) {
        let (reported, text) = hostile.refusal(7);
        assert_eq!(reported, cause, "{what}: {text}");
        assert!(text.contains(words), "{what}: {text}");
        assert!(text.starts_with("the target refused "), "{what}: {text}");
        assert_eq!(text.matches("the target refused").count(), 1, "{what}: {text}");
        self.serves_on();
        assert_eq!(self.refusals.all().last(), Some(&text), "{what}");
    }

    pub(super) fn end(self) -> Stats {
        drop(self.honest);
        self.target.stop().unwrap().stats().clone()
    }
}

/// `frame` with other bytes at an offset.
pub(super) fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

pub(super) fn with_u32(frame: Vec<u8>, at: usize, value: u32) -> Vec<u8> {
    with(frame, at, &value.to_le_bytes())
}

/// Offset of the flags in a frame.
pub(super) const FLAGS: usize = 17;
