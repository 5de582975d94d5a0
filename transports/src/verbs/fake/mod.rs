//! Fake devices for tests, behind the table of verbs' functions.
//!
//! They belong to the thread that made them: backends opened there find these devices and no others. Queue pairs of all
//! of them reach each other by their numbers, and execute writes, reads and sends when they are posted (`queues.rs`).
//! The devices record all requests: capacities, states, domains.

mod queues;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint};
use std::fs;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farjump_rdma_sys::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::verbs::device::interfaces::Interfaces;
use crate::verbs::device::sysfs::System;
pub(in crate::verbs) use queues::{ended, preparations, request_of};

/// A port of a fake device.
#[derive(Clone, Debug)]
pub(in crate::verbs) struct FakePort {
    pub(in crate::verbs) is_active: bool,
    pub(in crate::verbs) is_ethernet: bool,
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) mtu: u32,
    pub(in crate::verbs) gids: Vec<FakeGid>,
    pub(in crate::verbs) keys: Vec<u16>,
}

/// A GID of a fake port.
#[derive(Clone, Debug)]
pub(in crate::verbs) struct FakeGid {
    index: u8,
    raw: [u8; 16],
    kind: u32,
    /// Index and name of its interface.
    interface: (u32, String),
}

impl FakePort {
    /// A port of Ethernet with this GID of RoCE v2.
    pub(in crate::verbs) fn ethernet(address: &str) -> FakePort {
        FakePort { is_ethernet: true, ..FakePort::infiniband(0, "::") }.with_gid(
            1,
            IBV_GID_TYPE_ROCE_V2,
            address,
        )
    }

    /// A port of InfiniBand with this LID and GID.
    pub(in crate::verbs) fn infiniband(lid: u16, address: &str) -> FakePort {
        let port = FakePort {
            is_active: true,
            is_ethernet: false,
            lid,
            mtu: 4,
            gids: Vec::new(),
            keys: vec![0xffff],
        };
        port.with_gid(0, IBV_GID_TYPE_IB, address)
    }

    /// The same port with another GID, instead of any at this index.
    pub(in crate::verbs) fn with_gid(mut self, index: u8, kind: u32, address: &str) -> FakePort {
        let raw = match address.parse().unwrap() {
            std::net::IpAddr::V4(short) => short.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(long) => long.octets(),
        };
        self.gids.retain(|gid| gid.index != index && gid.raw != [0; 16]);
        self.gids.push(FakeGid { index, raw, kind, interface: (0, String::new()) });
        self
    }

    /// The same port, with its latest GID on this interface.
    pub(in crate::verbs) fn on(mut self, index: u32, name: &str) -> FakePort {
        self.gids.last_mut().unwrap().interface = (index, name.to_owned());
        self
    }
}

/// A fake device.
#[repr(C)]
struct Played {
    // The first field, because the library's pointers are to it.
    device: ibv_device,
    state: Mutex<State>,
}

struct State {
    ports: Vec<FakePort>,
    events: VecDeque<(ibv_event_type, c_int)>,
    /// Inline bytes times depth above which a send queue is refused.
    longest: Option<u32>,
    /// True if it neither completes nor fails requests, like Soft-RoCE of Linux 6.1 after an outage.
    is_silent: bool,
    /// True if it places bytes in order, which it reports only for queue pairs that send, like mlx5.
    is_in_order: bool,
}

/// The devices of a thread. Dropping this removes them from the thread; open devices continue to work.
pub(in crate::verbs) struct Fake(());

struct World {
    root: tempfile::TempDir,
    verbs: &'static Verbs,
    devices: Vec<&'static Played>,
    interfaces: Interfaces,
    node: u32,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn of_world<T>(take: impl FnOnce(&World) -> T) -> Option<T> {
    WORLD.with_borrow(|world| world.as_ref().map(take))
}

/// The table of this thread's fake devices.
pub(in crate::verbs) fn verbs() -> Option<&'static Verbs> {
    of_world(|world| world.verbs)
}

