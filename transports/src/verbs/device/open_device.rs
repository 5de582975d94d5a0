//! Search for a device with a working port, and explanations if there is none.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;

use farjump_os::PerProcess;
use farjump_rdma_sys::{
    IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, IBV_TRANSPORT_UNKNOWN, Verbs, ibv_context, ibv_device,
    ibv_transport_type,
};

use super::port::{self, Port};
use super::sysfs::System;
use crate::verbs::error::last_error;
use crate::verbs::options::Options;

/// An open device and its port. Dropping this closes the device, unless it is kept.
pub(in crate::verbs) struct Found {
    verbs: &'static Verbs,
    pub(in crate::verbs) name: String,
    pub(in crate::verbs) context: NonNull<ibv_context>,
    pub(in crate::verbs) port: Port,
    kept: bool,
}

impl Found {
    /// Returns the context, which the caller must close.
    pub(in crate::verbs) fn keep(mut self) -> NonNull<ibv_context> {
        self.kept = true;
        self.context
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: opened here, and not used again.
            unsafe { self.verbs.ibv_close_device(self.context.as_ptr()) };
        }
    }
}

/// The devices of this machine that the library supports. Dropping this frees the list.
struct List {
    verbs: &'static Verbs,
    first: NonNull<*mut ibv_device>,
    len: usize,
}

