//! Work that the handler of UCX's active messages does.

use std::cell::RefCell;
use std::ffi::c_void;
use std::slice;

use farjump::Library;

use super::Task;
use super::data::Store;
use super::functions::Function;
use super::native::{self, Native};
use super::source::{Ask, Asking, Job};
use super::target::{Host, Serving};
use crate::perf::baselines::ucx::{Handler, Messages, Opening};
use crate::perf::child_protocol::Offer;
use crate::perf::ifuncs;
use crate::perf::liveness::Watch;
use crate::perf::role::{Other, Peer, Source};
use crate::program::failure::Failure;

/// At the source: keeps the answer.
struct Keeps(RefCell<Vec<u8>>);

impl Handler for Keeps {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        let mut kept = self.0.borrow_mut();
        kept.clear();
        if len != 0 {
            // SAFETY: so many bytes are there, by the trait's contract.
            kept.extend_from_slice(unsafe { slice::from_raw_parts(data.cast::<u8>(), len) });
        }
    }
}

/// The source's side.
struct Asks {
    messages: Messages<Keeps>,
    library: Library,
    /// Where payloads are made that are not the arguments as they are. It stays to the end of the process, as all that UCX reads.
    payload: &'static mut [u8],
}

impl Ask for Asks {
    #[inline]
    fn ask(&mut self, job: &Job, answer: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let bytes: &[u8] = match job.function {
            Function::Codec => {
                // The last one must be out of UCX's hands before it is written over.
                self.messages.is_sent(watch)?;
                let room = self.library.payload_max_size(job.args).min(self.payload.len());
                // SAFETY: there is so much room, which is this side's alone.
                let made = unsafe { self.library.payload_init(self.payload.as_mut_ptr(), room, job.args) };
                let len = made.map_err(|error| Failure::new(error.to_string()))?;
                &self.payload[..len]
            }
            // The others' payload is a copy of the arguments, which a message does not need.
            _ => job.args,
        };
        let before = self.messages.came();
        // SAFETY: arguments never change, and the room is written to only after `is_sent`.
        unsafe { self.messages.send_bytes(bytes, watch) }?;
        watch.until(|| Ok(Peer::look(&mut self.messages)? != before))?;
        answer.extend_from_slice(&self.messages.handler().0.borrow());
        Ok(())
    }

    fn settle(&mut self, _calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.messages.is_sent(watch)
    }
}

/// The source's side of a task.
pub(crate) fn source(
    task: &Task,
    opening: Opening,
    offer: &Offer,
) -> Result<(Box<dyn Source>, Option<String>), Failure> {
    let longest = task.longest_message();
    let keeps = Keeps(RefCell::new(Vec::with_capacity(longest)));
    let messages = Messages::join(opening, offer, longest, keeps)?;
    let lanes = messages.lanes();
    let library = ifuncs::open(&task.library)?;
    let asks = Asks { messages, library, payload: vec![0; longest].leak() };
    Ok((Box::new(Asking::new(task.function, asks, task.longest)), lanes))
}

impl Handler for Native {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        // SAFETY: so many bytes are there, by the trait's contract, and they are a message of `perf`'s.
        unsafe { self.call(data, len) };
    }
}

/// The target's side: the handler does the work, and what it replied is sent when UCX has called it.
struct Answers(Messages<Native>);

impl Host for Answers {
    fn prepare(&mut self) {
        self.0.begin();
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(&mut self.0)
    }

    #[inline]
    fn answer(&mut self, watch: &Watch) -> Result<(), Failure> {
        // SAFETY: what was replied stays until the next message, which the source sends when it has this one.
        native::with_reply(|reply| unsafe { self.0.send_bytes(reply, watch) })
    }

    fn done(&mut self, _store: &Store) -> u64 {
        self.0.came()
    }
}

/// The target's side of a task.
pub(crate) fn other(task: &Task, opening: Opening, offer: &Offer) -> Result<Box<dyn Other>, Failure> {
    let store = Store::own(task.longest);
    let native = Native::place(&Library::open(&task.library)?, store)?;
    let messages = Messages::join(opening, offer, task.longest_message(), native)?;
    Ok(Box::new(Serving::new(task.function, store, Answers(messages))))
}