/// The interfaces of the fake network namespace.
pub(in crate::verbs) fn interfaces() -> Option<Interfaces> {
    of_world(|world| world.interfaces.clone())
}

/// The simulated memory node of this thread.
pub(in crate::verbs) fn memory_node() -> Option<u32> {
    of_world(|world| world.node)
}

impl Fake {
    /// Makes this thread find only the devices that are added.
    pub(in crate::verbs) fn new() -> Fake {
        let root = tempfile::tempdir().unwrap();
        let verbs = Box::leak(Box::new(Verbs::of_functions(table(), queues::optional())));
        System::play_to_this_thread(Some(System::below(root.path())));
        let interfaces = Interfaces::default();
        WORLD.set(Some(World { root, verbs, devices: Vec::new(), interfaces, node: 0 }));
        Fake(())
    }

    /// Adds a device attached to this memory node.
    pub(in crate::verbs) fn device(
        &self,
        name: &str,
        node: i32,
        transport: ibv_transport_type,
        ports: &[FakePort],
    ) {
        // SAFETY: pointers, numbers and optional functions, for which zero is valid.
        let mut device: ibv_device = unsafe { zeroed() };
        (device.transport_type, device.node_type) = (transport, IBV_NODE_CA);
        for (to, from) in device.name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        let state = Mutex::new(State {
            ports: ports.to_vec(),
            events: VecDeque::new(),
            longest: None,
            is_silent: false,
            is_in_order: false,
        });
        let played: &Played = Box::leak(Box::new(Played { device, state }));
        WORLD.with_borrow_mut(|world| world.as_mut().unwrap().devices.push(played));
        self.write(&format!("infiniband/{name}/device/numa_node"), &node.to_string());
        self.write(&format!("infiniband_verbs/uverbs_{name}/ibdev"), name);
        self.list(name, ports);
    }

    /// A device of Ethernet near this thread with one port, which has this address.
    pub(in crate::verbs) fn roce(&self, name: &str, address: &str) {
        self.device(name, 0, IBV_TRANSPORT_IB, &[FakePort::ethernet(address)]);
    }

    /// Changes the ports of a device, and makes it report this event of its first port.
    pub(in crate::verbs) fn change(&self, name: &str, ports: &[FakePort], event: ibv_event_type) {
        let played = self.played(name);
        let mut state = locked(&played.state);
        state.ports = ports.to_vec();
        state.events.push_back((event, 1));
        self.list(name, ports);
    }

    /// Makes a device refuse send queues whose requests together have more inline bytes than this.
    pub(in crate::verbs) fn refuse_longer(&self, name: &str, longest: u32) {
        locked(&self.played(name).state).longest = Some(longest);
    }

    /// Makes a device keep silent about requests, or execute them again.
    pub(in crate::verbs) fn silence(&self, name: &str, is_silent: bool) {
        locked(&self.played(name).state).is_silent = is_silent;
    }

    /// Makes a device place bytes in order.
    pub(in crate::verbs) fn keep_order(&self, name: &str) {
        locked(&self.played(name).state).is_in_order = true;
    }

    /// Gives this thread one fake device of Ethernet until the thread ends.
    pub(in crate::verbs) fn for_this_thread() {
        let fake = Fake::new();
        fake.roce("fake0", "10.9.0.1");
        std::mem::forget(fake);
    }

    /// Sets the interfaces of the network namespace.
    pub(in crate::verbs) fn namespace(&self, there: &[(u32, &str)], addresses: &[&str]) {
        let interfaces = Interfaces {
            there: there.iter().map(|(index, name)| (*index, (*name).to_owned())).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        WORLD.with_borrow_mut(|world| world.as_mut().unwrap().interfaces = interfaces);
    }

    /// Simulates that this thread runs on this memory node.
    pub(in crate::verbs) fn run_on(&self, node: u32) {
        WORLD.with_borrow_mut(|world| world.as_mut().unwrap().node = node);
    }

    fn played(&self, name: &str) -> &'static Played {
        let is_it = |played: &&&Played| name_of(&played.device) == name;
        of_world(|world| *world.devices.iter().find(is_it).unwrap()).unwrap()
    }

