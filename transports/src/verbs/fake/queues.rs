//! Queues and memory of fake devices. Posting an operation executes it.

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;

use farjump_os::PerProcess;
use farjump_rdma_sys::*;

use super::{descriptor, locked, played};

/// The requests of a backend for a queue pair.
#[derive(Clone)]
pub(in crate::verbs) struct PairRequest {
    pub(in crate::verbs) depth: u32,
    pub(in crate::verbs) receives: u32,
    pub(in crate::verbs) inline: u32,
    pub(in crate::verbs) domain: usize,
    /// The attributes of each change of its state.
    pub(in crate::verbs) changes: Vec<ibv_qp_attr>,
    /// Completion vectors of its two queues.
    pub(in crate::verbs) vectors: [c_int; 2],
}

// SAFETY: the attributes are plain data.
unsafe impl Send for PairRequest {}

#[derive(Default)]
struct All {
    pairs: HashMap<u32, Pair>,
    /// By key.
    memory: HashMap<u32, Region>,
    /// By address of the queue.
    completions: HashMap<usize, Queue>,
    last: u32,
    /// Number of calls that ended an object.
    ended: usize,
    /// Number of calls of `ibv_fork_init`.
    preparations: usize,
}

struct Pair {
    requested: PairRequest,
    qp: usize,
    peer: u32,
    sent: usize,
    received: usize,
    /// Number, and address and length of the first part.
    receives: VecDeque<(u64, u64, u32)>,
}

struct Region {
    domain: usize,
    start: u64,
    len: u64,
    access: u32,
}

struct Queue {
    vector: c_int,
    done: VecDeque<ibv_wc>,
    channel: usize,
    is_armed: bool,
}

// SAFETY: completions are plain data.
unsafe impl Send for Queue {}

/// A forked child has none of its parent's objects, because another thread may hold the lock at the fork.
static ALL: PerProcess<Mutex<All>> = PerProcess::new();

fn with<T>(change: impl FnOnce(&mut All) -> T) -> T {
    change(&mut locked(ALL.get()))
}

/// The requests for the queue pair with this number.
pub(in crate::verbs) fn request_of(number: u32) -> PairRequest {
    with(|all| all.pairs[&number].requested.clone())
}

/// Number of calls by this process that ended an object of a fake device.
pub(in crate::verbs) fn ended() -> usize {
    with(|all| all.ended)
}

/// Number of calls of `ibv_fork_init` by this process.
pub(in crate::verbs) fn preparations() -> usize {
    with(|all| all.preparations)
}

/// Counts a call that ended an object.
pub(super) fn end() {
    with(|all| all.ended += 1);
}

pub(super) fn optional() -> Optional {
    Optional { data_in_order: Some(data_in_order), fork_init: Some(fork_init), ..Optional::default() }
}

unsafe extern "C" fn fork_init() -> c_int {
    with(|all| all.preparations += 1);
    0
}

unsafe extern "C" fn data_in_order(qp: *mut ibv_qp, _: ibv_wr_opcode, _: u32) -> c_int {
    // SAFETY: a queue pair of this file's, whose context is open.
    let (is_sending, played) = unsafe { ((*qp).state == IBV_QPS_RTS, played((*qp).context)) };
    c_int::from(is_sending && locked(&played.state).is_in_order)
}

pub(super) fn set_operations(operations: &mut ibv_context_ops) {
    operations.post_send = Some(post_send);
    operations.post_recv = Some(post_recv);
    operations.poll_cq = Some(poll_cq);
    operations.req_notify_cq = Some(req_notify_cq);
}

/// An object of the library, for which zero is valid.
fn object<T>() -> *mut T {
    // SAFETY: callers make only plain structures of the library.
    Box::into_raw(Box::new(unsafe { zeroed::<T>() }))
}

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let pd = object::<ibv_pd>();
    // SAFETY: made above.
    unsafe { (*pd).context = context };
    pd
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    end();
    with(|all| {
        assert!(
            all.memory.values().all(|region| region.domain != pd.addr()),
            "memory is registered in the domain"
        );
        assert!(
            all.pairs.values().all(|pair| pair.requested.domain != pd.addr()),
            "a queue pair is in the domain"
        );
    });
    // SAFETY: made by `alloc_pd`.
    drop(unsafe { Box::from_raw(pd) });
    0
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    let mr = object::<ibv_mr>();
    with(|all| {
        all.last += 1;
        let region =
            Region { domain: pd.addr(), start: start.addr() as u64, len: len as u64, access: access as u32 };
        all.memory.insert(all.last, region);
        // SAFETY: made above.
        unsafe { ((*mr).lkey, (*mr).rkey, (*mr).pd) = (all.last, all.last, pd) };
    });
    mr
}

pub(super) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    _: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    unsafe { reg_mr(pd, start, len, access as c_int) }
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    end();
    // SAFETY: made by `reg_mr`.
    let mr = unsafe { Box::from_raw(mr) };
    with(|all| all.memory.remove(&mr.rkey));
    0
}

pub(super) unsafe extern "C" fn create_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = object::<ibv_comp_channel>();
    // SAFETY: made above.
    unsafe { (*channel).fd = descriptor() };
    channel
}

