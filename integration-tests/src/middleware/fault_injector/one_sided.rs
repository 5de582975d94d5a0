//! Faults in puts into the peer's region.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::odds::{FOREVER, FaultGenerator};
use super::{Fault, Link};
use farjump_core::transport::{Cause, Operation, PathInfo, Reads, RemoteMemory, TransportError};

/// Operations held before the next one is refused as full.
const QUEUE: usize = 64;
/// Length of a word, in bytes.
const WORD: usize = 8;

pub(super) struct FaultyRemote {
    inner: Box<dyn RemoteMemory>,
    generator: FaultGenerator,
    link: Arc<Link>,
    /// Operations not yet passed to `inner`, oldest first.
    queue: VecDeque<Entry>,
    /// Copies passed to `inner`, each with the latest position known then. The contract lets `inner` read them until
    /// the peer has returned credit. The peer has returned credit for everything that is a region's length back.
    lent: VecDeque<(u64, Vec<u8>)>,
    /// Latest position of a frame put.
    latest: u64,
    /// True if the peer must be woken once the writes before the wake-up are passed to `inner`.
    owes_wake_up: bool,
}

enum Entry {
    Write(Write<'static>),
    Fence,
}

struct Write<'a> {
    offset: usize,
    data: Data<'a>,
    frame: u64,
    /// Remaining `progress` calls of its wait.
    wait: u64,
    /// True if later fences wait for it, false for intentionally late writes.
    ordered: bool,
}

enum Data<'a> {
    Bytes { bytes: Cow<'a, [u8]>, completion: bool },
    Word(u64),
}

impl Write<'_> {
    fn into_owned(self) -> Write<'static> {
        let data = match self.data {
            Data::Bytes { bytes, completion } => {
                Data::Bytes { bytes: Cow::Owned(bytes.into_owned()), completion }
            }
            Data::Word(word) => Data::Word(word),
        };
        Write { offset: self.offset, data, frame: self.frame, wait: self.wait, ordered: self.ordered }
    }

    fn give_to(&self, inner: &mut dyn RemoteMemory) -> Result<(), TransportError> {
        match &self.data {
            Data::Bytes { bytes, completion: false } => inner.put(self.offset, bytes, self.frame),
            Data::Bytes { bytes, completion: true } => {
                inner.put_with_completion(self.offset, bytes, self.frame)
            }
            Data::Word(word) => inner.put_word(self.offset, *word, self.frame),
        }
    }
}

impl FaultyRemote {
    pub(super) fn new(inner: Box<dyn RemoteMemory>, generator: FaultGenerator) -> Self {
        let link = generator.link().clone();
        FaultyRemote {
            inner,
            generator,
            link,
            queue: VecDeque::new(),
            lent: VecDeque::new(),
            latest: 0,
            owes_wake_up: false,
        }
    }

    /// Checks that one more operation of `len` bytes can be taken. This comes before the draw, so that a retry draws
    /// no second fault.
    fn admit(&mut self, offset: usize, len: usize, frame: u64) -> Result<(), TransportError> {
        self.link.check(Operation::Put)?;
        let region = self.inner.len();
        let cause = if offset.checked_add(len).is_none_or(|end| end > region) {
            Cause::OutOfRegion { offset, len, region }
        } else if self.queue.len() >= QUEUE {
            Cause::Full
        } else {
            return Ok(());
        };
        Err(TransportError::new(self.link.name.as_str(), Operation::Put, cause).with_frame(frame))
    }

    fn put_bytes(
        &mut self,
        offset: usize,
        bytes: &[u8],
        frame: u64,
        completion: bool,
    ) -> Result<(), TransportError> {
        self.admit(offset, bytes.len(), frame)?;
        self.latest = self.latest.max(frame);
        let region = self.inner.len() as u64;
        while self.lent.front().is_some_and(|(position, _)| position + region <= self.latest) {
            self.lent.pop_front();
        }
        let fault = self.generator.draw(|fault| match fault {
            Fault::Truncate | Fault::FlipBit => !bytes.is_empty(),
            // There must be a last word, and a rest.
            Fault::HoldLastWord | Fault::Overtake => bytes.len() >= 2 * WORD,
            Fault::Delay | Fault::Kill => true,
        });
        let late = self.generator.turns();
        let split = bytes.len().saturating_sub(WORD);
        let part = |from: usize, to: usize, completion, wait, ordered| Write {
            offset: offset + from,
            data: Data::Bytes { bytes: Cow::Borrowed(&bytes[from..to]), completion },
            frame,
            wait,
            ordered,
        };
        let len = bytes.len();
        match fault {
            None => self.submit(part(0, len, completion, 0, true)),
            Some(Fault::Delay) => self.submit(part(0, len, completion, late, true)),
            Some(Fault::Truncate) => {
                let kept = self.generator.below(len);
                self.submit(part(0, kept, completion, 0, true))
            }
            Some(Fault::HoldLastWord) => {
                self.submit(part(0, split, completion, 0, true))?;
                self.submit(part(split, len, false, late, false))
            }
            Some(Fault::Overtake) => {
                self.submit(part(0, split, false, late, false))?;
                self.submit(part(split, len, completion, 0, true))
            }
            Some(Fault::FlipBit) => {
                let mut spoilt = bytes.to_vec();
                self.generator.flip(&mut spoilt);
                let data = Data::Bytes { bytes: Cow::Owned(spoilt), completion };
                self.submit(Write { offset, data, frame, wait: 0, ordered: true })
            }
            Some(Fault::Kill) => Err(self.broken(Operation::Put, frame)),
        }
    }

