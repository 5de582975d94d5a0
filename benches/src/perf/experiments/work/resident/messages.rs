//! Work by UCX's active messages: messages with the function's arguments, and messages with the data.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::slice;

use super::super::am::{Keeps, Replies};
use super::super::data::Store;
use super::super::native::with_reply;
use super::super::source::Perform;
use super::Task;
use super::present::{Natives, present};
use super::query::{Job, Jobs, NODE, NODE_HEAD};
use super::source::{Turn, endpoint, head, walk};
use super::target::Holding;
use crate::perf::experiments::baselines::ucx::{Handler, Messages, Opening};
use crate::perf::experiments::role::{Peer, Receiver, Source};
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Longest message of arguments, and longest reply, in bytes.
const LONGEST_MESSAGE: usize = 4096;
/// Bytes of a request for data: offset, length, and whether it is the last one of a call.
const REQUEST: usize = 24;

/// The source's endpoint of calls.
struct Calls(Messages<Keeps>);

impl Perform<Turn> for Calls {
    #[inline]
    fn perform(&mut self, turn: &Turn, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let before = self.0.came();
        // SAFETY: arguments never change.
        unsafe { self.0.send_bytes(turn.job.args, watch) }?;
        watch.until(|| Ok(Peer::look(&mut self.0)? != before))?;
        reply.extend_from_slice(&self.0.handler().0.borrow());
        Ok(())
    }

    fn settle(&mut self, _calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.0.is_sent(watch)
    }

    fn lanes(&self) -> Option<String> {
        Peer::lanes(&self.0)
    }
}

/// Returns the source's endpoint of messages whose handler does the work.
pub(crate) fn calling(opening: Opening, offer: &Offer) -> Result<Box<dyn Source>, Failure> {
    let keeps = Keeps(RefCell::new(Vec::with_capacity(LONGEST_MESSAGE)));
    Ok(Box::new(endpoint(Calls(Messages::join(opening, offer, LONGEST_MESSAGE, keeps)?))))
}

impl Handler for Natives {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        // SAFETY: `data` has `len` bytes by the contract of `came`, and they are the present function's
        // payload.
        unsafe { self.call(data, len) };
    }
}

/// Returns the target's endpoint of messages whose handler does the work.
pub(crate) fn called(
    task: &Task,
    store: &'static Store,
    opening: Opening,
    offer: &Offer,
) -> Result<Box<dyn Receiver>, Failure> {
    let natives = Natives::place(task, store)?;
    let messages = Messages::join(opening, offer, LONGEST_MESSAGE, natives)?;
    Ok(Box::new(Holding { store, method: Replies(messages) }))
}

/// The source's handler of data: computes where UCX has the message, or reads a node.
struct Computes {
    natives: Natives,
    store: &'static Store,
    node: Cell<[u64; 2]>,
    /// The present call.
    job: Cell<Job>,
    /// A copy of data that UCX has at an address which is no multiple of 8.
    aligned: RefCell<Vec<u64>>,
}

impl Handler for Computes {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        let work = present();
        // SAFETY: `data` has `len` bytes by the contract of `came`, and data are not empty.
        let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), len) };
        if work.stepwise {
            self.node.set(head(bytes));
            return;
        }
        if data.addr().is_multiple_of(align_of::<u64>()) {
            self.store.show(bytes, len);
            self.natives.call_here(self.job.get());
            return;
        }
        let mut aligned = self.aligned.borrow_mut();
        aligned.clear();
        aligned.extend(bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes));
        // SAFETY: `aligned` has as many bytes as words of 8 bytes fit in `len`, all initialised.
        let bytes = unsafe { slice::from_raw_parts(aligned.as_ptr().cast::<u8>(), aligned.len() * 8) };
        self.store.show(bytes, len);
        self.natives.call_here(self.job.get());
    }
}

/// The source's endpoint that requests data.
struct DataRequests {
    messages: Messages<Computes>,
    /// The request. It is leaked, as everything that UCX reads.
    request: &'static mut [u8; REQUEST],
}