pub(super) unsafe extern "C" fn destroy_channel(channel: *mut ibv_comp_channel) -> c_int {
    end();
    // SAFETY: made by `create_channel`, with its own descriptor.
    drop(unsafe { OwnedFd::from_raw_fd(Box::from_raw(channel).fd) });
    0
}

pub(super) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    _: c_int,
    _: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let cq = object::<ibv_cq>();
    // SAFETY: made above.
    unsafe { ((*cq).context, (*cq).channel) = (context, channel) };
    let queue =
        Queue { vector, done: VecDeque::new(), channel: channel.expose_provenance(), is_armed: false };
    with(|all| all.completions.insert(cq.addr(), queue));
    cq
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    end();
    with(|all| all.completions.remove(&cq.addr()));
    // SAFETY: made by `create_cq`.
    drop(unsafe { Box::from_raw(cq) });
    0
}

pub(super) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    // SAFETY: the channel's descriptor is open.
    let channel = unsafe { BorrowedFd::borrow_raw((*channel).fd) };
    // SAFETY: the caller's output. No caller follows the pointer: it only acknowledges the event.
    unsafe { *cq = ptr::null_mut() };
    if rustix::io::read(channel, &mut [0; 8]).is_ok() { 0 } else { -1 }
}

pub(super) unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

pub(super) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, requested: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let requested = unsafe { &mut *requested };
    let (depth, inline) = (requested.cap.max_send_wr, requested.cap.max_inline_data);
    // SAFETY: the domain's context is open.
    let longest = locked(&unsafe { played((*pd).context) }.state).longest;
    if longest.is_some_and(|longest| inline * depth > longest) {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return ptr::null_mut();
    }
    let qp = object::<ibv_qp>();
    with(|all| {
        all.last += 1;
        let [sent, received] = [requested.send_cq, requested.recv_cq].map(|cq| cq.addr());
        let vectors = [sent, received].map(|cq| all.completions[&cq].vector);
        let receives = requested.cap.max_recv_wr;
        let asked_for =
            PairRequest { depth, receives, inline, domain: pd.addr(), changes: Vec::new(), vectors };
        // SAFETY: made above; the completion queue exists.
        unsafe { ((*qp).qp_num, (*qp).context) = (all.last, (*requested.send_cq).context) };
        let (qp, receives) = (qp.expose_provenance(), VecDeque::new());
        all.pairs.insert(all.last, Pair { requested: asked_for, qp, peer: 0, sent, received, receives });
    });
    qp
}

pub(super) unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, to: *mut ibv_qp_attr, fields: c_int) -> c_int {
    // SAFETY: the caller's.
    let (qp, to) = unsafe { (&mut *qp, &*to) };
    qp.state = to.qp_state;
    with(|all| {
        let pair = all.pairs.get_mut(&qp.qp_num).unwrap();
        pair.requested.changes.push(*to);
        if fields & IBV_QP_DEST_QPN as c_int != 0 {
            pair.peer = to.dest_qp_num;
        }
    });
    0
}

pub(super) unsafe extern "C" fn query_qp(
    _: *mut ibv_qp,
    _: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    libc::EOPNOTSUPP
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    end();
    // SAFETY: made by `create_qp`.
    let qp = unsafe { Box::from_raw(qp) };
    with(|all| all.pairs.remove(&qp.qp_num));
    0
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, first: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's queue pair.
    let number = unsafe { (*qp).qp_num };
    with(|all| {
        let pair = all.pairs.get_mut(&number).unwrap();
        let mut next = first;
        while !next.is_null() {
            // SAFETY: the caller's list.
            let wr = unsafe { &*next };
            // SAFETY: the caller's part.
            let part = (wr.num_sge != 0).then(|| unsafe { *wr.sg_list });
            pair.receives.push_back((wr.wr_id, part.map_or(0, |it| it.addr), part.map_or(0, |it| it.length)));
            next = wr.next;
        }
        assert!(pair.receives.len() <= pair.requested.receives as usize, "the receive queue is overrun");
    });
    0
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, first: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's queue pair, whose context is open.
    let (number, played) = unsafe { ((*qp).qp_num, played((*qp).context)) };
    if locked(&played.state).is_silent {
        return 0;
    }
    with(|all| {
        let mut next = first;
        while !next.is_null() {
            // SAFETY: the caller's list.
            let wr = unsafe { &*next };
            let status = carry_out(all, number, wr);
            let is_telling = wr.send_flags & IBV_SEND_SIGNALED != 0 || status != IBV_WC_SUCCESS;
            if is_telling && let Some(pair) = all.pairs.get(&number) {
                let sent = pair.sent;
                complete(all, sent, wr.wr_id, status, false, |_| {});
            }
            next = wr.next;
        }
    });
    0
}