    fn broken(&mut self, operation: Operation, frame: u64) -> TransportError {
        self.queue.clear();
        self.link.holding.store(false, Relaxed);
        self.link.kill(operation, frame)
    }

    /// Passes a write to the inner transport now, or queues it.
    fn submit(&mut self, write: Write<'_>) -> Result<(), TransportError> {
        if write.wait == FOREVER && !write.ordered {
            return Ok(());
        }
        let owned = matches!(write.data, Data::Bytes { bytes: Cow::Owned(_), .. });
        if self.queue.is_empty() && write.wait == 0 && !owned {
            match write.give_to(&mut *self.inner) {
                Err(error) if error.is_full() => {}
                result => return result,
            }
        }
        self.queue.push_back(Entry::Write(write.into_owned()));
        self.flush()
    }

    /// Passes operations whose wait is over to the inner transport, up to the first fence for which an ordered write
    /// still waits.
    fn flush(&mut self) -> Result<(), TransportError> {
        let mut at = 0;
        let mut fence_waits = false;
        let mut will_give = false;
        while let Some(entry) = self.queue.get(at) {
            let given = match entry {
                Entry::Fence if fence_waits => break,
                Entry::Fence => self.inner.fence(),
                Entry::Write(write) if write.wait > 0 => {
                    fence_waits |= write.ordered;
                    will_give |= write.wait != FOREVER;
                    at += 1;
                    continue;
                }
                Entry::Write(write) => write.give_to(&mut *self.inner),
            };
            match given {
                Err(error) if error.is_full() => {
                    will_give = true;
                    break;
                }
                result => result?,
            }
            let given = self.queue.remove(at);
            if let Some(Entry::Write(Write { data: Data::Bytes { bytes, .. }, .. })) = given {
                self.lent.push_back((self.latest, bytes.into_owned()));
            }
        }
        self.link.holding.store(!self.queue.is_empty(), Relaxed);
        if self.owes_wake_up && !will_give {
            self.owes_wake_up = false;
            self.inner.wake_peer()?;
        }
        Ok(())
    }
}

// SAFETY: no mapping is returned.
unsafe impl RemoteMemory for FaultyRemote {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.put_bytes(offset, bytes, frame, false)
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        self.admit(offset, WORD, frame)?;
        let fault = self.generator.draw(|fault| matches!(fault, Fault::Delay | Fault::FlipBit | Fault::Kill));
        let mut bytes = word.to_ne_bytes();
        let mut wait = 0;
        match fault {
            Some(Fault::Kill) => return Err(self.broken(Operation::Put, frame)),
            Some(Fault::FlipBit) => self.generator.flip(&mut bytes),
            Some(_) => wait = self.generator.turns(),
            None => {}
        }
        let data = Data::Word(u64::from_ne_bytes(bytes));
        self.submit(Write { offset, data, frame, wait, ordered: true })
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        self.link.check(Operation::Fence)?;
        if self.queue.is_empty() {
            return self.inner.fence();
        }
        self.queue.push_back(Entry::Fence);
        self.flush()
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.put_bytes(offset, bytes, frame, true)
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        if let Err(gone) = self.link.check(Operation::Progress) {
            self.queue.clear();
            return Err(gone);
        }
        for entry in &mut self.queue {
            if let Entry::Write(Write { wait, .. }) = entry
                && *wait != FOREVER
            {
                *wait = wait.saturating_sub(1);
            }
        }
        self.inner.progress()?;
        self.flush()
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        self.link.check(Operation::Wake)?;
        self.owes_wake_up = true;
        self.flush()
    }

    fn path_info(&self) -> PathInfo {
        self.inner.path_info()
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        self.inner.reads()
    }
}
