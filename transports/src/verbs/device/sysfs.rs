//! The system's list of RDMA devices: their ports, state and GIDs, and whether this process may open them.
//! Needs and loads no library.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::verbs::options::address_of;

/// The system's description of a port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// The device's name: `rxe0`.
    pub device: String,
    /// The port's number, from 1.
    pub port: u8,
    /// Its state in the system's words: `ACTIVE`, `DOWN`.
    pub state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link: String,
    /// Its local identifier, by which InfiniBand addresses it; 0 on Ethernet.
    pub lid: u16,
    /// The network interface of the port, if it has one.
    pub interface: Option<String>,
    /// Its GIDs that are not empty, by index.
    pub gids: Vec<GidInfo>,
    /// The memory node (NUMA) to which the device is attached, if the machine has several.
    pub memory_node: Option<u32>,
    /// The device's node, or the reason why this process cannot open it.
    pub node: Result<PathBuf, NodeError>,
}

impl PortInfo {
    /// Makes a port with no other known facts.
    pub fn new(device: impl Into<String>, port: u8) -> PortInfo {
        PortInfo {
            device: device.into(),
            port,
            state: String::new(),
            link: String::new(),
            lid: 0,
            interface: None,
            gids: Vec::new(),
            memory_node: None,
            node: Err(NodeError::NoDriver),
        }
    }
}

/// The reason why a device cannot be opened. The text names the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The kernel module for access by programs is not loaded.
    #[error("programs cannot open it: load the module (as root: modprobe ib_uverbs)")]
    NoDriver,
    /// The device's node is missing in this file system, for example in a container.
    #[error("there is no {}: pass the node into this container (docker run --device {})", path.display(), path.display())]
    NoNode {
        /// Its expected path.
        path: PathBuf,
    },
    /// No permission to open the node.
    #[error("{}: {errno}: it takes read and write permission (as root: chmod 666 {})", path.display(), path.display())]
    NoPermission {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
}

/// An entry of a port's table of GIDs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GidInfo {
    /// Its index.
    pub index: u16,
    /// Its address, shown as IPv4 if one is mapped into it.
    pub address: String,
    /// Its type in the system's words: `RoCE v2`.
    pub kind: String,
    /// Its network interface, if it has one.
    pub interface: Option<String>,
}

impl GidInfo {
    /// Makes an entry without a network interface.
    pub fn new(index: u16, address: impl Into<String>, kind: impl Into<String>) -> GidInfo {
        GidInfo { index, address: address.into(), kind: kind.into(), interface: None }
    }
}

#[cfg(test)]
thread_local! {
    /// The folders that replace the system's in this thread.
    static PLAYED: std::cell::RefCell<Option<System>> = const { std::cell::RefCell::new(None) };
}

/// The folders of a system's list of devices, and of their nodes.
#[derive(Clone, Debug)]
pub(in crate::verbs) struct System {
    classes: PathBuf,
    nodes: PathBuf,
}

impl System {
    /// The system that this process runs on.
    pub(in crate::verbs) fn own() -> System {
        #[cfg(test)]
        if let Some(system) = PLAYED.with_borrow(Clone::clone) {
            return system;
        }
        System { classes: "/sys/class".into(), nodes: "/dev/infiniband".into() }
    }

    /// Makes other folders replace the system's in this thread; `None` ends that.
    #[cfg(test)]
    pub(in crate::verbs) fn play_to_this_thread(system: Option<System>) {
        PLAYED.set(system);
    }

    /// A system whose folders are below this one.
    #[cfg(test)]
    pub(in crate::verbs) fn below(root: &Path) -> System {
        System { classes: root.join("class"), nodes: root.join("dev") }
    }

    /// All ports of all RDMA devices, by name and number.
    pub(in crate::verbs) fn ports(&self) -> Vec<PortInfo> {
        let mut ports = Vec::new();
        for (device, folder) in entries(&self.devices()) {
            let node = self.node_of(&device);
            let memory_node = self.memory_node_of(&device);
            for (number, folder) in entries(&folder.join("ports")) {
                let Ok(port) = number.parse() else { continue };
                ports.push(PortInfo {
                    state: state(&folder),
                    link: read(&folder.join("link_layer")),
                    lid: hexadecimal(&read(&folder.join("lid"))).unwrap_or(0),
                    interface: interface(&folder),
                    gids: gids(&folder),
                    memory_node,
                    node: node.clone(),
                    ..PortInfo::new(&*device, port)
                });
            }
        }
        ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
        ports
    }

