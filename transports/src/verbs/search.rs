//! Looking for a device with a port that carries packets, and why there is none.

use std::ffi::{CStr, c_int};
use std::fs;
use std::path::Path;
use std::ptr::NonNull;

use farjump_rdma_sys::{Verbs, ibv_context, ibv_device};

use super::listing;
use super::memory::last_error;
use super::options::Options;
use super::port::{self, Port};

/// Where the system lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";
/// Where programs open them.
const NODES: &str = "/dev/infiniband";

/// A device that was opened, with a port of it. Closed when it is dropped, unless it is kept.
pub(super) struct Found {
    verbs: &'static Verbs,
    pub(super) name: String,
    pub(super) context: NonNull<ibv_context>,
    pub(super) port: Port,
    kept: bool,
}

impl Found {
    /// The context, which is now the caller's to close.
    pub(super) fn keep(mut self) -> NonNull<ibv_context> {
        self.kept = true;
        self.context
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: opened here, and used no more.
            unsafe { self.verbs.ibv_close_device(self.context.as_ptr()) };
        }
    }
}

/// The devices of this machine that the library drives. Given back when it is dropped.
struct List {
    verbs: &'static Verbs,
    first: NonNull<*mut ibv_device>,
    len: usize,
}

impl List {
    fn of(verbs: &'static Verbs) -> Result<List, String> {
        let mut len: c_int = 0;
        // SAFETY: there is room for the number.
        let first = unsafe { verbs.ibv_get_device_list(&mut len) };
        match NonNull::new(first) {
            Some(first) => Ok(List { verbs, first, len: usize::try_from(len).unwrap_or(0) }),
            None => Err(absent(Some(&last_error()))),
        }
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> + '_ {
        (0..self.len).map(|index| {
            // SAFETY: the list has so many devices, and each has a name as long as the list lives.
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
        // SAFETY: from the library, and used no more. Devices that were opened stay.
        unsafe { self.verbs.ibv_free_device_list(self.first.as_ptr()) };
    }
}

/// Opens the device and port of the options, or the first that carries packets.
///
/// # Errors
/// Why there is none: of every device that was looked at.
pub(super) fn find(verbs: &'static Verbs, options: &Options) -> Result<Found, String> {
    let list = List::of(verbs)?;
    let wanted = |name: &str| options.device.as_deref().is_none_or(|device| device == name);
    let mut reasons = Vec::new();
    for (device, name) in list.devices().filter(|(_, name)| wanted(name)) {
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
        _ => Err(absent(None)),
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
    let context = unsafe { verbs.ibv_open_device(device) };
    let Some(context) = NonNull::new(context) else {
        return Err(refused(name, &last_error()));
    };
    let look = |number: u8| {
        let state = port::look(verbs, context, name, number)?;
        state.usable()?;
        Port::of(verbs, context, &state, options)
    };
    let port = match options.port {
        Some(number) => look(number),
        None => {
            let mut limits = std::mem::MaybeUninit::uninit();
            // SAFETY: the context is open, and there is room.
            let ports = match unsafe { verbs.ibv_query_device(context.as_ptr(), limits.as_mut_ptr()) } {
                // SAFETY: the call succeeded, so they are written.
                0 => unsafe { limits.assume_init() }.phys_port_cnt,
                _ => 1,
            };
            let mut reasons = Vec::new();
            let found = (1..=ports).find_map(|number| look(number).map_err(|why| reasons.push(why)).ok());
            found.ok_or_else(|| reasons.join("; "))
        }
    };
    match port {
        Ok(port) => Ok(Found { verbs, name: name.to_owned(), context, port, kept: false }),
        Err(why) => {
            // SAFETY: opened above, and used no more.
            unsafe { verbs.ibv_close_device(context.as_ptr()) };
            Err(why)
        }
    }
}

/// Why a device was not opened. What the library says is of the last way that it tried; the node often says more.
fn refused(name: &str, error: &std::io::Error) -> String {
    match listing::node_of(name) {
        Err(why) => format!("{name} cannot be opened: {why}"),
        Ok(_) => format!("{name} cannot be opened: {error}"),
    }
}

/// Why the library finds no device at all.
fn absent(error: Option<&std::io::Error>) -> String {
    let names = |path: &str| {
        let entries = fs::read_dir(path).map(|entries| entries.filter_map(Result::ok).collect());
        let entries: Vec<_> = entries.unwrap_or_default();
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let devices = names(DEVICES);
    if devices.is_empty() {
        return "this machine has no RDMA device; Soft-RoCE makes one of a network interface (as root: modprobe rdma_rxe && rdma \
                link add rxe0 type rxe netdev eth0); between processes of one machine use shm"
            .to_owned();
    }
    let devices = devices.join(", ");
    if !Path::new(NODES).exists() || !names(NODES).iter().any(|name| name.starts_with("uverbs")) {
        return format!(
            "the system has {devices}, and no node for it in {NODES}: load the module (as root: modprobe ib_uverbs), or hand the \
             node into this container"
        );
    }
    match error {
        Some(error) => format!("the system has {devices}, and the verbs library cannot list it: {error}"),
        None => format!(
            "the system has {devices}, and the verbs library has no driver for it: install package ibverbs-providers of Debian and \
             Ubuntu, libibverbs of Fedora"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_devices_says_how_to_get_one() {
        if Path::new(DEVICES).is_dir() {
            return println!("skipped: this machine has RDMA devices");
        }
        assert!(absent(None).contains("rdma link add rxe0 type rxe"));
    }
}