impl DataRequests {
    #[inline]
    fn fetch(&mut self, at: usize, len: usize, is_last: bool, watch: &Watch) -> Result<(), Failure> {
        // UCX must have finished with the last request before it is overwritten.
        self.messages.is_sent(watch)?;
        for (word, value) in self.request.as_chunks_mut().0.iter_mut().zip([at, len, is_last.into()]) {
            *word = (value as u64).to_le_bytes();
        }
        let before = self.messages.came();
        // SAFETY: `request` is static, and written only after `is_sent`.
        unsafe { self.messages.send_bytes(&self.request[..], watch) }?;
        watch.until(|| Ok(Peer::look(&mut self.messages)? != before))
    }
}

impl Perform<Turn> for DataRequests {
    #[inline]
    fn perform(&mut self, turn: &Turn, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let Turn { work, job, .. } = *turn;
        if work.stepwise {
            return walk(job, reply, |node, is_last| {
                self.fetch(node * NODE, NODE_HEAD, is_last, watch)?;
                Ok(self.messages.handler().node.get())
            });
        }
        self.messages.handler().job.set(job);
        self.fetch(0, work.size, true, watch)?;
        with_reply(|own| reply.extend_from_slice(own));
        Ok(())
    }

    fn settle(&mut self, _calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.messages.is_sent(watch)
    }

    fn lanes(&self) -> Option<String> {
        Peer::lanes(&self.messages)
    }
}

/// Returns the source's endpoint that requests data by messages.
pub(crate) fn data_requester(
    task: &Task,
    opening: Opening,
    offer: &Offer,
) -> Result<Box<dyn Source>, Failure> {
    // `show` gives it other data than the store's own.
    let store = Store::own(0);
    let natives = Natives::place(task, store)?;
    let (node, job) = (Cell::new([0; 2]), Cell::new(Jobs::NONE.nth(0)));
    let computes = Computes { natives, store, node, job, aligned: RefCell::new(Vec::new()) };
    let messages = Messages::join_for(opening, offer, [REQUEST, task.longest], computes)?;
    Ok(Box::new(endpoint(DataRequests { messages, request: Box::leak(Box::new([0; REQUEST])) })))
}

/// The target's handler of requests for data: keeps the last one, and counts calls.
struct Requests {
    wanted: Cell<[usize; 2]>,
    calls: Cell<u64>,
}

impl Handler for Requests {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize) {
        if len != REQUEST {
            self.wanted.set([0, 0]);
            return;
        }
        // SAFETY: `data` has `len` bytes by the contract of `came`, of any alignment.
        let [at, len, is_last] = unsafe { data.cast::<[u64; 3]>().read_unaligned() };
        self.wanted.set([at as usize, len as usize]);
        self.calls.set(self.calls.get() + is_last);
    }
}

/// The target's endpoint that sends data.
struct Sends {
    messages: Messages<Requests>,
    store: &'static Store,
}

impl Receiver for Sends {
    fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
        self.messages.begin();
        self.messages.handler().calls.set(0);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(&mut self.messages)
    }

    #[inline]
    fn reply(&mut self, watch: &Watch) -> Result<(), Failure> {
        let [at, len] = self.messages.handler().wanted.get();
        if at.saturating_add(len) > present().size {
            return Err(Failure::new("the source asked for data that the target does not hold"));
        }
        // SAFETY: the bytes lie in the store, which holds `size` bytes of data; no process writes them during
        // a measurement.
        unsafe {
            let bytes = slice::from_raw_parts(self.store.area().add(at), len);
            self.messages.send_bytes(bytes, watch)
        }
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(self.messages.handler().calls.get())
    }
}

/// Returns the target's endpoint that sends data by messages.
pub(crate) fn sending(
    store: &'static Store,
    opening: Opening,
    offer: &Offer,
) -> Result<Box<dyn Receiver>, Failure> {
    let requests = Requests { wanted: Cell::new([0; 2]), calls: Cell::new(0) };
    let messages = Messages::join_for(opening, offer, [0, REQUEST], requests)?;
    Ok(Box::new(Sends { messages, store }))
}
