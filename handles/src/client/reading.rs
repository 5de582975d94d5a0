//! Reading objects that the owner lends, by the transport: reads of RDMA, gets of UCX.
//!
//! A link carries out one read at a time. No thread keeps the link for itself: each looks for a moment. The first
//! thread that looks after a read has ended keeps the bytes for the caller of that read. So a thread that is away, as
//! in its caller's check, stops no other thread from reading. A read made inside such a check does not wait for the
//! read below it, either.

use std::sync::Mutex;
use std::time::Duration;

use farjump::core::transport::{Cause, TransportError};
use farjump::objects::ReadBytes;
use farjump::{Link, MemoryRead, Patience, SharedLink};

use crate::client::sleeping::NAP;
use crate::client::{Client, lock};
use crate::error::Error;
use crate::owner::table::Claimed;
use crate::wire::handle::Handle;

/// Number of looks for the bytes before the thread sleeps.
const LOOKS: u32 = 2000;
/// The first sleep between two looks.
const FIRST_NAP: Duration = Duration::from_micros(20);

/// A link that reads memory: [`SharedLink`], or a test's.
trait ReadsMemory {
    /// As [`Link::start_read`].
    fn start(&self, key: &[u8], len: usize) -> Result<Result<(), TransportError>, farjump::Error>;

    /// As [`Link::poll_read`].
    fn poll(&self) -> Result<MemoryRead, farjump::Error>;
}

impl ReadsMemory for SharedLink {
    fn start(&self, key: &[u8], len: usize) -> Result<Result<(), TransportError>, farjump::Error> {
        self.with(|link| link.start_read(key, len))
    }

    fn poll(&self) -> Result<MemoryRead, farjump::Error> {
        self.with(Link::poll_read)?
    }
}

/// A claimed object that is being read: the claim, and the object's length.
type Read = (u64, usize);

/// The outcome of a read.
enum Outcome {
    Bytes(ReadBytes),
    /// The transport does not read this memory.
    Refused(TransportError),
}

/// The reads of a link. Locked before the link.
#[derive(Default)]
pub(crate) struct Reads {
    /// Number of the last read.
    last: u64,
    in_flight: Option<InFlight>,
    /// Ended reads whose end another thread has seen, by number. There are as many as callers that have not looked
    /// since.
    ended: Vec<(u64, Outcome)>,
}

struct InFlight {
    number: u64,
    read: Read,
    /// True if its caller waits.
    is_wanted: bool,
}

impl Reads {
    /// Checks the read under way. If it has ended and its caller had stopped waiting, returns it: its claim is of no
    /// more use.
    fn look(&mut self, link: &impl ReadsMemory) -> Result<Option<Read>, farjump::Error> {
        if self.in_flight.is_none() {
            return Ok(None);
        }
        let outcome = match link.poll()? {
            MemoryRead::InFlight => return Ok(None),
            MemoryRead::Done(bytes) => Outcome::Bytes(bytes),
            MemoryRead::Refused(error) => Outcome::Refused(error),
        };
        let Some(InFlight { number, read, is_wanted }) = self.in_flight.take() else { return Ok(None) };
        if !is_wanted {
            return Ok(Some(read));
        }
        self.ended.push((number, outcome));
        Ok(None)
    }

    /// Starts a read, and returns its number. `None` while another is under way.
    fn start(
        &mut self,
        link: &impl ReadsMemory,
        loan: &[u8],
        read: Read,
    ) -> Result<Result<Option<u64>, TransportError>, farjump::Error> {
        if self.in_flight.is_some() {
            return Ok(Ok(None));
        }
        match link.start(loan, read.1)? {
            Ok(()) => {}
            Err(error) if *error.cause() == Cause::Full => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        }
        self.last += 1;
        self.in_flight = Some(InFlight { number: self.last, read, is_wanted: true });
        Ok(Ok(Some(self.last)))
    }

    /// Takes the outcome of an ended read.
    fn take(&mut self, number: u64) -> Option<Outcome> {
        let at = self.ended.iter().position(|(ended, _)| *ended == number)?;
        Some(self.ended.swap_remove(at).1)
    }

