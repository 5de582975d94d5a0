//! Functions at the data: calls at an object's owner, objects made there from other objects, and the choice between a
//! call and a fetch.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farjump::config::TargetConfig;
use farjump::objects::{
    Lent, LingeringPeer, ObjectError, ObjectPage, Objects, Region, Request, RequestState,
};
use farjump::placement::{Choice, Place, Wire};
use farjump::{CodeId, DrivenByThread, Executor, Library, Link, Mode, Patience, Pending, SharedPending};
use farjump_os::cpu::detected;

use crate::client::Client;
use crate::client::placement::{Placement, Work};
use crate::client::view::View;
use crate::error::Error;
use crate::wire::handle::Handle;

/// Maximum number of calls of [`Client::map`] and [`Client::map_async`] under way at a time.
pub(crate) const MAX_IN_FLIGHT: usize = 1024;
/// Alignment of the arguments in a payload, in bytes.
const ALIGN: usize = 64;

/// The payload of a call at an object: two words (length of the handle, offset of the arguments), the handle, padding, the
/// arguments. `farjump_ifunc.h` has `farjump_open_at` to read it.
pub(crate) fn payload(handle: &Handle, args: &[u8]) -> Vec<u8> {
    let handle = handle.to_bytes();
    let at = (8 + handle.len()).next_multiple_of(ALIGN);
    let mut bytes = Vec::with_capacity(at + args.len());
    bytes.extend((handle.len() as u32).to_le_bytes());
    bytes.extend((at as u32).to_le_bytes());
    bytes.extend(&handle);
    bytes.resize(at, 0);
    bytes.extend(args);
    bytes
}

/// A call at an object that was sent. Wait for it, poll it or await it. Dropping it drops its outcome, but the function
/// still runs.
#[derive(Debug)]
#[must_use = "its outcome is dropped with it"]
pub struct PendingCall {
    pub(crate) client: Client,
    /// The call on the client's link for functions, until its outcome is taken.
    pub(crate) pending: Option<SharedPending>,
    /// Keeps the link driven, once a task awaits the call.
    pub(crate) driven: Option<DrivenByThread>,
}

impl PendingCall {
    /// Waits for the function's reply.
    ///
    /// # Errors
    /// As [`Client::call`], and [`Error::Interrupted`].
    pub fn wait(mut self, patience: &mut Patience<'_>) -> Result<Vec<u8>, Error> {
        let Some(pending) = self.pending.take() else { return Err(self.taken()) };
        self.client.0.check_process()?;
        let waited = pending.wait(patience).map_err(|ended| self.client.0.ended(ended, patience));
        waited.map(farjump::Reply::into_vec)
    }

    /// Returns the function's reply if it has come. Never waits.
    ///
    /// # Errors
    /// As [`Client::call`]. Also fails if the outcome was taken before.
    pub fn poll(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some(pending) = &mut self.pending else { return Err(self.taken()) };
        self.client.0.check_process()?;
        let polled = pending.poll();
        if !matches!(polled, Ok(None)) {
            self.has_ended();
        }
        Ok(polled?.map(farjump::Reply::into_vec))
    }

    /// As [`PendingCall::poll`], and wakes the task later if the reply has not come.
    pub(crate) fn poll_task(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error>> {
        if self.driven.is_none() {
            if let Some(outcome) = self.poll().transpose() {
                return Poll::Ready(outcome);
            }
            self.driven = Some(self.client.0.calls()?.drive_by_thread()?);
        }
        let Some(pending) = &mut self.pending else { return Poll::Ready(Err(self.taken())) };
        self.client.0.check_process()?;
        let polled = Pin::new(pending).poll(cx);
        if polled.is_ready() {
            self.has_ended();
        }
        polled.map_ok(farjump::Reply::into_vec).map_err(Error::from)
    }

    fn has_ended(&mut self) {
        (self.pending, self.driven) = (None, None);
    }

    fn taken(&self) -> Error {
        self.client.0.protocol("the outcome of this call was taken before")
    }
}

/// Returns the outcomes of calls. At most [`MAX_IN_FLIGHT`] calls are under way at a time.
pub(crate) fn all(calls: impl Iterator<Item = Result<PendingCall, Error>>) -> Vec<Result<Vec<u8>, Error>> {
    let (mut begun, mut ended) = (VecDeque::new(), Vec::new());
    let end = |call: Result<PendingCall, Error>| {
        let call = call?;
        let mut patience = call.client.0.patience();
        call.wait(&mut patience)
    };
    for call in calls {
        begun.push_back(call);
        if begun.len() == MAX_IN_FLIGHT
            && let Some(first) = begun.pop_front()
        {
            ended.push(end(first));
        }
    }
    ended.extend(begun.into_iter().map(end));
    ended
}

/// The result of [`Client::call_auto`].
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The function's reply.
    pub reply: Vec<u8>,
    /// The place where the function ran, and the expected time at either place.
    pub choice: Choice,
    /// The function, and the lengths of its object and arguments.
    pub work: Work,
    /// The wire to the owner, as it was measured or set.
    pub wire: Wire,
}

