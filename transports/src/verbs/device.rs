//! An open device, one port of it, and the events that it reports.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farjump_rdma_sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, IBV_QPT_RC, IBV_WR_RDMA_WRITE, Verbs,
    ibv_async_event, ibv_context, ibv_device_attr, ibv_event_type, ibv_pd, ibv_qp_init_attr, ibv_wc_status,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::error::{exhausted, last_error};
use super::open_device;
use super::options::Options;
use super::port::{self, Port};

/// Most inline bytes of a work request that are tried. More brings nothing.
const INLINE: u32 = 512;
/// Faults that are kept for later readers.
const KEPT: usize = 64;

/// A port of an open device, shared by all endpoints that use it.
pub(super) struct Device {
    pub(super) verbs: &'static Verbs,
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) port: Port,
    /// Bytes that fit inside a work request.
    pub(super) max_inline: u32,
    /// Whether the bytes of a write become visible here in ascending order.
    pub(super) in_order: bool,
    limits: ibv_device_attr,
    events: Mutex<Events>,
    domain: NonNull<ibv_pd>,
    context: NonNull<ibv_context>,
}

// SAFETY: verbs objects may be used by any thread at any time; mutable state is behind mutexes.
unsafe impl Send for Device {}
// SAFETY: verbs objects may be used by any thread at any time; mutable state is behind mutexes.
unsafe impl Sync for Device {}

/// The reported faults of the device and its objects.
#[derive(Default)]
struct Events {
    /// Number of faults before those that are kept.
    forgotten: u64,
    kept: Vec<(Concerns, &'static str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    All,
    /// The object at this address.
    One(usize),
}

/// A position in the list of faults, for reading later ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(u64);

impl Device {
    /// The device for these options, opened for the first endpoint and closed with the last.
    pub(super) fn open(options: &Options) -> Result<Arc<Device>, String> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
        let mut open = locked(&OPEN);
        open.retain(|device| device.strong_count() > 0);
        let same = open.iter().filter_map(Weak::upgrade).find(|device| device.options == *options);
        // A device that is gone or whose port is down is searched for anew.
        if let Some(device) = same.filter(|device| device.check().is_ok()) {
            return Ok(device);
        }
        let device = Arc::new(Device::find(options)?);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    fn find(options: &Options) -> Result<Device, String> {
        let verbs = Verbs::open().map_err(|error| error.to_string())?;
        let found = open_device::find(verbs, options)?;
        let (name, context, port) = (found.name.clone(), found.context, found.port.clone());
        let mut limits = MaybeUninit::uninit();
        // SAFETY: the context is open, and the output is valid.
        if unsafe { verbs.ibv_query_device(context.as_ptr(), limits.as_mut_ptr()) } != 0 {
            return Err(format!("{name} does not report its limits: {}", last_error()));
        }
        // SAFETY: the call succeeded, so they are written.
        let limits = unsafe { limits.assume_init() };
        // SAFETY: the context is open; the number is its descriptor's.
        let events = unsafe { std::os::fd::BorrowedFd::borrow_raw(context.as_ref().async_fd) };
        fcntl_getfl(events)
            .and_then(|flags| fcntl_setfl(events, flags | OFlags::NONBLOCK))
            .map_err(|errno| format!("{name}: its events cannot be looked at without waiting: {errno}"))?;
        // SAFETY: the context is open.
        let domain = unsafe { verbs.ibv_alloc_pd(context.as_ptr()) };
        let Some(domain) = NonNull::new(domain) else {
            return Err(exhausted(&name, "protection domain", &last_error()));
        };
        // From here on the device is closed in every case.
        let mut device = Device {
            verbs,
            name,
            options: options.clone(),
            port,
            max_inline: 0,
            in_order: false,
            limits,
            events: Mutex::default(),
            domain,
            context: found.keep(),
        };
        device.probe()?;
        Ok(device)
    }

    /// Finds the facts that only a queue pair reveals.
    fn probe(&mut self) -> Result<(), String> {
        // SAFETY: the context is open.
        let cq = unsafe { self.verbs.ibv_create_cq(self.context(), 1, ptr::null_mut(), ptr::null_mut(), 0) };
        if cq.is_null() {
            return Err(exhausted(&self.name, "completion queue", &last_error()));
        }
        let mut created = Err(String::new());
        for inline in [INLINE, 220, 128, 64, 0] {
            // SAFETY: pointers and numbers, for which zero is valid.
            let mut asked: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
            (asked.send_cq, asked.recv_cq, asked.qp_type) = (cq, cq, IBV_QPT_RC);
            (asked.cap.max_send_wr, asked.cap.max_send_sge, asked.cap.max_inline_data) = (1, 1, inline);
            // SAFETY: the domain and the completion queue belong to this context.
            let qp = unsafe { self.verbs.ibv_create_qp(self.domain(), &mut asked) };
            if qp.is_null() {
                created = Err(exhausted(&self.name, "queue pair", &last_error()));
                continue;
            }
            // For writes of a frame, with or without immediate data. SAFETY: the queue pair was made above.
            let in_order = unsafe { self.verbs.query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE) };
            created = Ok((asked.cap.max_inline_data.min(INLINE), in_order));
            // SAFETY: the queue pair was made above and is not used any more.
            unsafe { self.verbs.ibv_destroy_qp(qp) };
            break;
        }
        // SAFETY: made above, and no queue pair uses it any more.
        unsafe { self.verbs.ibv_destroy_cq(cq) };
        (self.max_inline, self.in_order) = created?;
        Ok(())
    }

    /// The open context.
    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The protection domain of all its objects.
    pub(super) fn domain(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }

