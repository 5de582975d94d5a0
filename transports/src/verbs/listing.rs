//! What the system says of RDMA devices: their ports, state and GIDs, and whether this process may open them. No library is
//! needed for it, and none is loaded.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::options::address_of;

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// The device's name: `rxe0`.
    pub device: String,
    /// The port's number, from 1.
    pub port: u8,
    /// Its state as the system calls it: `ACTIVE`, `DOWN`.
    pub state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link: String,
    /// Its GIDs that are not empty, in the order of their indices.
    pub gids: Vec<GidInfo>,
    /// Where programs open the device, or why this one cannot and the mend.
    pub node: Result<PathBuf, String>,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GidInfo {
    /// Its index.
    pub index: u16,
    /// The address in it, IPv4 where one is mapped into it.
    pub address: String,
    /// Its type as the system calls it: `RoCE v2`.
    pub kind: String,
}

/// Where programs open devices.
const NODES: &str = "/dev/infiniband";
/// Where the system lists them, by kind.
const CLASSES: &str = "/sys/class";

/// All ports of all RDMA devices of this machine, by name and number.
pub fn ports() -> Vec<PortInfo> {
    ports_in(Path::new(CLASSES), Path::new(NODES))
}

/// Where a device is opened, or why this process cannot and the mend.
pub(super) fn node_of(device: &str) -> Result<PathBuf, String> {
    node(device, Path::new(CLASSES), Path::new(NODES))
}

fn ports_in(classes: &Path, nodes: &Path) -> Vec<PortInfo> {
    let mut ports = Vec::new();
    for (device, folder) in entries(&classes.join("infiniband")) {
        let node = node(&device, classes, nodes);
        for (number, folder) in entries(&folder.join("ports")) {
            let Ok(port) = number.parse() else { continue };
            // `4: ACTIVE`
            let state = read(&folder.join("state"));
            let state = state.split_once(": ").map_or(state.clone(), |(_, word)| word.to_owned());
            ports.push(PortInfo {
                device: device.clone(),
                port,
                state,
                link: read(&folder.join("link_layer")),
                gids: gids(&folder),
                node: node.clone(),
            });
        }
    }
    ports
}

fn gids(port: &Path) -> Vec<GidInfo> {
    let mut gids: Vec<_> = entries(&port.join("gids"))
        .into_iter()
        .filter_map(|(index, file)| {
            let index = index.parse().ok()?;
            let gid: Ipv6Addr = read(&file).parse().ok().filter(|gid| *gid != Ipv6Addr::UNSPECIFIED)?;
            let kind = read(&port.join(format!("gid_attrs/types/{index}")));
            Some(GidInfo { index, address: address_of(gid.octets()).to_string(), kind })
        })
        .collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

/// Where the device is opened.
fn node(device: &str, classes: &Path, nodes: &Path) -> Result<PathBuf, String> {
    let of_device = |(_, folder): &(String, PathBuf)| read(&folder.join("ibdev")) == device;
    let Some((name, _)) = entries(&classes.join("infiniband_verbs")).into_iter().find(of_device) else {
        return Err("no driver for programs: load the module (as root: modprobe ib_uverbs)".to_owned());
    };
    let node = nodes.join(name);
    if !node.exists() {
        return Err(format!("there is no {}: hand the node into this container", node.display()));
    }
    match access(&node, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Ok(node),
        Err(errno) => Err(format!(
            "{}: {errno}: it takes read and write permission (as root: chmod 666 {})",
            node.display(),
            node.display()
        )),
    }
}

/// What a folder has, by name.
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

/// What a file says, without the end of the line; nothing of one that cannot be read.
fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn looked_at(root: &tempfile::TempDir) -> Vec<PortInfo> {
        ports_in(&root.path().join("class"), &root.path().join("dev"))
    }

    const PORT: [(&str, &str); 7] = [
        ("class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n"),
        ("class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n"),
        ("class/infiniband/rxe0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a09:0001\n"),
        ("class/infiniband/rxe0/ports/1/gids/2", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n"),
        ("class/infiniband/rxe0/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/10", "RoCE v2\n"),
        ("class/infiniband/rxe0/ports/2/state", "1: DOWN\n"),
    ];

    #[test]
    fn ports_are_listed_with_state_gids_and_the_node_that_opens_them() {
        let mut files = PORT.to_vec();
        files.extend([("class/infiniband_verbs/uverbs7/ibdev", "rxe0\n"), ("dev/uverbs7", "")]);
        let root = system(&files);
        let ports = looked_at(&root);
        let [first, second] = &ports[..] else { panic!("{ports:?}") };
        assert_eq!(
            (&*first.device, first.port, &*first.state, &*first.link),
            ("rxe0", 1, "ACTIVE", "Ethernet")
        );
        let gids: Vec<_> = first.gids.iter().map(|gid| (gid.index, &*gid.address, &*gid.kind)).collect();
        assert_eq!(gids, [(2, "fe80::ff:fe00:1", ""), (10, "10.9.0.1", "RoCE v2")]);
        assert_eq!(first.node, Ok(root.path().join("dev/uverbs7")));
        assert_eq!((second.port, &*second.state), (2, "DOWN"));
    }

    #[test]
    fn a_device_that_cannot_be_opened_says_why() {
        let error = |more: &[(&str, &str)]| {
            looked_at(&system(&[&PORT[..], more].concat()))[0].node.clone().unwrap_err()
        };
        assert!(error(&[]).contains("modprobe ib_uverbs"));
        let verbs = ("class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        assert!(error(&[verbs]).contains("uverbs0: hand the node"));
    }

    #[test]
    fn a_machine_without_devices_has_no_ports() {
        assert_eq!(looked_at(&system(&[])), []);
    }
}
