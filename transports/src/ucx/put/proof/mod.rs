//! The proof that puts are native, by both processes of a link without mapped memory, while it connects.
//!
//! An emulated put is a message that the peer's UCX executes when it is called. So a process puts a word into the
//! peer's region while the peer stands still: the peer does not call UCX, and watches the word. A native put lands
//! nevertheless, an emulated one does not. Before that, each process queries UCX about puts of all lengths that it
//! makes (`query.rs`). [`Proof`] has the protocol.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farjump_core::transport::Cause;
use farjump_ucx_sys::{
    UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, ucp_am_recv_param_t, ucp_request_param_t, ucs_status_ptr_t,
    ucs_status_t,
};

use crate::ucx::moving;
use crate::ucx::put::query::How;
use crate::ucx::put::remote_region::Peer;
use crate::ucx::worker::{CLOSE_TIMEOUT, Worker, status_of};

/// Longest put, in bytes. Longer data goes in pieces, so that no put above this length needs a query.
pub(super) const LONGEST: usize = 256 << 10;
/// The active message of the proof.
const LETTER: c_uint = 2;
/// Limit of kept letters. An honest peer has two under way.
const MOST: usize = 16;
/// Limit of rounds for a peer whose put arrived too early to prove anything.
const ROUNDS: u64 = 8;
/// Interval of the polls while standing still.
const GLANCE: Duration = Duration::from_micros(20);

/// Idle calls of UCX before the first sleep in between.
const IDLE: u32 = 100;

const HELLO: u64 = 1;
const STAND: u64 = 2;
const STANDING: u64 = 3;
const LANDED: u64 = 4;
const MISSED: u64 = 5;
const EARLY: u64 = 6;
const DONE: u64 = 7;
const REFUSED: u64 = 8;

/// Kind and value.
type Letter = (u64, u64);

/// Data of a worker's proof that UCX reads and writes as long as the worker lives. Drop it after the worker.
pub(super) struct Post {
    /// Owned, but behind a pointer because the callback has it too.
    inbox: NonNull<RefCell<VecDeque<Letter>>>,
    /// Requests of unsent letters, with their bytes.
    outbox: Vec<(ucs_status_ptr_t, Box<[u8; 16]>)>,
    /// A put or a flush that has not ended.
    request: ucs_status_ptr_t,
    /// Data of the puts.
    zeros: Vec<u64>,
    word: Box<u64>,
}

// SAFETY: all of it belongs only to this value; the callback runs on the one thread that uses the worker.
unsafe impl Send for Post {}

impl Post {
    /// Makes an empty one.
    pub(super) fn new() -> Post {
        Post {
            inbox: NonNull::from(Box::leak(Box::new(RefCell::new(VecDeque::new())))),
            outbox: Vec::new(),
            request: ptr::null_mut(),
            zeros: Vec::new(),
            word: Box::new(0),
        }
    }

    /// Receives the letters to `worker`.
    ///
    /// # Safety
    /// The worker is dropped before this value.
    pub(super) unsafe fn listen(&self, worker: &Worker) -> Result<(), Cause> {
        // SAFETY: the inbox stays in place until this value's drop, which the caller does after the worker's.
        unsafe { worker.handle(LETTER, Some(came), self.inbox.as_ptr().cast()) }
    }

    fn inbox(&self) -> &RefCell<VecDeque<Letter>> {
        // SAFETY: the inbox's box lives as long as this value; only shared references to it are ever made.
        unsafe { self.inbox.as_ref() }
    }

    /// Frees UCX's requests. The data that they read lives as long as this value.
    fn free_requests(&mut self, worker: &Worker) {
        let requests = self.outbox.iter().map(|(request, _)| *request).chain([self.request]);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: the request was not freed before, and is cleared below.
            unsafe { worker.ucx.ucp_request_free(request) };
        }
        self.outbox.iter_mut().for_each(|(request, _)| *request = ptr::null_mut());
        self.request = ptr::null_mut();
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        // SAFETY: from the box that `new` leaked; the worker whose callback has it is gone.
        drop(unsafe { Box::from_raw(self.inbox.as_ptr()) });
    }
}