    fn list(&self, name: &str, ports: &[FakePort]) {
        let _ = fs::remove_dir_all(root().join(format!("class/infiniband/{name}/ports")));
        for (number, port) in (1..).zip(ports) {
            let write = |file: &str, content: &str| {
                self.write(&format!("infiniband/{name}/ports/{number}/{file}"), content);
            };
            write("state", if port.is_active { "4: ACTIVE" } else { "1: DOWN" });
            write("link_layer", if port.is_ethernet { "Ethernet" } else { "InfiniBand" });
            write("lid", &format!("{:#x}", port.lid));
            for FakeGid { index, raw, kind, interface: (_, interface) } in &port.gids {
                let words: Vec<_> =
                    raw.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
                write(&format!("gids/{index}"), &words.join(":"));
                let kind = if *kind == IBV_GID_TYPE_ROCE_V2 { "RoCE v2" } else { "IB/RoCE v1" };
                write(&format!("gid_attrs/types/{index}"), kind);
                write(&format!("gid_attrs/ndevs/{index}"), interface);
            }
        }
    }

    fn write(&self, file: &str, content: &str) {
        let path = root().join("class").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        System::play_to_this_thread(None);
        WORLD.take();
    }
}

fn root() -> PathBuf {
    of_world(|world| world.root.path().to_owned()).unwrap()
}

fn name_of(device: &ibv_device) -> String {
    device.name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fake device of an open context.
unsafe fn played<'a>(context: *mut ibv_context) -> &'a Played {
    // SAFETY: contexts are made by `open_device`, and devices are never freed.
    unsafe { &*(*context).device.cast::<Played>() }
}

unsafe extern "C" fn get_device_list(len: *mut c_int) -> *mut *mut ibv_device {
    let all = of_world(|world| world.devices.iter().map(|it| ptr::from_ref(*it).cast_mut().cast()).collect());
    let all: Vec<*mut ibv_device> = all.unwrap_or_default();
    // SAFETY: the caller's output.
    unsafe { *len = all.len() as c_int };
    // Never freed, because a list does not state its length.
    Box::leak([all, vec![ptr::null_mut()]].concat().into_boxed_slice()).as_mut_ptr()
}

unsafe extern "C" fn free_device_list(_: *mut *mut ibv_device) {}

unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a device of the list.
    unsafe { (*device).name.as_ptr() }
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: pointers, numbers and optional functions, for which zero is valid.
    let mut context: Box<ibv_context> = unsafe { Box::new(zeroed()) };
    context.device = device;
    context.async_fd = descriptor();
    context.num_comp_vectors = 4;
    queues::set_operations(&mut context.ops);
    Box::into_raw(context)
}

/// A descriptor to wait on.
fn descriptor() -> c_int {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap().into_raw_fd()
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    queues::end();
    // SAFETY: made by `open_device`.
    let context = unsafe { Box::from_raw(context) };
    // SAFETY: made by `open_device`, and closed once.
    drop(unsafe { OwnedFd::from_raw_fd(context.async_fd.as_raw_fd()) });
    0
}

unsafe extern "C" fn get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: the context is open.
    let Some((kind, port)) = locked(&unsafe { played(context) }.state).events.pop_front() else { return -1 };
    // SAFETY: the caller's output; zero is valid.
    unsafe {
        event.write(zeroed());
        ((*event).event_type, (*event).element.port_num) = (kind, port);
    }
    0
}

unsafe extern "C" fn ack_async_event(_: *mut ibv_async_event) {}