    /// Largest possible length of a queue up to `wanted` work requests, a power of two.
    pub(super) fn depth(&self, wanted: u32) -> u32 {
        let most = u32::try_from(self.limits.max_qp_wr.min(self.limits.max_cqe)).unwrap_or(0).max(1);
        wanted.min(1 << most.ilog2())
    }

    /// Largest possible length of a shared receive queue.
    pub(super) fn max_shared(&self) -> u32 {
        u32::try_from(self.limits.max_srq_wr).unwrap_or(0)
    }

    /// Most bytes of one operation.
    pub(super) fn max_message(&self) -> usize {
        self.port.max_message as usize
    }

    /// Checks that device and port still work.
    pub(super) fn check(&self) -> Result<(), String> {
        port::look(self.verbs, self.context, &self.name, self.port.number).and_then(|state| state.usable())
    }

    /// The position of the faults after now, for the caller.
    pub(super) fn since(&self) -> Since {
        let mut events = locked(&self.events);
        self.read(&mut events);
        Since(events.forgotten + events.kept.len() as u64)
    }

    /// The first fault since then of the device, of its port, or of the objects at these addresses, in words.
    /// Does not wait.
    pub(super) fn fault(&self, since: Since, objects: &[usize]) -> Option<String> {
        let mut events = locked(&self.events);
        self.read(&mut events);
        let behind = since.0.saturating_sub(events.forgotten) as usize;
        let mine = |concerns| match concerns {
            Concerns::All => true,
            Concerns::One(object) => objects.contains(&object),
        };
        let (_, what) = events.kept.iter().skip(behind).find(|(concerns, _)| mine(*concerns))?;
        Some(format!("{}:{}: {what}", self.name, self.port.number))
    }

    /// Takes the device's events.
    fn read(&self, events: &mut Events) {
        loop {
            let mut event = MaybeUninit::<ibv_async_event>::uninit();
            // SAFETY: the context is open, and the output is valid. The descriptor does not block.
            if unsafe { self.verbs.ibv_get_async_event(self.context(), event.as_mut_ptr()) } != 0 {
                return;
            }
            // SAFETY: the call succeeded, so it is written.
            let mut event = unsafe { event.assume_init() };
            if let (Some(what), Some(concerns)) = (words(event.event_type), self.concerned(&event)) {
                events.kept.push((concerns, what));
                if events.kept.len() > KEPT {
                    events.kept.remove(0);
                    events.forgotten += 1;
                }
            }
            // SAFETY: it came from this context and is acknowledged once.
            unsafe { self.verbs.ibv_ack_async_event(&mut event) };
        }
    }

    /// The objects that an event concerns; none if it is of an unused port.
    fn concerned(&self, event: &ibv_async_event) -> Option<Concerns> {
        match event.event_type {
            IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: events of queue pairs name one.
                Some(Concerns::One(unsafe { event.element.qp }.addr()))
            }
            // SAFETY: events of completion queues name one.
            IBV_EVENT_CQ_ERR => Some(Concerns::One(unsafe { event.element.cq }.addr())),
            IBV_EVENT_PORT_ERR => {
                // SAFETY: events of ports name one.
                let port = unsafe { event.element.port_num };
                (port == c_int::from(self.port.number)).then_some(Concerns::All)
            }
            _ => Some(Concerns::All),
        }
    }

    /// The library's name of a status.
    pub(super) fn words(&self, status: ibv_wc_status) -> String {
        // SAFETY: every number is accepted, and the library's texts are constants.
        unsafe { CStr::from_ptr(self.verbs.ibv_wc_status_str(status)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all objects made of them hold the device, and are gone. An error has no remedy.
        unsafe {
            self.verbs.ibv_dealloc_pd(self.domain());
            self.verbs.ibv_close_device(self.context());
        }
    }
}

/// The meaning of an event for a link, if it is a fault.
fn words(event: ibv_event_type) -> Option<&'static str> {
    Some(match event {
        IBV_EVENT_DEVICE_FATAL => "the device failed or was removed",
        IBV_EVENT_PORT_ERR => "the port went down: is the link unplugged, or the network interface down?",
        IBV_EVENT_CQ_ERR => "a completion queue overran or failed",
        IBV_EVENT_SRQ_ERR => "the shared receive queue failed",
        IBV_EVENT_QP_FATAL => "the queue pair failed",
        IBV_EVENT_QP_REQ_ERR => {
            "the peer sent a request that cannot be carried out, and the queue pair was shut"
        }
        IBV_EVENT_QP_ACCESS_ERR => {
            "the peer requested memory that it may not access (key, range or rights), and the queue pair was shut"
        }
        _ => return None,
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves nothing inconsistent: none happens between two steps that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use farjump_rdma_sys::{IBV_EVENT_COMM_EST, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_SM_CHANGE};

    use super::*;

    #[test]
    fn events_that_end_links_are_told_in_words_and_others_are_not() {
        for (event, said) in [
            // Soft-RoCE never reports this: its removal waits until no process has it open.
            (IBV_EVENT_DEVICE_FATAL, "removed"),
            (IBV_EVENT_PORT_ERR, "port went down"),
            (IBV_EVENT_QP_FATAL, "queue pair failed"),
            (IBV_EVENT_CQ_ERR, "completion queue overran"),
            (IBV_EVENT_SRQ_ERR, "receive queue failed"),
        ] {
            assert!(words(event).is_some_and(|text| text.contains(said)), "{event}");
        }
        for event in [IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST, IBV_EVENT_SM_CHANGE] {
            assert_eq!(words(event), None, "{event}");
        }
    }
}
