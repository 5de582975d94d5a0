//! Work by the handler of UCX's active messages.

use std::cell::RefCell;
use std::ffi::c_void;
use std::slice;

use farjump::Library;

use super::Task;
use super::data::Store;
use super::functions::Function;
use super::native::{self, Native};
use super::source::{Job, Perform, WorkSource};
use super::target::Serving;
use crate::perf::experiments::baselines::ucx::{Handler, Messages, Opening};
use crate::perf::experiments::role::{Peer, Receiver, Source};
use crate::perf::options::ifuncs;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The source's handler: keeps the reply.
pub(super) struct Keeps(pub(super) RefCell<Vec<u8>>);

impl Handler for Keeps {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        let mut kept = self.0.borrow_mut();
        kept.clear();
        if len != 0 {
            // SAFETY: `data` has `len` bytes by the contract of `came`.
            kept.extend_from_slice(unsafe { slice::from_raw_parts(data.cast::<u8>(), len) });
        }
    }
}

/// The source's endpoint.
struct Requests {
    messages: Messages<Keeps>,
    library: Library,
    /// Buffer of payloads that differ from the arguments. It is leaked, as everything that UCX reads.
    payload: &'static mut [u8],
}

impl Perform<Job> for Requests {
    #[inline]
    fn perform(&mut self, job: &Job, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let bytes: &[u8] = match job.function {
            Function::Codec => {
                // UCX must have finished with the last payload before it is overwritten.
                self.messages.is_sent(watch)?;
                let space = self.library.payload_max_size(job.args).min(self.payload.len());
                // SAFETY: `payload` has `space` bytes, which only this endpoint uses.
                let made = unsafe { self.library.payload_init(self.payload.as_mut_ptr(), space, job.args) };
                let len = made.map_err(|error| Failure::new(error.to_string()))?;
                &self.payload[..len]
            }
            // The others' payload would be a copy of the arguments, which a message does not need.
            _ => job.args,
        };
        let before = self.messages.came();
        // SAFETY: arguments never change, and `payload` is written only after `is_sent`.
        unsafe { self.messages.send_bytes(bytes, watch) }?;
        watch.until(|| Ok(Peer::look(&mut self.messages)? != before))?;
        reply.extend_from_slice(&self.messages.handler().0.borrow());
        Ok(())
    }

    fn settle(&mut self, _calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.messages.is_sent(watch)
    }

    fn lanes(&self) -> Option<String> {
        Peer::lanes(&self.messages)
    }
}

/// Returns the source's endpoint of a task.
pub(crate) fn source(task: &Task, opening: Opening, offer: &Offer) -> Result<Box<dyn Source>, Failure> {
    let longest = task.longest_message();
    let keeps = Keeps(RefCell::new(Vec::with_capacity(longest)));
    let messages = Messages::join(opening, offer, longest, keeps)?;
    let library = ifuncs::open(&task.library)?;
    let requests = Requests { messages, library, payload: vec![0; longest].leak() };
    Ok(Box::new(WorkSource::of(task.function, requests, task.longest)))
}

impl Handler for Native {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        // SAFETY: `data` has `len` bytes by the contract of `came`, and they are a message of `perf`'s.
        unsafe { self.call(data, len) };
    }
}

/// The target's endpoint: the handler does the work, and its reply is sent after UCX has called it.
pub(super) struct Replies<H>(pub(super) Messages<H>);

impl<H: Handler> Receiver for Replies<H> {
    fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
        self.0.begin();
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(&mut self.0)
    }

    #[inline]
    fn reply(&mut self, watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the reply stays until the next message, which the source sends only after it has this one.
        native::with_reply(|reply| unsafe { self.0.send_bytes(reply, watch) })
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(self.0.came())
    }
}

/// Returns the target's endpoint of a task.
pub(crate) fn receiver(task: &Task, opening: Opening, offer: &Offer) -> Result<Box<dyn Receiver>, Failure> {
    let store = Store::own(task.longest);
    let native = Native::place(&Library::open(&task.library)?, store)?;
    let messages = Messages::join(opening, offer, task.longest_message(), native)?;
    Ok(Box::new(Serving::new(task.function, store, Replies(messages))))
}