/// UCX's callback for [`LETTER`].
unsafe extern "C" fn came(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: `Post::listen` passed the inbox, which outlives the worker that runs this.
    let inbox = unsafe { &*argument.cast_const().cast::<RefCell<VecDeque<Letter>>>() };
    if header_len == 16 {
        // SAFETY: UCX lends `len` bytes for the time of the callback.
        let [kind, value] = unsafe { header.cast::<[[u8; 8]; 2]>().read_unaligned() }.map(u64::from_le_bytes);
        let mut inbox = inbox.borrow_mut();
        if inbox.len() == MOST && kind == REFUSED {
            // A rejection ends the proof, whatever arrived before.
            inbox.pop_back();
        }
        if inbox.len() < MOST {
            inbox.push_back((kind, value));
        }
    }
    UCS_OK
}

/// Decodes a rejection by the peer: known to emulate, or unknown.
fn refused(known: u64) -> Unproven {
    if known == 1 { Unproven::PeerRefuses } else { Unproven::PeerFails }
}

/// The reason why a proof failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unproven {
    /// UCX reports that it emulates puts, with its description if it has one.
    Emulated(Option<String>),
    /// The word did not land while the peer stood still.
    Missed,
    /// In each round, the peer had to call UCX before it stood still, and the word arrived during that call.
    Early,
    /// The peer found its own puts emulated.
    PeerRefuses,
    /// The peer could not determine whether its puts are native.
    PeerFails,
    /// The wait for this timed out.
    Late(&'static str),
    /// The peer sent an unexpected letter.
    Disorder,
    /// UCX failed.
    Failed(Cause),
}

impl Unproven {
    /// Converts it to the cause for rejecting `peer`, after at most `within`.
    pub(super) fn cause(self, peer: &Peer, within: Duration) -> Cause {
        let by = || peer.lanes().in_words();
        match self {
            Unproven::Emulated(said) => peer.emulated(said.as_deref()),
            Unproven::Missed => Cause::System(format!(
                "UCX calls its writes to the peer's memory over {} native, but one of them did not land while the peer stood still: UCX \
                 emulates them, or the device took more than half of {} ms. Is a machine overloaded? Try again, or use transport tcp",
                by(),
                within.as_millis()
            )),
            Unproven::Early => Cause::System(format!(
                "whether UCX writes the peer's memory natively over {} is unknown: the peer's UCX did not come to rest \
                 in {ROUNDS} rounds. Is its machine overloaded? Try again, or use transport tcp",
                by()
            )),
            Unproven::PeerRefuses => Cause::System(format!(
                "the peer found that its UCX does not write this process's memory natively over {}: {}. See its log; use \
                 transport tcp",
                by(),
                peer.apart
            )),
            Unproven::PeerFails => Cause::System(format!(
                "the peer could not determine in time whether its UCX writes this process's memory natively over {}: see its \
                 log. Is the device's link up at both processes? Give the handshake more time, or use transport tcp",
                by()
            )),
            Unproven::Late(what) => Cause::System(format!(
                "whether UCX writes the peer's memory natively over {} is unknown: {what} took more than {} ms. Is the \
                 device's link up at both processes, and the peer running? Give the handshake more time, or use transport tcp",
                by(),
                within.as_millis()
            )),
            Unproven::Disorder => {
                Cause::Address("it sent a message that was not due while puts were tried".to_owned())
            }
            Unproven::Failed(cause) => cause,
        }
    }
}

/// The state of one process in a proof.
///
/// Letters are active messages of 16 bytes, kind and value, little-endian. The process with the lower
/// address, compared byte by byte, is the first:
///
/// 1. Both send `HELLO` and await it. Then the lanes of both directions are connected.
/// 2. Each puts zeros of 8, 64 and each power of two bytes up to [`LONGEST`], queries UCX about each, and
///    flushes.
/// 3. The first sends `STAND`. The other responds with `STANDING`, stops calling UCX and watches the first word of its
///    region. The first puts the value there. Once the value is there, the other zeroes the word and sends `LANDED`; if
///    that times out, `MISSED`. If the other had to call UCX to send `STANDING`, and the word was there afterwards, it
///    sends `EARLY`, and the first begins again.
/// 4. The first sends `DONE`, and the roles swap.
/// 5. The second sends `DONE`, and frames may flow.
///
/// A process that finds its puts emulated sends `REFUSED` with the value 1; one that cannot determine it, with 0. Both
/// processes then reject. Each wait has a limit: `until`, and half of the time left then for standing still.
pub(super) struct Proof<'a> {
    pub(super) worker: &'a Worker,
    pub(super) peer: &'a Peer,
    pub(super) post: &'a mut Post,
    /// The first word of this process's region.
    pub(super) own: &'a AtomicU64,
    /// True if this process proves its puts first.
    pub(super) is_first: bool,
    /// True if this process makes puts, and queries UCX about them.
    pub(super) queries: bool,
    /// True if this process makes puts, and shows that they land.
    pub(super) shows: bool,
    pub(super) until: Instant,
    /// Consecutive calls of UCX without work.
    pub(super) idle: Cell<u32>,
}