    /// The network interface of a port, if the system names one.
    pub(in crate::verbs) fn interface_of(&self, device: &str, port: u8) -> Option<String> {
        interface(&self.devices().join(device).join("ports").join(port.to_string()))
    }

    /// The network interface of a GID, if the system names it.
    pub(in crate::verbs) fn interface_of_gid(&self, device: &str, port: u8, index: u32) -> Option<String> {
        let port = self.devices().join(device).join("ports").join(port.to_string());
        Some(read(&port.join(format!("gid_attrs/ndevs/{index}")))).filter(|name| !name.is_empty())
    }

    /// The devices: the name of each, its memory node, and whether it has an active port.
    pub(in crate::verbs) fn devices_at_hand(&self) -> Vec<(String, Option<u32>, bool)> {
        let devices = entries(&self.devices()).into_iter().map(|(device, folder)| {
            let mut ports = entries(&folder.join("ports")).into_iter();
            let is_active = ports.any(|(_, port)| state(&port) == "ACTIVE");
            let node = self.memory_node_of(&device);
            (device, node, is_active)
        });
        devices.collect()
    }

    /// The memory node to which a device is attached, if the machine has several.
    pub(in crate::verbs) fn memory_node_of(&self, device: &str) -> Option<u32> {
        // -1 if the machine has only one, or does not state it.
        read(&self.devices().join(device).join("device/numa_node")).parse().ok()
    }

    /// The device's node, or the reason why this process cannot open it.
    pub(in crate::verbs) fn node_of(&self, device: &str) -> Result<PathBuf, NodeError> {
        let of_device = |(_, folder): &(String, PathBuf)| read(&folder.join("ibdev")) == device;
        let verbs = entries(&self.classes.join("infiniband_verbs"));
        let (name, _) = verbs.into_iter().find(of_device).ok_or(NodeError::NoDriver)?;
        let path = self.nodes.join(name);
        match access(&path, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Ok(path),
            Err(Errno::NOENT) => Err(NodeError::NoNode { path }),
            Err(errno) => Err(NodeError::NoPermission { path, errno }),
        }
    }

    /// The reason why the verbs library finds no device. `error` is its error if it failed.
    pub(in crate::verbs) fn without_devices(&self, error: Option<&io::Error>) -> String {
        let devices: Vec<_> = entries(&self.devices()).into_iter().map(|(name, _)| name).collect();
        if devices.is_empty() {
            return "this machine has no RDMA device; Soft-RoCE makes one of a network interface (as root: modprobe rdma_rxe && \
                    rdma link add rxe0 type rxe netdev eth0); between processes of one machine use shm"
                .to_owned();
        }
        let reasons =
            devices.iter().filter_map(|device| Some(format!("{device}: {}", self.node_of(device).err()?)));
        let reasons: Vec<_> = reasons.collect();
        if !reasons.is_empty() {
            return reasons.join("; ");
        }
        let devices = devices.join(", ");
        match error {
            Some(error) => format!("the system has {devices}, and the verbs library cannot list it: {error}"),
            None => format!(
                "the system has {devices}, and the verbs library has no driver for it: install package ibverbs-providers of \
                 Debian and Ubuntu, libibverbs of Fedora"
            ),
        }
    }

    fn devices(&self) -> PathBuf {
        self.classes.join("infiniband")
    }
}

/// The state of a port, which the system writes as `4: ACTIVE`.
fn state(port: &Path) -> String {
    let state = read(&port.join("state"));
    state.split_once(": ").map_or(state.clone(), |(_, word)| word.to_owned())
}

fn gids(port: &Path) -> Vec<GidInfo> {
    let mut gids: Vec<_> = entries(&port.join("gids"))
        .into_iter()
        .filter_map(|(index, file)| {
            let index = index.parse().ok()?;
            let gid: Ipv6Addr = read(&file).parse().ok().filter(|gid| *gid != Ipv6Addr::UNSPECIFIED)?;
            let kind = read(&port.join(format!("gid_attrs/types/{index}")));
            let interface = Some(read(&port.join(format!("gid_attrs/ndevs/{index}"))));
            let interface = interface.filter(|name| !name.is_empty());
            Some(GidInfo { index, address: address_of(gid.octets()).to_string(), kind, interface })
        })
        .collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

/// The interface of the first GID that has one.
fn interface(port: &Path) -> Option<String> {
    let mut names = entries(&port.join("gid_attrs/ndevs")).into_iter().map(|(_, file)| read(&file));
    names.find(|name| !name.is_empty())
}

/// Parses a number in the system's form: `0x1f`.
fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let read = fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok).collect());
    let read: Vec<_> = read.unwrap_or_default();
    let mut entries: Vec<_> = read
        .into_iter()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    entries.sort();
    entries
}