/// Executes a request. Returns its status.
fn carry_out(all: &mut All, number: u32, wr: &ibv_send_wr) -> ibv_wc_status {
    let own = &all.pairs[&number];
    // SAFETY: a queue pair that exists.
    let is_sending =
        |pair: &Pair| unsafe { (*ptr::with_exposed_provenance::<ibv_qp>(pair.qp)).state == IBV_QPS_RTS };
    if !is_sending(own) {
        return IBV_WC_WR_FLUSH_ERR;
    }
    let peer_number = own.peer;
    let Some(peer) = all.pairs.get(&peer_number).filter(|peer| is_sending(peer) && peer.peer == number)
    else {
        return fail(all, &[number], IBV_WC_RETRY_EXC_ERR);
    };
    // SAFETY: the caller's part.
    let part = (wr.num_sge != 0).then(|| unsafe { *wr.sg_list });
    let (from, len) = part.map_or((0, 0), |part| (part.addr, u64::from(part.length)));
    let takes_receive = matches!(wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
    let is_message = matches!(wr.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
    // SAFETY: the field of these operations.
    let (remote, key) = unsafe { (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) };
    if !is_message && len != 0 {
        let needed =
            if wr.opcode == IBV_WR_RDMA_READ { IBV_ACCESS_REMOTE_READ } else { IBV_ACCESS_REMOTE_WRITE };
        let may = all.memory.get(&key).is_some_and(|region| {
            let is_inside = remote >= region.start && remote + len <= region.start + region.len;
            region.domain == peer.requested.domain && region.access & needed != 0 && is_inside
        });
        if !may {
            return fail(all, &[number, peer_number], IBV_WC_REM_ACCESS_ERR);
        }
    }
    let received = peer.received;
    let receive = if takes_receive {
        let Some(receive) = all.pairs.get_mut(&peer_number).unwrap().receives.pop_front() else {
            return fail(all, &[number], IBV_WC_RNR_RETRY_EXC_ERR);
        };
        Some(receive)
    } else {
        None
    };
    let to = match receive {
        Some((_, to, most)) if is_message => {
            assert!(len <= u64::from(most), "the message is longer than the buffer");
            to
        }
        _ => remote,
    };
    let (source, target) = if wr.opcode == IBV_WR_RDMA_READ { (remote, from) } else { (from, to) };
    // SAFETY: checked above to be registered, or the caller's part. As over a real device, a process may read the bytes
    // during the copy: it stores them last to first, in words.
    unsafe {
        ptr::copy(
            ptr::with_exposed_provenance::<u8>(source as usize),
            ptr::with_exposed_provenance_mut::<u8>(target as usize),
            len as usize,
        );
    }
    if let Some((id, ..)) = receive {
        let is_solicited = wr.send_flags & IBV_SEND_SOLICITED != 0;
        complete(all, received, id, IBV_WC_SUCCESS, is_solicited, |done| {
            done.opcode = if is_message { IBV_WC_RECV } else { IBV_WC_RECV_RDMA_WITH_IMM };
            done.byte_len = len as u32;
            if wr.opcode != IBV_WR_SEND {
                done.wc_flags = IBV_WC_WITH_IMM;
                // SAFETY: the field of operations with immediate data.
                done.__bindgen_anon_1.imm_data = unsafe { wr.__bindgen_anon_1.imm_data };
            }
        });
    }
    IBV_WC_SUCCESS
}

/// Puts these queue pairs into the error state. Returns the status.
fn fail(all: &mut All, numbers: &[u32], status: ibv_wc_status) -> ibv_wc_status {
    for number in numbers {
        let pair = all.pairs.get_mut(number).unwrap();
        // SAFETY: a queue pair that exists.
        unsafe { (*ptr::with_exposed_provenance_mut::<ibv_qp>(pair.qp)).state = IBV_QPS_ERR };
        let (received, flushed) = (pair.received, std::mem::take(&mut pair.receives));
        for (id, ..) in flushed {
            complete(all, received, id, IBV_WC_WR_FLUSH_ERR, true, |_| {});
        }
    }
    status
}

fn complete(
    all: &mut All,
    queue: usize,
    id: u64,
    status: ibv_wc_status,
    is_solicited: bool,
    more: impl FnOnce(&mut ibv_wc),
) {
    // SAFETY: numbers, for which zero is valid.
    let mut done: ibv_wc = unsafe { zeroed() };
    (done.wr_id, done.status) = (id, status);
    more(&mut done);
    let queue = all.completions.get_mut(&queue).unwrap();
    queue.done.push_back(done);
    if queue.is_armed && is_solicited {
        queue.is_armed = false;
        // SAFETY: the channel exists as long as its queue.
        let channel = unsafe {
            BorrowedFd::borrow_raw((*ptr::with_exposed_provenance::<ibv_comp_channel>(queue.channel)).fd)
        };
        rustix::io::write(channel, &1_u64.to_ne_bytes()).unwrap();
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, len: c_int, to: *mut ibv_wc) -> c_int {
    with(|all| {
        let queue = all.completions.get_mut(&cq.addr()).unwrap();
        let many = queue.done.len().min(len as usize);
        for (at, done) in queue.done.drain(..many).enumerate() {
            // SAFETY: the caller's output has `len` places.
            unsafe { to.add(at).write(done) };
        }
        many as c_int
    })
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, _: c_int) -> c_int {
    with(|all| all.completions.get_mut(&cq.addr()).unwrap().is_armed = true);
    0
}