unsafe extern "C" fn query_device(context: *mut ibv_context, to: *mut ibv_device_attr) -> c_int {
    // SAFETY: the context is open, and the output is the caller's; zero is valid.
    unsafe {
        to.write(zeroed());
        ((*to).max_qp_wr, (*to).max_cqe) = (1 << 14, 1 << 16);
        (*to).phys_port_cnt = locked(&played(context).state).ports.len() as u8;
    }
    0
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    to: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the context is open.
    let state = locked(&unsafe { played(context) }.state);
    let Some(port) = state.ports.get(usize::from(port) - 1) else { return libc::EINVAL };
    let to = to.cast::<ibv_port_attr>();
    // SAFETY: the inline function passes the whole structure (`Verbs::query_port`).
    let to = unsafe { &mut *to };
    to.state = if port.is_active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    (to.active_mtu, to.lid, to.max_msg_sz) = (port.mtu, port.lid, 1 << 30);
    to.link_layer = if port.is_ethernet { IBV_LINK_LAYER_ETHERNET } else { IBV_LINK_LAYER_INFINIBAND } as u8;
    (to.gid_tbl_len, to.pkey_tbl_len) = (8, port.keys.len() as u16);
    0
}

unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    _: u32,
    _: usize,
) -> c_int {
    // SAFETY: the context is open.
    let state = locked(&unsafe { played(context) }.state);
    let gids = &state.ports[port as usize - 1].gids;
    let Some(found) = gids.iter().find(|gid| u32::from(gid.index) == index) else {
        return libc::ENODATA;
    };
    let entry = ibv_gid_entry {
        gid: ibv_gid { raw: found.raw },
        gid_index: index,
        port_num: port,
        gid_type: found.kind,
        ndev_ifindex: found.interface.0,
    };
    // SAFETY: the caller's output.
    unsafe { to.write(entry) };
    0
}

unsafe extern "C" fn query_pkey(context: *mut ibv_context, port: u8, index: c_int, to: *mut u16) -> c_int {
    // SAFETY: the context is open, and the output is the caller's.
    unsafe {
        let state = locked(&played(context).state);
        *to = state.ports[usize::from(port) - 1].keys[index as usize].to_be();
    }
    0
}

unsafe extern "C" fn no_text(_: c_int) -> *const c_char {
    c"played".as_ptr()
}

unsafe extern "C" fn status_text(status: c_uint) -> *const c_char {
    let text = match status {
        IBV_WC_REM_ACCESS_ERR => c"remote access error",
        IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        _ => c"played",
    };
    text.as_ptr()
}

/// The table of functions. Those that no backend calls return a constant.
fn table() -> Library {
    let mut table = MaybeUninit::<Library>::zeroed();
    let at = table.as_mut_ptr();
    macro_rules! set {
        ($($field:ident = $function:expr),* $(,)?) => {
            // SAFETY: fields of the table.
            unsafe { $((&raw mut (*at).$field).write($function);)* }
        };
    }
    set! {
        ibv_wc_status_str = status_text, ibv_port_state_str = status_text, ibv_event_type_str = status_text,
        ibv_node_type_str = no_text, ibv_get_device_list = get_device_list, ibv_free_device_list = free_device_list,
        ibv_get_device_name = get_device_name, ibv_open_device = open_device, ibv_close_device = close_device,
        ibv_get_async_event = get_async_event, ibv_ack_async_event = ack_async_event,
        ibv_query_device = query_device, ibv_query_port = query_port, _ibv_query_gid_ex = query_gid,
        ibv_query_pkey = query_pkey, ibv_alloc_pd = queues::alloc_pd, ibv_dealloc_pd = queues::dealloc_pd,
        ibv_reg_mr = queues::reg_mr, ibv_reg_mr_iova2 = queues::reg_mr_iova2, ibv_dereg_mr = queues::dereg_mr,
        ibv_create_comp_channel = queues::create_channel, ibv_destroy_comp_channel = queues::destroy_channel,
        ibv_create_cq = queues::create_cq, ibv_destroy_cq = queues::destroy_cq,
        ibv_get_cq_event = queues::get_cq_event, ibv_ack_cq_events = queues::ack_cq_events,
        ibv_create_qp = queues::create_qp, ibv_modify_qp = queues::modify_qp,
        ibv_query_qp = queues::query_qp, ibv_destroy_qp = queues::destroy_qp,
    }
    // SAFETY: the code above sets every function. The only other field is a handle of the dynamic linker, which may be
    // null and is never closed: the table is leaked.
    unsafe { table.assume_init() }
}