    /// Stops waiting for this read. Returns whether it has ended.
    fn give_up(&mut self, number: u64) -> bool {
        match &mut self.in_flight {
            Some(in_flight) if in_flight.number == number => {
                // The device still reads the object: if the loan ended now, the link would.
                in_flight.is_wanted = false;
                false
            }
            _ => {
                self.take(number);
                true
            }
        }
    }
}

impl Client {
    /// Reads a claimed object by the key of its loan, and releases it. Returns `None` if the transport does not read
    /// it.
    ///
    /// Memory for all of it is registered before the first byte comes. So the handle decides how much, and not the
    /// owner.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        claimed: Claimed,
        loan: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<Option<ReadBytes>, Error> {
        let Ok(len) = usize::try_from(claimed.len) else { return Ok(None) };
        if loan.is_empty() || len == 0 || claimed.len != handle.len {
            return Ok(None);
        }
        let reader = Reader {
            link: &self.0.link,
            reads: &self.0.reading,
            address: self.address(),
            release: &|(claim, len)| self.0.release(claim, len),
        };
        reader.read(loan, (claimed.claim, len), patience)
    }
}

/// Reads by a link that several threads share.
struct Reader<'r, L> {
    link: &'r L,
    reads: &'r Mutex<Reads>,
    address: &'r str,
    /// Releases a claim.
    release: &'r dyn Fn(Read),
}

impl<L: ReadsMemory> Reader<'_, L> {
    /// Reads a claimed object, and releases it. Returns `None` if the transport does not read it: the object then stays
    /// claimed.
    fn read(&self, loan: &[u8], read: Read, patience: &mut Patience<'_>) -> Result<Option<ReadBytes>, Error> {
        let mut pace = Pace { looks: 0, nap: FIRST_NAP };
        let number = loop {
            match self.with(|link, reads| Ok((reads.look(link)?, reads.start(link, loan, read)?)))? {
                Ok(Some(number)) => break number,
                Ok(None) => {}
                Err(error) => return Ok(comes_in_frames(read, &error)),
            }
            if let Err(error) = self.pause(&mut pace, patience) {
                (self.release)(read);
                return Err(error);
            }
        };
        loop {
            match self.with(|link, reads| {
                // The read may have ended before.
                let ended = reads.take(number);
                let unwanted = if ended.is_some() { None } else { reads.look(link)? };
                Ok((unwanted, ended.or_else(|| reads.take(number))))
            })? {
                Some(Outcome::Bytes(bytes)) => {
                    (self.release)(read);
                    return Ok(Some(bytes));
                }
                Some(Outcome::Refused(error)) => return Ok(comes_in_frames(read, &error)),
                None => {}
            }
            if let Err(error) = self.pause(&mut pace, patience) {
                if lock(self.reads).give_up(number) {
                    (self.release)(read);
                }
                return Err(error);
            }
        }
    }

    /// Locks the reads for `act` alone. Releases the claim of an ended read whose caller stopped waiting.
    fn with<T>(
        &self,
        act: impl FnOnce(&L, &mut Reads) -> Result<(Option<Read>, T), farjump::Error>,
    ) -> Result<T, Error> {
        let (unwanted, done) = act(self.link, &mut lock(self.reads))?;
        unwanted.into_iter().for_each(self.release);
        Ok(done)
    }

    /// Passes a moment between two looks.
    fn pause(&self, pace: &mut Pace, patience: &mut Patience<'_>) -> Result<(), Error> {
        if pace.looks < LOOKS {
            pace.looks += 1;
            std::hint::spin_loop();
            return Ok(());
        }
        if !patience.may_continue() {
            return Err(Error::Interrupted);
        }
        if patience.is_over() {
            let (address, timeout) = (self.address.to_owned(), patience.timeout());
            return Err(Error::TimedOut { address, timeout });
        }
        let time = patience.slice(pace.nap);
        patience.sleep(|| std::thread::sleep(time));
        pace.nap = (pace.nap * 2).min(NAP);
        Ok(())
    }
}

