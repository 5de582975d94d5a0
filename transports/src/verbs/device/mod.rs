//! An open device, and one port of it.

pub(super) mod address;
pub(super) mod domain;
pub(super) mod events;
pub(super) mod interfaces;
pub(super) mod open_device;
pub(super) mod pair;
pub(super) mod port;
pub(super) mod port_report;
pub(super) mod sysfs;
pub(super) mod towards;

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farjump_os::{Owner, PerProcess};
use farjump_rdma_sys::{
    IBV_WR_RDMA_WRITE, Verbs, ibv_async_event, ibv_context, ibv_device_attr, ibv_qp, ibv_wc_status,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::error::{exhausted, last_error};
use super::options::{Gid, Options};
use crate::fork::{Inherited, Listed};
use crate::verbs::device::events::{Events, Since};
use crate::verbs::device::open_device::Found;
use crate::verbs::device::pair::{Capacities, DEPTH, places_in_order};
use crate::verbs::device::port::Port;

/// Maximum inline bytes of a work request to request from a device. With more, the send queue of a link would be
/// several times as long (`docs/design/verbs.md`).
const INLINE: u32 = 220;
/// Receives of the queue pair of [`Device::probe`], the maximum of those of links.
const RECEIVES: u32 = 256;

/// A port of an open device, shared by all endpoints that use it.
pub(super) struct Device {
    pub(super) verbs: &'static Verbs,
    pub(super) name: String,
    /// The options that chose it, with its name.
    pub(super) options: Options,
    /// Its port as it was when the device was opened.
    pub(super) port: Port,
    /// Bytes that fit inside a work request.
    pub(super) max_inline: u32,
    /// True if the bytes of a write become visible here in ascending order.
    pub(super) in_order: bool,
    limits: ibv_device_attr,
    events: Mutex<Events>,
    /// Number of queues that have requested a completion vector.
    vectors: AtomicU32,
    context: NonNull<ibv_context>,
    /// The process that opened it.
    owner: Owner,
    /// The entry for forked children, removed before the device is closed.
    listed: Option<Listed>,
}

// SAFETY: verbs objects may be used by any thread at any time; mutable state is behind mutexes.
unsafe impl Send for Device {}
// SAFETY: verbs objects may be used by any thread at any time; mutable state is behind mutexes.
unsafe impl Sync for Device {}

impl Device {
    /// The device for these options, opened for the first endpoint and closed with the last. Without a name in the
    /// options, prefers a device near this thread. Reads state and addresses of the port each time, and opens a device
    /// anew whose port has changed. Earlier endpoints keep the earlier device.
    pub(super) fn open(options: &Options) -> Result<Arc<Device>, String> {
        static OPEN: PerProcess<Mutex<Vec<Weak<Device>>>> = PerProcess::new();
        let verbs = open_device::library()?;
        let mut open = locked(OPEN.get());
        open.retain(|device| device.strong_count() > 0);
        let current = |name: &str| {
            let pinned = options.clone().named(name);
            let is_it = |device: &Arc<Device>| ptr::eq(device.verbs, verbs) && device.options == pinned;
            open.iter().filter_map(Weak::upgrade).find(|device| is_it(device) && device.is_current())
        };
        for (name, is_active) in open_device::nearest_first(options) {
            match current(&name) {
                Some(device) => return Ok(device),
                None if is_active => break,
                None => {}
            }
        }
        let found = open_device::find(verbs, options)?;
        if let Some(device) = current(&found.name) {
            return Ok(device);
        }
        let device = Arc::new(Device::create(verbs, options, found)?);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    fn create(verbs: &'static Verbs, options: &Options, found: Found) -> Result<Device, String> {
        let (name, context, port) = (found.name.clone(), found.context, found.port.clone());
        let mut limits = MaybeUninit::uninit();
        // SAFETY: the context is open, and the output is valid.
        if unsafe { verbs.ibv_query_device(context.as_ptr(), limits.as_mut_ptr()) } != 0 {
            return Err(format!("{name} does not report its limits: {}", last_error()));
        }
        // SAFETY: the call succeeded, so it wrote the limits.
        let limits = unsafe { limits.assume_init() };
        // SAFETY: the context is open; the number is its descriptor's.
        let events = unsafe { std::os::fd::BorrowedFd::borrow_raw(context.as_ref().async_fd) };
        fcntl_getfl(events)
            .and_then(|flags| fcntl_setfl(events, flags | OFlags::NONBLOCK))
            .map_err(|errno| format!("{name}: its events cannot be looked at without waiting: {errno}"))?;
        // From here on, dropping `device` closes the device in every case.
        let mut device = Device {
            verbs,
            name,
            options: options.clone().named(&found.name),
            port,
            max_inline: 0,
            in_order: false,
            limits,
            events: Mutex::default(),
            vectors: AtomicU32::new(0),
            context: found.keep(),
            owner: Owner::this(),
            listed: Some(Listed::new(Inherited::Device { context: context.as_ptr().expose_provenance() })),
        };
        device.probe()?;
        Ok(device)
    }

    /// Finds the facts that only a queue pair shows. Makes one like those of links, and connects it to itself. Some
    /// devices report only in that state whether they place bytes in order.
    fn probe(&mut self) -> Result<(), String> {
        let (depth, receives) = (self.depth(DEPTH), self.depth(RECEIVES));
        // SAFETY: the context is open.
        let domain = unsafe { self.verbs.ibv_alloc_pd(self.context()) };
        if domain.is_null() {
            return Err(exhausted(&self.name, "protection domain", &last_error()));
        }
        let len = depth.max(receives) as i32;
        // SAFETY: the context is open.
        let cq =
            unsafe { self.verbs.ibv_create_cq(self.context(), len, ptr::null_mut(), ptr::null_mut(), 0) };
        let mut probed = Err(exhausted(&self.name, "completion queue", &last_error()));
        if !cq.is_null() {
            for max_inline in [INLINE, 128, 64, 0] {
                let asked = Capacities { depth, receives, max_inline };
                // SAFETY: domain and completion queue were made above.
                let Some((qp, granted)) = (unsafe { asked.create(self.verbs, domain, [cq, cq]) }) else {
                    probed = Err(exhausted(&self.name, "queue pair", &last_error()));
                    continue;
                };
                // SAFETY: the queue pair was made above, and is not used after this.
                let in_order = unsafe {
                    let in_order = places_in_order(self, qp);
                    self.verbs.ibv_destroy_qp(qp.as_ptr());
                    in_order
                };
                probed = Ok((granted, in_order));
                break;
            }
            // SAFETY: made above, and the queue pair that used it is gone.
            unsafe { self.verbs.ibv_destroy_cq(cq) };
        }
        // SAFETY: made above, and nothing is left in it.
        unsafe { self.verbs.ibv_dealloc_pd(domain) };
        (self.max_inline, self.in_order) = probed?;
        Ok(())
    }

    /// Returns whether a process that forked this one opened the device. This process leaks its objects, because
    /// destroying them would destroy the parent's.
    #[inline]
    pub(super) fn is_parents(&self) -> bool {
        !self.owner.is_this()
    }

    /// The open context.
    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The completion vector of the next queue that a process sleeps on. The vectors take turns, which spreads their
    /// interrupts over processors.
    pub(super) fn next_vector(&self) -> c_int {
        // SAFETY: the context is open.
        let vectors = unsafe { self.context.as_ref() }.num_comp_vectors.max(1);
        (self.vectors.fetch_add(1, Ordering::Relaxed) % vectors as u32) as c_int
    }

    /// Largest possible length of a queue up to `wanted` work requests, a power of two.
    pub(super) fn depth(&self, wanted: u32) -> u32 {
        let most = u32::try_from(self.limits.max_qp_wr.min(self.limits.max_cqe)).unwrap_or(0).max(1);
        wanted.min(1 << most.ilog2())
    }

    /// Most bytes of one operation.
    pub(super) fn max_message(&self) -> usize {
        self.port.max_message as usize
    }

    /// Returns whether the port carries packets, and has not changed since the device was opened.
    fn is_current(&self) -> bool {
        self.port_now(&self.options).is_ok_and(|port| port == self.port)
    }

    /// The present port of these options.
    fn port_now(&self, options: &Options) -> Result<Port, String> {
        let state = port::look(self.verbs, self.context, &self.name, self.port.number)?;
        state.usable()?;
        Port::of(self.verbs, self.context, &state, options)
    }

    /// The reason why packets of links do not pass the port, if its state or its addresses show one.
    #[cold]
    pub(super) fn why_severed(&self) -> Option<String> {
        let at = |what: String| Some(format!("{}:{}: {what}: connect again", self.name, self.port.number));
        // The choices of these links, whatever new links would choose.
        let same = Options {
            gid: Gid::Index(self.port.gid.index),
            partition: Some(self.port.partition.1),
            ..self.options.clone()
        };
        let now = match self.port_now(&same) {
            Ok(now) => now,
            Err(why) => return Some(why),
        };
        if now.gid.raw != self.port.gid.raw || now.gid.kind != self.port.gid.kind {
            return at(format!("since the link was made, {} became {}", self.port.gid, now.gid));
        }
        if now.lid != self.port.lid {
            return at(format!("since the link was made, LID {} became {}", self.port.lid, now.lid));
        }
        if now.partition != self.port.partition {
            let [before, after] = [self.port.partition, now.partition].map(|(index, _)| index);
            return at(format!(
                "since the link was made, its partition moved from index {before} to {after}"
            ));
        }
        None
    }

    /// The position of events after this call.
    pub(super) fn since(&self) -> Since {
        self.events().as_deref().map(Events::now).unwrap_or_default()
    }

    /// The first fault after `since` of the device or of the objects at these addresses, as text. Does not wait.
    pub(super) fn fault(&self, since: Since, objects: &[usize]) -> Option<String> {
        self.events()?.fault(since, objects).map(|what| self.of_port(what))
    }

    /// The present position of events, if the port went down after `since`. Looks at the events that
    /// [`Device::fault`] has taken.
    pub(super) fn went_down(&self, since: Since) -> Option<Since> {
        let events = locked(&self.events);
        events.went_down(since).then(|| events.now())
    }

    /// The text about a request that the device neither completes nor fails after its port went down.
    #[cold]
    pub(super) fn silent(&self) -> String {
        let limit = self.options.longest_silence();
        let what =
            format!("a request has had no end for {limit:.1?} since the port went down: connect again");
        let severed = self.why_severed().map(|why| format!("; {why}")).unwrap_or_default();
        self.of_port(&what) + &severed
    }

    /// The latest event of the port after `since` that explains the end of a link, as text. Does not wait.
    #[cold]
    pub(super) fn explanation(&self, since: Since) -> Option<String> {
        self.events()?.explanation(since).map(|what| self.of_port(what))
    }

    fn of_port(&self, what: &str) -> String {
        format!("{}:{}: {what}", self.name, self.port.number)
    }

    /// Takes the device's events. Returns those that matter. A forked child takes none of its parent's, because the
    /// system reports each event once, to whichever process takes it.
    fn events(&self) -> Option<MutexGuard<'_, Events>> {
        if self.is_parents() {
            return None;
        }
        let mut events = locked(&self.events);
        loop {
            let mut event = MaybeUninit::<ibv_async_event>::uninit();
            // SAFETY: the context is open, and the output is valid. The descriptor does not block.
            if unsafe { self.verbs.ibv_get_async_event(self.context(), event.as_mut_ptr()) } != 0 {
                return Some(events);
            }
            // SAFETY: the call succeeded, so it wrote the event.
            let mut event = unsafe { event.assume_init() };
            events.keep(&event, self.port.number);
            // SAFETY: it came from this context and is acknowledged once.
            unsafe { self.verbs.ibv_ack_async_event(&mut event) };
        }
    }

    /// Returns whether the device promises that the bytes of writes into this queue pair become visible in ascending
    /// order.
    ///
    /// # Safety
    /// The queue pair is the device's.
    pub(super) unsafe fn promises_order(&self, qp: NonNull<ibv_qp>) -> bool {
        // For writes of a frame, with or without immediate data. SAFETY: the caller's (see Safety).
        unsafe { self.verbs.query_qp_data_in_order(qp.as_ptr(), IBV_WR_RDMA_WRITE) }
    }

    /// The library's name of a status.
    pub(super) fn words(&self, status: ibv_wc_status) -> String {
        // SAFETY: the function accepts every number, and the library's texts are constants.
        unsafe { CStr::from_ptr(self.verbs.ibv_wc_status_str(status)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_parents() {
            return;
        }
        self.listed = None;
        // SAFETY: all objects made from the context keep the device, and are gone. An error has no remedy.
        unsafe { self.verbs.ibv_close_device(self.context()) };
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves nothing inconsistent: none occurs between two steps that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