impl Proof<'_> {
    /// Runs the proof, together with the peer.
    pub(super) fn run(&mut self) -> Result<(), Unproven> {
        let proven = self.both();
        if let Err(unproven) = &proven {
            // Other traffic does not matter.
            let is_known = matches!(unproven, Unproven::Emulated(_) | Unproven::Missed);
            let _ = self.send(REFUSED, u64::from(is_known));
            self.until = Instant::now() + CLOSE_TIMEOUT;
            let _ = self.send_all();
        }
        self.post.free_requests(self.worker);
        if proven.is_ok() {
            // All puts have landed at the peer.
            self.post.zeros = Vec::new();
        }
        proven
    }

    fn both(&mut self) -> Result<(), Unproven> {
        self.send(HELLO, 0)?;
        match self.next("the peer's first message")? {
            (HELLO, _) => {}
            _ => return Err(Unproven::Disorder),
        }
        if self.queries {
            self.query_puts()?;
        }
        self.flush()?;
        if !self.is_first {
            self.witness()?;
        }
        if self.shows {
            self.show()?;
        }
        self.send(DONE, 0)?;
        if self.is_first { self.witness() } else { self.flush() }
    }

    /// Queries UCX about a put of each length.
    fn query_puts(&mut self) -> Result<(), Unproven> {
        let longest = LONGEST.min(self.peer.len);
        self.post.zeros = vec![0; longest.div_ceil(size_of::<u64>())];
        let lengths = [8].into_iter().chain((6..=LONGEST.ilog2()).map(|power| 1 << power));
        for len in lengths.take_while(|len| *len <= longest) {
            let zeros = self.post.zeros.as_ptr().cast();
            // SAFETY: the UCX endpoint is connected, the region has `len` bytes, and `post` keeps the zeros.
            let (request, how) = unsafe { self.peer.put(zeros, len) };
            self.post.request = request;
            match how {
                How::Native => self.finish("a put")?,
                How::Emulated(said) => return Err(Unproven::Emulated(Some(said))),
                // One result for all lengths.
                How::Unknown => {
                    self.finish("a put")?;
                    let natively = self.peer.lanes().write_natively() == Some(true);
                    return if natively { Ok(()) } else { Err(Unproven::Emulated(None)) };
                }
            }
        }
        Ok(())
    }

    /// Shows that a put lands while the peer stands still.
    fn show(&mut self) -> Result<(), Unproven> {
        for value in 1..=ROUNDS {
            self.send(STAND, value)?;
            match self.next("the peer's standing still")? {
                (STANDING, stated) if stated == value => {}
                (REFUSED, known) => return Err(refused(known)),
                _ => return Err(Unproven::Disorder),
            }
            *self.post.word = value.to_le();
            // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
            let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
            let (Peer { endpoint, key, address, .. }, word) = (self.peer, ptr::from_ref(&*self.post.word));
            // SAFETY: the UCX endpoint is connected, a region is at least a page, and `post` keeps the word.
            self.post.request = unsafe {
                self.worker.ucx.ucp_put_nbx(*endpoint, word.cast(), size_of::<u64>(), *address, *key, &params)
            };
            let outcome = self.next("a put")?;
            match outcome {
                (LANDED, stated) if stated == value => return self.finish("a put"),
                (EARLY, stated) if stated == value => self.finish("a put")?,
                (MISSED, _) => return Err(Unproven::Missed),
                (REFUSED, known) => return Err(refused(known)),
                _ => return Err(Unproven::Disorder),
            }
        }
        Err(Unproven::Early)
    }

    /// Stands still for the peer until its puts are proven.
    fn witness(&mut self) -> Result<(), Unproven> {
        loop {
            match self.next("the peer's proof")? {
                (STAND, value) => {
                    let seen = self.stand(value)?;
                    self.own.store(0, Ordering::Relaxed);
                    self.send(seen, value)?;
                }
                (DONE, _) => return Ok(()),
                (REFUSED, known) => return Err(refused(known)),
                _ => return Err(Unproven::Disorder),
            }
        }
    }

    /// Watches for `value` without calling UCX. Returns the kind of the response to the peer.
    fn stand(&mut self, value: u64) -> Result<u64, Unproven> {
        self.send_all()?;
        self.own.store(0, Ordering::Relaxed);
        self.send(STANDING, value)?;
        // Usually UCX sends the letter within that call, which receives nothing: a word that is there by then landed
        // natively. Otherwise this process calls UCX until the letter is sent, and those calls may execute an emulated
        // put.
        if !self.post.outbox.is_empty() {
            self.send_all()?;
            if self.own.load(Ordering::Acquire) != 0 {
                return Ok(EARLY);
            }
        }
        let still = self.until.saturating_duration_since(Instant::now()) / 2;
        let begun = Instant::now();
        while begun.elapsed() < still {
            if u64::from_le(self.own.load(Ordering::Acquire)) == value {
                return Ok(LANDED);
            }
            thread::sleep(GLANCE);
        }
        Ok(MISSED)
    }

    fn send(&mut self, kind: u64, value: u64) -> Result<(), Unproven> {
        let mut bytes = Box::new([0; 16]);
        bytes[..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let (ucx, endpoint) = (self.worker.ucx, self.peer.endpoint);
        // SAFETY: the UCX endpoint is connected; the header stays until it is sent or the worker is gone.
        let sent = unsafe {
            ucx.ucp_am_send_nbx(endpoint, LETTER, bytes.as_ptr().cast(), bytes.len(), ptr::null(), 0, &params)
        };
        if UCS_PTR_IS_PTR(sent) {
            self.post.outbox.push((sent, bytes));
            return Ok(());
        }
        match status_of(ucx, sent) {
            UCS_OK => Ok(()),
            status => Err(Unproven::Failed(moving(ucx, status))),
        }
    }

    /// Waits until all letters are sent.
    fn send_all(&mut self) -> Result<(), Unproven> {
        while let Some((request, bytes)) = self.post.outbox.pop() {
            if let Err(unproven) = self.over(request, "sending a message") {
                self.post.outbox.push((request, bytes));
                return Err(unproven);
            }
            if UCS_PTR_IS_PTR(request) {
                // SAFETY: the request was not freed before, and is dropped here.
                unsafe { self.worker.ucx.ucp_request_free(request) };
            }
        }
        Ok(())
    }

    /// Waits until all puts and letters have reached the peer.
    fn flush(&mut self) -> Result<(), Unproven> {
        self.send_all()?;
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the UCX endpoint is connected.
        self.post.request = unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.peer.endpoint, &params) };
        self.finish("a flush")
    }

    /// Waits for the request under way, named `what`.
    fn finish(&mut self, what: &'static str) -> Result<(), Unproven> {
        let request = self.post.request;
        self.over(request, what)?;
        self.post.request = ptr::null_mut();
        if UCS_PTR_IS_PTR(request) {
            // SAFETY: the request was not freed before, and was cleared above.
            unsafe { self.worker.ucx.ucp_request_free(request) };
        }
        Ok(())
    }

    /// Waits until `request`, named `what`, has ended.
    fn over(&self, request: ucs_status_ptr_t, what: &'static str) -> Result<(), Unproven> {
        loop {
            match status_of(self.worker.ucx, request) {
                UCS_OK => return Ok(()),
                UCS_INPROGRESS => self.work(what)?,
                status => return Err(Unproven::Failed(moving(self.worker.ucx, status))),
            }
        }
    }

    /// Receives the peer's next letter; `what` names the wait.
    fn next(&self, what: &'static str) -> Result<Letter, Unproven> {
        loop {
            if let Some(letter) = self.post.inbox().borrow_mut().pop_front() {
                return Ok(letter);
            }
            self.work(what)?;
        }
    }

    /// Progresses UCX, unless the wait has timed out or the peer has sent a rejection.
    fn work(&self, what: &'static str) -> Result<(), Unproven> {
        if Instant::now() >= self.until {
            return Err(Unproven::Late(what));
        }
        if self.worker.progress() {
            self.idle.set(0);
        } else {
            // A device in software needs the processor to make progress.
            self.idle.set(self.idle.get() + 1);
            if self.idle.get() < IDLE { thread::yield_now() } else { thread::sleep(GLANCE) }
        }
        // A peer that has gone sends nothing more.
        let inbox = self.post.inbox().borrow();
        let refusal = inbox.iter().find(|(kind, _)| *kind == REFUSED);
        refusal.map_or(Ok(()), |(_, known)| Err(refused(*known)))
    }
}

#[cfg(test)]
mod tests;