fn comes_in_frames<T>((claim, _): Read, why: &TransportError) -> Option<T> {
    log::debug!("object {claim} comes in frames: {why}");
    None
}

/// The pace of a wait for bytes: it looks often at first, then sleeps for longer and longer.
struct Pace {
    looks: u32,
    nap: Duration,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A link whose reads end when a test permits.
    #[derive(Default)]
    struct Device {
        /// The length of the read under way.
        in_flight: Cell<Option<usize>>,
        may_end: Cell<bool>,
    }

    impl ReadsMemory for Mutex<Device> {
        fn start(&self, key: &[u8], len: usize) -> Result<Result<(), TransportError>, farjump::Error> {
            assert_eq!((key, lock(self).in_flight.replace(Some(len))), (&b"loan"[..], None));
            Ok(Ok(()))
        }

        fn poll(&self) -> Result<MemoryRead, farjump::Error> {
            let device = lock(self);
            Ok(match device.in_flight.get().filter(|_| device.may_end.get()) {
                Some(len) => {
                    device.in_flight.set(None);
                    MemoryRead::Done(ReadBytes::new(vec![len as u8; len]))
                }
                None => MemoryRead::InFlight,
            })
        }
    }

    /// Longer than a test takes.
    const LONG: Duration = Duration::from_secs(30);

    #[derive(Default)]
    struct Bench {
        link: Mutex<Device>,
        reads: Mutex<Reads>,
        released: Mutex<Vec<u64>>,
    }

    impl Bench {
        /// Reads an object of `len` bytes, whose claim has the same number.
        fn read(&self, len: usize, patience: &mut Patience<'_>) -> Result<Option<ReadBytes>, Error> {
            let release = |(claim, _): Read| lock(&self.released).push(claim);
            let reader =
                Reader { link: &self.link, reads: &self.reads, address: "unix:owner", release: &release };
            reader.read(b"loan", (len as u64, len), patience)
        }

        fn gets(&self, len: usize, patience: &mut Patience<'_>) {
            let bytes = self.read(len, patience).unwrap().unwrap();
            assert_eq!(*bytes, vec![len as u8; len]);
        }
    }

    #[test]
    fn reads_made_in_the_check_of_a_read_finish_before_it() {
        let bench = Bench::default();
        let mut checks = 0;
        let mut check = || {
            checks += 1;
            lock(&bench.link).may_end.set(true);
            bench.gets(2, &mut Patience::of(LONG));
            std::thread::scope(|threads| {
                threads.spawn(|| bench.gets(3, &mut Patience::of(LONG)));
            });
            true
        };
        bench.gets(1, &mut Patience::of(LONG).checked_by(&mut check));
        assert_eq!(checks, 1, "it read while the other one waited");
        assert_eq!(*lock(&bench.released), [2, 3, 1]);
        assert!(lock(&bench.reads).ended.is_empty());
    }

    #[test]
    fn a_given_up_read_keeps_its_claim_until_it_ends() {
        let bench = Bench::default();
        let mut given_up = || false;
        let ended = bench.read(1, &mut Patience::of(LONG).checked_by(&mut given_up));
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert!(lock(&bench.released).is_empty(), "the device reads it");
        // A read that has not begun holds nothing.
        assert!(bench.read(2, &mut Patience::of(LONG).checked_by(&mut given_up)).is_err());
        assert_eq!(*lock(&bench.released), [2]);
        lock(&bench.link).may_end.set(true);
        bench.gets(3, &mut Patience::of(LONG));
        assert_eq!(*lock(&bench.released), [2, 1, 3]);
    }

    #[test]
    fn a_read_that_ends_while_given_up_is_released_once() {
        let bench = Bench::default();
        let mut check = || {
            lock(&bench.link).may_end.set(true);
            bench.gets(2, &mut Patience::of(LONG));
            false
        };
        let ended = bench.read(1, &mut Patience::of(LONG).checked_by(&mut check));
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert_eq!(*lock(&bench.released), [2, 1]);
        assert!(lock(&bench.reads).ended.is_empty());
    }
}