/// A sentence with the place where the function ran, and the reason.
impl fmt::Display for Placed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { choice, work: Work { len, args, .. }, wire, .. } = self;
        write!(
            out,
            "the function ran {choice}. The object has {len} bytes, the arguments {args}; the way to the owner takes {:.1} us",
            wire.latency_us
        )?;
        match wire.bytes_per_us {
            bytes if bytes < f64::MAX => write!(out, ", and moves {bytes:.1} bytes in 1 us"),
            _ => write!(out, ", and no longer for many bytes"),
        }
    }
}

impl Client {
    /// Runs the function of `library` at the owner of `handle`, on its object: the arguments travel, the object does not.
    /// The function finds both by `farjump_open_at` (C) or `farjump_ifunc::at` (Rust). Returns its reply. If the object
    /// lies in the owner's file, the owner reads it back before the function starts.
    ///
    /// # Errors
    /// [`Error::Link`] for every error of a call: it was refused, it panicked, the owner is gone. [`Error::TimedOut`];
    /// [`Error::Gone`] for a handle from before the owner's restart.
    pub fn call(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<Vec<u8>, Error> {
        self.call_with(library, handle, args, &mut self.0.patience())
    }

    /// As [`Client::call`], with a time limit or a check of the caller's.
    ///
    /// # Errors
    /// As [`Client::call`], and [`Error::Interrupted`].
    pub fn call_with(
        &self,
        library: &Library,
        handle: &Handle,
        args: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<Vec<u8>, Error> {
        self.start_call(library, handle, args)?.wait(patience)
    }

    /// As [`Client::call`], without waiting for the outcome. It waits for credit if many calls are under way. A task
    /// that must not wait uses [`Client::call_async`].
    ///
    /// # Errors
    /// As [`Client::call`]. After an error, nothing was sent.
    pub fn start_call(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<PendingCall, Error> {
        self.0.check(handle)?;
        self.0.check_process()?;
        let (calls, hold, payload) = (self.0.calls()?, self.0.hold(handle), payload(handle, args));
        let number = calls.with(|link| {
            if let Some(request) = hold {
                link.send_in(Mode::Local, &self.0.library, &request)?;
            }
            link.inject(library, &payload).map(Pending::into_raw)
        })??;
        Ok(PendingCall { client: self.clone(), pending: Some(calls.pending_from_raw(number)), driven: None })
    }

    /// Makes a new object from another one, at the owner. Runs the function of `library` on the object, and the
    /// function makes the new one by `farjump_new_object`. No bytes of either object move. Returns the new object's
    /// handle. The function must reply nothing itself.
    ///
    /// # Errors
    /// As [`Client::call`], and [`Error::Protocol`] if the function has made no object, or several.
    pub fn derive(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<Handle, Error> {
        let reply = self.call(library, handle, args)?;
        Handle::from_bytes(&reply).map_err(|fault| {
            let name = library.name();
            self.0.protocol(format!(
                "`{name}` has not made one object (farjump_new_object) and replied nothing else: {fault}"
            ))
        })
    }

    /// Calls the function on many objects of this owner. Many calls are under way at once; the outcomes are in the order of
    /// the handles.
    ///
    /// # Errors
    /// Those of [`Client::call`], for each call.
    pub fn map<'h>(
        &self,
        library: &Library,
        handles: impl IntoIterator<Item = &'h Handle>,
        args: &[u8],
    ) -> Vec<Result<Vec<u8>, Error>> {
        all(handles.into_iter().map(|handle| self.start_call(library, handle, args)))
    }

    /// Runs the function of `library` on an object where it takes less time: at the owner, or here on the object's
    /// bytes. `placement` decides, and learns from the outcome; keep one for a program.
    ///
    /// # Errors
    /// As [`Client::call`] and [`Client::get`].
    ///
    /// # Safety
    /// The function may run in this process. It is native code, which the caller must trust, and it must accept these
    /// arguments.
    pub unsafe fn call_auto(
        &self,
        placement: &mut Placement,
        library: &Library,
        handle: &Handle,
        args: &[u8],
    ) -> Result<Placed, Error> {
        let image = library.native_image_for_cpu(&detected()).map_err(farjump::Error::from)?.id();
        let work =
            Work { function: u128::from_le_bytes(image.0), len: handle.len(), args: args.len() as u64 };
        let wire = match placement.wire(self.address()) {
            Some(wire) => wire,
            None => {
                let wire = self.measure()?;
                placement.set_wire(self.address(), wire);
                wire
            }
        };
        let choice = placement.choose(self.address(), &work);
        let begun = Instant::now();
        match choice.place {
            Place::AtData => {
                let reply = self.call(library, handle, args)?;
                placement.ended_there(self.address(), &work, reply.len() as u64, begun.elapsed());
                Ok(Placed { reply, choice, work, wire })
            }
            Place::Here => {
                let view = self.get(handle)?;
                let fetched = begun.elapsed();
                let mut reply = Vec::new();
                // SAFETY: the caller trusts the function.
                unsafe { run_here(library, handle, view, args, &mut reply) }?;
                placement.ended_here(self.address(), &work, fetched, begun.elapsed() - fetched);
                Ok(Placed { reply, choice, work, wire })
            }
        }
    }

    /// A descriptor that becomes readable on an event while the client is armed ([`Client::arm`]): the outcome of a started
    /// call, or the owner's end. The first call creates it, and the link for functions if there is none yet. It stays the same
    /// descriptor for the life of the client and of its calls. Watch it, and do not read it.
    ///
    /// # Errors
    /// [`Error::Link`] when the owner is gone, or the system has no descriptor left; [`Error::Forked`].
    pub fn as_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.0.check_process()?;
        let descriptor =
            self.0.calls()?.with(|link| link.as_fd().map(|descriptor| descriptor.as_raw_fd()))??;
        // SAFETY: the link keeps this descriptor for its whole life, and `self` keeps the link, which is never
        // replaced.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Prepares to sleep on [`Client::as_fd`] in the caller's event loop, which has started calls. Returns the longest
    /// time to sleep, at most a second. Returns `None` if an event has come since the last time: then poll the calls
    /// ([`PendingCall::poll`]). Call [`Client::disarm`] afterwards in either case.
    ///
    /// If another thread waits for a call of the same client, it may consume the event that would have ended the sleep.
    /// The sleep then lasts its longest time. Give an event loop a client of its own.
    ///
    /// # Errors
    /// As [`Client::as_fd`]. Outcomes that came before the owner's end can still be taken.
    pub fn arm(&self) -> Result<Option<Duration>, Error> {
        self.0.check_process()?;
        Ok(self.0.calls()?.with(Link::arm)??)
    }

    /// Ends the sleep: the owner need not wake this process any more. Does nothing on a client that is not armed.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn disarm(&self) -> Result<(), Error> {
        self.0.check_process()?;
        match self.0.calls.get() {
            Some(calls) => Ok(calls.with(Link::disarm)?),
            None => Ok(()),
        }
    }

    /// Measures the wire to the owner: the least time of a request, and the time of its bytes.
    fn measure(&self) -> Result<Wire, Error> {
        const TRIES: usize = 20;
        const BYTES: usize = 64 << 10;
        let small = self.put(&[0; 64])?;
        let large = self.put(&[0; BYTES])?;
        let least = |handle: &Handle| -> Result<f64, Error> {
            let mut least = Duration::MAX;
            for _ in 0..TRIES {
                let begun = Instant::now();
                let view = self.get(handle)?;
                // The time of mapped bytes is that of their first touch.
                std::hint::black_box(view.iter().step_by(64).fold(0_u8, |sum, byte| sum ^ byte));
                least = least.min(begun.elapsed());
            }
            Ok(least.as_secs_f64() * 1e6)
        };
        let times = (least(&small)?, least(&large)?);
        for handle in [&small, &large] {
            self.evict(handle)?;
        }
        let measured = Wire::measured((64, times.0), (BYTES, times.1));
        Ok(measured.unwrap_or(Wire { latency_us: times.0 / 2.0, bytes_per_us: f64::MAX }))
    }
}

/// The executor for functions that run in this process, and the function that it ran last.
struct Here {
    executor: Executor,
    last: Option<(CodeId, String)>,
}

/// Runs a function here, on an object that was fetched.
///
/// # Safety
/// As [`Client::call_auto`].
unsafe fn run_here(
    library: &Library,
    handle: &Handle,
    view: View,
    args: &[u8],
    reply: &mut Vec<u8>,
) -> Result<(), Error> {
    /// Bytes for the code of functions that run here.
    const ARENA: usize = 4 << 20;
    thread_local! {
        static HERE: Cell<Option<Here>> = const { Cell::new(None) };
    }
    // Taken out, so that a nested call makes another executor.
    let mut here = match HERE.take() {
        Some(here) => here,
        None => Here {
            executor: {
                let config = TargetConfig { arena_size: ARENA, ..TargetConfig::default() };
                Executor::builder().configured(&config).build()?
            },
            last: None,
        },
    };
    let image = library.native_image_for_cpu(&detected()).map_err(farjump::Error::from)?.id();
    if !here.last.as_ref().is_some_and(|(id, name)| *id == image && name == library.name()) {
        here.last = None;
        here.executor.set_local(library)?;
        here.last = Some((image, library.name().to_owned()));
    }
    here.executor.set_objects(Box::new(Fetched { handle: handle.to_bytes(), view: Some(view) }));
    // SAFETY: the caller trusts the function (see Safety).
    let ran = unsafe { here.executor.call_local(library.name(), &payload(handle, args), reply) };
    // Drops the view, even if no other call follows.
    here.executor.set_objects(Box::new(Fetched { handle: Vec::new(), view: None }));
    HERE.set(Some(here));
    Ok(ran?)
}

/// The store of one fetched object, for a function that runs here.
#[derive(Debug)]
struct Fetched {
    handle: Vec<u8>,
    view: Option<View>,
}

// SAFETY: the bytes of a view do not change while it exists, and `self` keeps it until the executor gets another store,
// which is after the call. There are no other objects, and no region.
unsafe impl Objects for Fetched {
    fn listening(&mut self, _address: &str) {}

    fn request(
        &mut self,
        _source: u64,
        _request: Request<'_>,
        _reply: &mut Vec<u8>,
        _limit: usize,
    ) -> Result<RequestState, String> {
        Err("there is no store here".to_owned())
    }

    fn resolve(&mut self, handle: Request<'_>) -> Result<Lent, ObjectError> {
        let mut asked = vec![0; handle.len()];
        handle.copy_to(0, &mut asked);
        match &self.view {
            Some(view) if asked == self.handle => Ok(Lent { data: view.start(), len: view.len() }),
            _ => Err(ObjectError::Elsewhere),
        }
    }

    fn create(&mut self, _len: usize) -> Result<Lent, ObjectError> {
        Err(ObjectError::NoStore)
    }

    fn call_ended(&mut self, _returned: bool, _reply: &mut Vec<u8>) {}

    fn source_ended(&mut self, _source: u64, _peer: Option<LingeringPeer>) {}

    fn region(&self, _may_write: bool) -> Option<Region<'_>> {
        None
    }

    fn list(&mut self, _from: u64, _most: usize) -> ObjectPage {
        ObjectPage::default()
    }
}
