//! Faults in messages.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use super::odds::{FOREVER, FaultGenerator};
use super::{Fault, Link};
use crate::middleware::pages::Pages;
use farjump_core::frame::LINE;
use farjump_core::transport::{
    self, BorrowedFd, Cause, Lender, Messages, Operation, PathInfo, Reads, TransportError,
};

/// Messages held before the next buffer is refused.
const QUEUE: usize = 64;
/// Length of a word, in bytes.
const WORD: usize = 8;

pub(super) struct FaultyMessages {
    inner: Box<dyn Messages>,
    generator: FaultGenerator,
    link: Arc<Link>,
    max_frame: usize,
    /// The buffer reserved and not committed.
    space: Option<Pages>,
    /// Messages not yet passed to `inner`, oldest first.
    queue: VecDeque<Message>,
    /// Length and running number of a message copied into a buffer of `inner`, which could not yet take it.
    copied: Option<(usize, u64)>,
}

struct Message {
    pages: Pages,
    frame: u64,
    /// Remaining `progress` calls of its wait.
    wait: u64,
    /// Whether later ones wait for it.
    ordered: bool,
}

impl FaultyMessages {
    pub(super) fn new(inner: Box<dyn Messages>, generator: FaultGenerator, max_frame: usize) -> Self {
        let link = generator.link().clone();
        FaultyMessages {
            inner,
            generator,
            link,
            max_frame,
            space: None,
            queue: VecDeque::new(),
            copied: None,
        }
    }

    fn failed(&self, operation: Operation, cause: Cause) -> TransportError {
        TransportError::new(self.link.name.as_str(), operation, cause)
    }

    /// Passes messages whose wait is over to the inner transport, up to the first for which later ones wait.
    fn flush(&mut self) -> Result<(), TransportError> {
        let mut at = 0;
        loop {
            if let Some((len, frame)) = self.copied {
                match self.inner.commit(len, frame) {
                    Err(error) if error.is_full() => return Ok(()),
                    result => result?,
                }
                self.copied = None;
            }
            let Some(message) = self.queue.get(at) else { return Ok(()) };
            if message.wait > 0 {
                if message.ordered {
                    return Ok(());
                }
                at += 1;
                continue;
            }
            let len = message.pages.len();
            match self.inner.reserve(len) {
                // SAFETY: the buffer is `len` bytes lent by the inner transport until its commit, separate
                // from this value's memory.
                Ok(space) => unsafe { message.pages.copy_to(space) },
                Err(error) if error.is_full() => return Ok(()),
                Err(error) => return Err(error.with_frame(message.frame)),
            }
            self.copied = Some((len, message.frame));
            self.queue.remove(at);
        }
    }
}

// SAFETY: messages are those of `inner`, which keeps the contract. Buffers are pages of this value's own,
// which stay until `commit` takes them, the next `reserve` replaces them or the value ends.
unsafe impl Messages for FaultyMessages {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.link.check(Operation::Send)?;
        if len > self.max_frame {
            return Err(self.failed(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        if self.queue.len() >= QUEUE {
            return Err(self.failed(Operation::Send, Cause::Full));
        }
        Ok(self.space.insert(Pages::zeroed(len)).start())
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        self.link.check(Operation::Send)?;
        let Some(mut pages) = self.space.take_if(|space| len <= space.len()) else {
            let cause = Cause::Unsupported("committing more than was reserved");
            return Err(self.failed(Operation::Send, cause).with_frame(frame));
        };
        pages.truncate(len);
        let fault = self.generator.draw(|fault| match fault {
            Fault::Truncate => len >= 2 * LINE,
            Fault::HoldLastWord => len >= WORD,
            Fault::FlipBit => len > 0,
            Fault::Delay | Fault::Overtake | Fault::Kill => true,
        });
        let (mut wait, mut ordered) = (0, true);
        match fault {
            None => {}
            Some(Fault::Delay) => wait = self.generator.turns(),
            Some(Fault::Overtake) => (wait, ordered) = (self.generator.turns(), false),
            Some(Fault::Truncate) => pages.truncate((1 + self.generator.below(len / LINE - 1)) * LINE),
            Some(Fault::HoldLastWord) => pages.bytes_mut()[len - WORD..].fill(0),
            Some(Fault::FlipBit) => self.generator.flip(pages.bytes_mut()),
            Some(Fault::Kill) => {
                self.queue.clear();
                return Err(self.link.kill(Operation::Send, frame));
            }
        }
        self.queue.push_back(Message { pages, frame, wait, ordered });
        self.flush()
    }

    fn poll(&mut self) -> Result<Option<transport::Message>, TransportError> {
        self.link.check(Operation::Receive)?;
        self.inner.poll()
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        if let Err(gone) = self.link.check(Operation::Progress) {
            self.queue.clear();
            return Err(gone);
        }
        for message in &mut self.queue {
            if message.wait != FOREVER {
                message.wait = message.wait.saturating_sub(1);
            }
        }
        self.inner.progress()?;
        self.flush()
    }

    fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    fn wakes_unarmed(&self) -> bool {
        self.inner.wakes_unarmed()
    }

    fn has_end(&self) -> bool {
        self.inner.has_end()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        self.link.check(Operation::Wake)?;
        // This endpoint must return to make progress while it holds a message, so it must not sleep without a
        // limit.
        Ok(self.inner.arm()? && self.queue.is_empty() && self.copied.is_none())
    }

    fn disarm(&mut self) -> Result<(), TransportError> {
        self.link.check(Operation::Wake)?;
        self.inner.disarm()
    }

    fn path_info(&self) -> PathInfo {
        self.inner.path_info()
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        self.inner.lender()
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        self.inner.reads()
    }
}