/// The contents of a file, without the end of the line; empty for an unreadable file.
fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files, which exist as long as the folder.
    fn system(files: &[(&str, &str)]) -> (System, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        (System::below(root.path()), root)
    }

    const PORT: [(&str, &str); 10] = [
        ("class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n"),
        ("class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n"),
        ("class/infiniband/rxe0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a09:0001\n"),
        ("class/infiniband/rxe0/ports/1/gids/2", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n"),
        ("class/infiniband/rxe0/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/10", "RoCE v2\n"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "\n"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/2", "eth7\n"),
        ("class/infiniband/rxe0/ports/2/state", "1: DOWN\n"),
        ("class/infiniband/rxe0/ports/2/lid", "0x1f\n"),
    ];
    const VERBS: (&str, &str) = ("class/infiniband_verbs/uverbs7/ibdev", "rxe0\n");
    const NODE: (&str, &str) = ("dev/uverbs7", "");

    #[test]
    fn ports_are_listed_with_state_addresses_and_the_node_that_opens_them() {
        let (system, root) = system(&[&PORT[..], &[VERBS, NODE]].concat());
        let ports = system.ports();
        let [first, second] = &ports[..] else { panic!("{ports:?}") };
        assert_eq!(
            (&*first.device, first.port, &*first.state, &*first.link),
            ("rxe0", 1, "ACTIVE", "Ethernet")
        );
        assert_eq!((first.lid, first.interface.as_deref()), (0, Some("eth7")));
        let gids: Vec<_> = first.gids.iter().map(|gid| (gid.index, &*gid.address, &*gid.kind)).collect();
        assert_eq!(gids, [(2, "fe80::ff:fe00:1", ""), (10, "10.9.0.1", "RoCE v2")]);
        assert_eq!(first.node, Ok(root.path().join("dev/uverbs7")));
        assert_eq!((second.port, &*second.state, second.lid), (2, "DOWN", 0x1f));
        assert_eq!(second.interface, None);
    }

    #[test]
    fn a_device_that_cannot_be_opened_says_why() {
        let said = |more: &[(&str, &str)]| {
            let (system, _root) = system(&[&PORT[..], more].concat());
            let of_port = system.ports()[0].node.clone();
            assert_eq!(of_port, system.node_of("rxe0"));
            // The library opened nothing and has no better explanation.
            let all = system.without_devices(None);
            assert!(of_port.is_ok() || all == format!("rxe0: {}", of_port.clone().unwrap_err()), "{all}");
            of_port.err().map_or(all, |error| error.to_string())
        };
        assert!(said(&[]).contains("modprobe ib_uverbs"));
        assert!(said(&[VERBS]).contains("uverbs7: pass the node into this container"));
        assert!(said(&[VERBS, NODE]).contains("install package ibverbs-providers"));
    }

    #[test]
    fn a_node_without_permission_is_named_with_the_command_that_gives_it() {
        if rustix::process::geteuid().is_root() {
            return println!("skipped: root has every permission");
        }
        let (system, root) = system(&[&PORT[..], &[VERBS, NODE]].concat());
        let node = root.path().join("dev/uverbs7");
        fs::set_permissions(&node, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let error = system.node_of("rxe0").unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 666 {}", node.display())), "{error}");
    }

    #[test]
    fn a_machine_without_devices_lists_no_ports_and_explains_adding_one() {
        let (system, _root) = system(&[]);
        assert_eq!(system.ports(), []);
        assert!(system.without_devices(None).contains("rdma link add rxe0 type rxe"));
    }

    #[test]
    fn the_librarys_error_is_reported_where_sysfs_shows_no_fault() {
        let (system, _root) = system(&[&PORT[..], &[VERBS, NODE]].concat());
        let error = io::Error::from_raw_os_error(Errno::NOMEM.raw_os_error());
        let said = system.without_devices(Some(&error));
        assert!(said.contains("rxe0") && said.contains(&error.to_string()), "{said}");
    }
}