impl List {
    fn of(verbs: &'static Verbs) -> Result<List, String> {
        let mut len: c_int = 0;
        // SAFETY: the output is valid.
        let first = unsafe { verbs.ibv_get_device_list(&mut len) };
        match NonNull::new(first) {
            Some(first) => Ok(List { verbs, first, len: usize::try_from(len).unwrap_or(0) }),
            None => Err(System::own().without_devices(Some(&last_error()))),
        }
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> + '_ {
        (0..self.len).map(|index| {
            // SAFETY: the list has `len` devices, and each has a name as long as the list lives.
            unsafe {
                let device = *self.first.as_ptr().add(index);
                let name = CStr::from_ptr(self.verbs.ibv_get_device_name(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from the library, and not used again. Open devices stay open.
        unsafe { self.verbs.ibv_free_device_list(self.first.as_ptr()) };
    }
}

/// The verbs library, ready for forks of this process.
///
/// # Errors
/// The reason why there is none, and a remedy.
pub(in crate::verbs) fn library() -> Result<&'static Verbs, String> {
    static PREPARED: PerProcess<OnceLock<()>> = PerProcess::new();
    #[cfg(test)]
    let played = crate::verbs::fake::verbs();
    #[cfg(not(test))]
    let played = None;
    let verbs = played.map_or_else(Verbs::open, Ok).map_err(|error| error.to_string())?;
    PREPARED.get().get_or_init(|| {
        if let Err(error) = verbs.prepare_for_forks() {
            log::warn!(
                "memory that RDMA devices use may change under them when this process forks: {error}: open a link of \
                 verbs before anything else registers memory, or use Linux 5.12 or later"
            );
        }
    });
    Ok(verbs)
}

/// The memory node (NUMA) of the processor that runs this thread.
fn memory_node() -> Option<u32> {
    #[cfg(test)]
    if let Some(node) = crate::verbs::fake::memory_node() {
        return Some(node);
    }
    let mut node = 0_u32;
    let unused = std::ptr::null_mut::<u32>();
    // SAFETY: the output is valid, and the other arguments may be null.
    let asked = unsafe { libc::syscall(libc::SYS_getcpu, unused, &raw mut node, unused) };
    (asked == 0).then_some(node)
}

/// The distance of a device from this thread, for comparison.
pub(in crate::verbs) fn distance(node: Option<u32>) -> u8 {
    match node {
        Some(node) if Some(node) == memory_node() => 0,
        None => 1,
        Some(_) => 2,
    }
}

/// The devices that the options allow, by their names, nearest first, and whether each has an active port.
pub(in crate::verbs) fn nearest_first(options: &Options) -> Vec<(String, bool)> {
    let mut devices = System::own().devices_at_hand();
    devices.retain(|(name, ..)| options.device.as_ref().is_none_or(|device| device == name));
    devices.sort_by_key(|(_, node, _)| distance(*node));
    devices.into_iter().map(|(name, _, is_active)| (name, is_active)).collect()
}

/// Opens the device and port of the options, or the nearest device with a port that carries packets.
///
/// # Errors
/// The reason why there is none, for every device that was tried.
pub(in crate::verbs) fn find(verbs: &'static Verbs, options: &Options) -> Result<Found, String> {
    let list = List::of(verbs)?;
    let wanted = |name: &str| options.device.as_deref().is_none_or(|device| device == name);
    let mut reasons = Vec::new();
    let system = System::own();
    let mut devices: Vec<_> = list.devices().filter(|(_, name)| wanted(name)).collect();
    devices.sort_by_key(|(_, name)| distance(system.memory_node_of(name)));
    for (device, name) in devices {
        match open(verbs, device, &name, options) {
            Ok(found) => return Ok(found),
            Err(why) => reasons.push(why),
        }
    }
    if !reasons.is_empty() {
        return Err(reasons.join("; "));
    }
    let there: Vec<_> = list.devices().map(|(_, name)| name).collect();
    match &options.device {
        Some(device) if !there.is_empty() => {
            Err(format!("this machine has no RDMA device {device}: it has {}", there.join(", ")))
        }
        _ => Err(System::own().without_devices(None)),
    }
}

/// Opens one device with a port that carries packets.
fn open(
    verbs: &'static Verbs,
    device: *mut ibv_device,
    name: &str,
    options: &Options,
) -> Result<Found, String> {
    // SAFETY: from the list, which the caller keeps.
    has_queue_pairs(name, unsafe { (*device).transport_type })?;
    // SAFETY: from the list, which the caller keeps.
    let context = unsafe { verbs.ibv_open_device(device) };
    let Some(context) = NonNull::new(context) else {
        return Err(refused(name, &last_error()));
    };
    let mut limits = std::mem::MaybeUninit::uninit();
    // SAFETY: the context is open, and the output is valid.
    let ports = match unsafe { verbs.ibv_query_device(context.as_ptr(), limits.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so it wrote the limits.
        0 => unsafe { limits.assume_init() }.phys_port_cnt,
        _ => 1,
    };
    let look = |number: u8| {
        let state = port::look(verbs, context, name, number)?;
        state.usable()?;
        Port::of(verbs, context, &state, options)
    };
    let port = match options.port {
        Some(number) if number > ports => Err(no_port(name, number, ports)),
        Some(number) => look(number),
        None => {
            let mut reasons = Vec::new();
            let found = (1..=ports).find_map(|number| look(number).map_err(|why| reasons.push(why)).ok());
            found.ok_or_else(|| reasons.join("; "))
        }
    };
    match port {
        Ok(port) => Ok(Found { verbs, name: name.to_owned(), context, port, kept: false }),
        Err(why) => {
            // SAFETY: opened above, and not used again.
            unsafe { verbs.ibv_close_device(context.as_ptr()) };
            Err(why)
        }
    }
}

/// Checks that a device of this kind connects queue pairs by their numbers, as links do.
fn has_queue_pairs(name: &str, transport: ibv_transport_type) -> Result<(), String> {
    match transport {
        IBV_TRANSPORT_IB | IBV_TRANSPORT_UNKNOWN => Ok(()),
        IBV_TRANSPORT_IWARP => Err(format!(
            "{name} is an iWARP device, whose queue pairs only rdma_cm connects, and no link does: use tcp over its \
             network interface, or another device"
        )),
        _ => Err(format!(
            "{name} has no reliable connections, which links need: use tcp over its network interface, or another device"
        )),
    }
}

/// The error text for a port that a device does not have.
fn no_port(name: &str, number: u8, ports: u8) -> String {
    match ports {
        1 => format!("{name} has no port {number}: it has one, {name}:1"),
        _ => format!("{name} has no port {number}: it has {name}:1 to {name}:{ports}"),
    }
}

/// The reason why a device was not opened. The library's error is that of its last attempt; the device's node often
/// shows more.
fn refused(name: &str, error: &std::io::Error) -> String {
    match System::own().node_of(name) {
        Err(why) => format!("{name} cannot be opened: {why}"),
        Ok(_) => format!("{name} cannot be opened: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use farjump_rdma_sys::IBV_TRANSPORT_UNSPECIFIED;

    use super::*;

    #[test]
    fn a_device_that_only_rdma_cm_connects_is_refused_by_name() {
        assert_eq!(has_queue_pairs("mlx5_0", IBV_TRANSPORT_IB), Ok(()));
        let error = has_queue_pairs("siw0", IBV_TRANSPORT_IWARP).unwrap_err();
        assert!(error.contains("siw0 is an iWARP device") && error.contains("use tcp"), "{error}");
        let error = has_queue_pairs("efa_0", IBV_TRANSPORT_UNSPECIFIED).unwrap_err();
        assert!(error.contains("efa_0 has no reliable connections"), "{error}");
    }

    #[test]
    fn a_missing_device_port_error_lists_the_existing_ports() {
        assert_eq!(no_port("rxe0", 9, 1), "rxe0 has no port 9: it has one, rxe0:1");
        assert_eq!(no_port("mlx4_0", 3, 2), "mlx4_0 has no port 3: it has mlx4_0:1 to mlx4_0:2");
    }
}
