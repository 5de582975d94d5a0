//! A port: its state, and the addresses by which peers reach it.

use std::fmt;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ptr::NonNull;

use farjump_rdma_sys::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE,
    IBV_PORT_ARMED, IBV_PORT_DOWN, IBV_PORT_INIT, Verbs, ibv_context, ibv_gid_entry, ibv_port_attr,
};

use super::interfaces::Interfaces;
use super::sysfs::System;
use crate::verbs::options::{Gid, Options, address_of, bytes_of_mtu};

/// The port's flag for a global header in every packet (`IB_UVERBS_QPF_GRH_REQUIRED` in
/// rdma/ib_user_ioctl_verbs.h).
const GLOBAL_HEADER: u8 = 1;

/// The result of querying a port.
pub(in crate::verbs) struct State {
    name: String,
    number: u8,
    attributes: ibv_port_attr,
}

/// Queries a port.
pub(in crate::verbs) fn look(
    verbs: &Verbs,
    context: NonNull<ibv_context>,
    name: &str,
    number: u8,
) -> Result<State, String> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the context is open, and the output is valid.
    match unsafe { verbs.query_port(context.as_ptr(), number, attributes.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so it wrote the attributes.
        0 => Ok(State { name: name.to_owned(), number, attributes: unsafe { attributes.assume_init() } }),
        errno => {
            let errno = std::io::Error::from_raw_os_error(errno);
            Err(format!("{name} does not say how its port {number} is: {errno}"))
        }
    }
}

impl State {
    /// Checks that packets pass.
    ///
    /// # Errors
    /// The reason why packets do not pass, and a remedy.
    pub(in crate::verbs) fn usable(&self) -> Result<(), String> {
        let State { name, number, attributes } = self;
        match attributes.state {
            IBV_PORT_ACTIVE => Ok(()),
            IBV_PORT_DOWN if self.is_ethernet() => {
                let mend = match System::own().interface_of(name, *number) {
                    Some(interface) => format!("as root: ip link set {interface} up"),
                    None => "`rdma link` shows which; as root: ip link set NAME up".to_owned(),
                };
                Err(format!("port {number} of {name} is down: take its network interface up ({mend})"))
            }
            IBV_PORT_DOWN => Err(format!("port {number} of {name} is down: is the cable plugged in?")),
            IBV_PORT_INIT | IBV_PORT_ARMED => {
                Err(format!("port {number} of {name} waits for a subnet manager: start one (opensm)"))
            }
            other => Err(format!("port {number} of {name} is in state {other}, which carries nothing")),
        }
    }

    fn is_ethernet(&self) -> bool {
        u32::from(self.attributes.link_layer) == IBV_LINK_LAYER_ETHERNET
    }
}

/// The chosen GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verbs) struct Chosen {
    /// Its index in the port's table.
    pub(in crate::verbs) index: u8,
    /// Its bytes.
    pub(in crate::verbs) raw: [u8; 16],
    /// Its kind (`enum ibv_gid_type`).
    pub(in crate::verbs) kind: u32,
    /// True if it is of an interface in another network namespace, on whose addresses this process cannot rely.
    pub(in crate::verbs) is_foreign: bool,
}

/// The name of a kind of GIDs.
pub(in crate::verbs) fn kind_of_gid(kind: u32) -> &'static str {
    match kind {
        IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
        IBV_GID_TYPE_IB => "InfiniBand",
        _ => "an unknown kind",
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_foreign { ", of another network namespace" } else { "" };
        write!(out, "GID {} {} ({}{place})", self.index, address_of(self.raw), kind_of_gid(self.kind))
    }
}

/// The port in use, by the choice of the options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::verbs) struct Port {
    pub(in crate::verbs) number: u8,
    pub(in crate::verbs) is_ethernet: bool,
    /// True if packets to it need a global header, with GIDs.
    pub(in crate::verbs) is_global: bool,
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) gid: Chosen,
    /// Longest packet, in bytes.
    pub(in crate::verbs) mtu: u16,
    /// Longest operation, in bytes.
    pub(in crate::verbs) max_message: u32,
    /// Index of the partition's key in the port's table, and the key.
    pub(in crate::verbs) partition: (u16, u16),
}

impl Port {
    /// Makes the port of `state`, with the choices of the options.
    pub(in crate::verbs) fn of(
        verbs: &Verbs,
        context: NonNull<ibv_context>,
        state: &State,
        options: &Options,
    ) -> Result<Port, String> {
        let State { name, number, attributes } = state;
        let at = |what: String| format!("port {number} of {name}: {what}");
        let gids = gids(verbs, context, name, *number, attributes);
        let gid = choose(&gids, options.gid, state.is_ethernet()).map_err(at)?;
        let keys = (0..attributes.pkey_tbl_len).filter_map(|index| {
            let mut key = 0;
            // SAFETY: the context is open, and the output is valid.
            let asked =
                unsafe { verbs.ibv_query_pkey(context.as_ptr(), *number, i32::from(index), &mut key) };
            (asked == 0).then(|| (index, u16::from_be(key)))
        });
        let partition = partition(&keys.collect::<Vec<_>>(), options.partition).map_err(at)?;
        let active = bytes_of_mtu(attributes.active_mtu);
        let mtu = options.mtu.map_or(active, |mtu| mtu.min(active));
        if mtu == 0 {
            return Err(at(format!("packets of MTU code {} are not known", attributes.active_mtu)));
        }
        Ok(Port {
            number: *number,
            is_ethernet: state.is_ethernet(),
            is_global: state.is_ethernet() || attributes.flags & GLOBAL_HEADER != 0,
            lid: attributes.lid,
            gid,
            mtu,
            max_message: attributes.max_msg_sz.max(u32::from(mtu)),
            partition,
        })
    }
}

/// All GIDs of a port.
fn gids(
    verbs: &Verbs,
    context: NonNull<ibv_context>,
    name: &str,
    number: u8,
    attributes: &ibv_port_attr,
) -> Vec<Chosen> {
    let (system, interfaces) = (System::own(), system_interfaces());
    let is_foreign = |entry: &ibv_gid_entry, raw: [u8; 16]| {
        let interface = || system.interface_of_gid(name, number, entry.gid_index);
        let own = interfaces.as_ref().filter(|_| entry.ndev_ifindex != 0);
        own.is_some_and(|own| own.lack(raw, entry.ndev_ifindex, interface().as_deref()))
    };
    let most = attributes.gid_tbl_len.clamp(0, 256) as u32;
    let entries = (0..most).filter_map(|index| {
        let mut entry = MaybeUninit::<ibv_gid_entry>::uninit();
        // SAFETY: the context is open, and the output is valid.
        let asked = unsafe { verbs.query_gid_ex(context.as_ptr(), number.into(), index, entry.as_mut_ptr()) };
        // SAFETY: the call succeeded, so it wrote the entry; all fields of a GID are bytes.
        let (entry, raw) = (asked == 0).then(|| unsafe {
            let entry = entry.assume_init();
            (entry, entry.gid.raw)
        })?;
        let chosen = Chosen { index: index as u8, raw, kind: entry.gid_type, is_foreign: false };
        (raw != [0; 16]).then(|| Chosen { is_foreign: is_foreign(&entry, raw), ..chosen })
    });
    entries.collect()
}

/// The interfaces of this process's namespace. `None` if the system does not list them.
pub(in crate::verbs) fn system_interfaces() -> Option<Interfaces> {
    #[cfg(test)]
    if let Some(interfaces) = crate::verbs::fake::interfaces() {
        return Some(interfaces);
    }
    Interfaces::own().ok()
}

/// The GID that `asked` chooses.
fn choose(gids: &[Chosen], asked: Gid, is_ethernet: bool) -> Result<Chosen, String> {
    let shown = || gids.iter().map(Chosen::to_string).collect::<Vec<_>>().join(", ");
    let own = || gids.iter().filter(|gid| !gid.is_foreign);
    let second = |gid: &&Chosen| gid.kind == IBV_GID_TYPE_ROCE_V2;
    let found = match asked {
        Gid::Index(index) => gids.iter().find(|gid| gid.index == index),
        Gid::Address(address) => {
            own().find(|gid| address_of(gid.raw) == address && (second(gid) || !is_ethernet))
        }
        Gid::Best if is_ethernet => {
            let mapped = |gid: &&Chosen| second(gid) && address_of(gid.raw).is_ipv4();
            let global = |gid: &&Chosen| {
                second(gid)
                    && matches!(address_of(gid.raw), IpAddr::V6(long) if !long.is_unicast_link_local())
            };
            let by = |rule: &dyn Fn(&&Chosen) -> bool| own().find(rule);
            by(&mapped).or_else(|| by(&global)).or_else(|| by(&second)).or_else(|| own().next())
        }
        Gid::Best => own().next(),
    };
    found.copied().ok_or_else(|| match asked {
        Gid::Best if !gids.is_empty() => {
            format!("all its GIDs are of interfaces in other network namespaces: run in theirs, or move the interface here (as root: ip link set NAME netns PID); it has {}", shown())
        }
        Gid::Best => {
            "it has no GID: give its network interface an address, or start a subnet manager".to_owned()
        }
        Gid::Index(index) => {
            format!("it has no GID {index} (gid={index} in FARJUMP_VERBS): it has {}", shown())
        }
        Gid::Address(address) => {
            format!(
                "it has no GID of RoCE v2 with {address} (gid={address} in FARJUMP_VERBS): it has {}",
                shown()
            )
        }
    })
}

/// Index of the chosen partition in the port's table of keys, and its key.
fn partition(keys: &[(u16, u16)], asked: Option<u16>) -> Result<(u16, u16), String> {
    // The highest bit is full membership; a key of 0 is an empty entry.
    const KEY: u16 = 0x7fff;
    let mut there = keys.iter().filter(|(_, key)| key & KEY != 0);
    let found = there.clone().find(|(_, key)| asked.is_none_or(|asked| key & KEY == asked & KEY));
    found.copied().ok_or_else(|| match asked {
        Some(asked) if there.clone().next().is_some() => {
            let shown: Vec<_> = there.by_ref().map(|(_, key)| format!("{key:#06x}")).collect();
            format!(
                "it is in no partition {asked:#06x} (pkey={asked:x} in FARJUMP_VERBS): it is in {}",
                shown.join(", ")
            )
        }
        _ => "it is in no partition: its table of keys is empty".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn gid(index: u8, kind: u32, address: &str) -> Chosen {
        let raw = match address.parse().unwrap() {
            IpAddr::V4(short) => Ipv4Addr::to_ipv6_mapped(&short).octets(),
            IpAddr::V6(long) => long.octets(),
        };
        Chosen { index, raw, kind, is_foreign: false }
    }

    #[test]
    fn gids_of_another_network_namespace_are_chosen_only_by_index() {
        let theirs = Chosen { is_foreign: true, ..gid(0, IBV_GID_TYPE_ROCE_V2, "10.9.0.1") };
        let own = gid(1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
        assert_eq!(choose(&[theirs, own], Gid::Best, true), Ok(own));
        assert_eq!(choose(&[theirs, own], Gid::Index(0), true), Ok(theirs));
        let address = Gid::Address("10.9.0.1".parse().unwrap());
        for (gids, asked) in [(&[theirs, own][..], address), (&[theirs], Gid::Best)] {
            let error = choose(gids, asked, true).unwrap_err();
            assert!(error.contains("GID 0 10.9.0.1 (RoCE v2, of another network namespace)"), "{error}");
        }
    }

    #[test]
    fn an_ethernet_port_prefers_roce_v2_gids_with_ipv4_addresses() {
        let local = gid(1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
        let global = gid(2, IBV_GID_TYPE_ROCE_V2, "2001:db8::1");
        let mapped = gid(3, IBV_GID_TYPE_ROCE_V2, "10.9.0.1");
        let old = gid(0, IBV_GID_TYPE_ROCE_V1, "10.9.0.1");
        let best = |gids: &[Chosen]| choose(gids, Gid::Best, true).map(|gid| gid.index);
        assert_eq!(best(&[old, local, global, mapped]), Ok(3));
        assert_eq!(best(&[old, local, global]), Ok(2));
        assert_eq!(best(&[old, local]), Ok(1));
        assert_eq!(best(&[old]), Ok(0));
        assert!(best(&[]).unwrap_err().contains("no GID"));
        let all = [old, local, global, mapped];
        assert_eq!(choose(&all, Gid::Address("10.9.0.1".parse().unwrap()), true), Ok(mapped));
        assert_eq!(choose(&all, Gid::Index(1), true), Ok(local));
        for (asked, said) in
            [(Gid::Index(9), "gid=9"), (Gid::Address("10.1.1.1".parse().unwrap()), "gid=10.1.1.1")]
        {
            let error = choose(&all, asked, true).unwrap_err();
            assert!(error.contains(said) && error.contains("GID 3 10.9.0.1 (RoCE v2)"), "{error}");
        }
    }

    #[test]
    fn a_partition_is_found_by_its_key_whatever_the_membership() {
        let keys = [(0, 0), (1, 0xffff), (2, 0x0012)];
        assert_eq!(partition(&keys, None), Ok((1, 0xffff)));
        assert_eq!(partition(&keys, Some(0x8012)), Ok((2, 0x0012)));
        let error = partition(&keys, Some(0x13)).unwrap_err();
        assert!(error.contains("0x0013") && error.ends_with("it is in 0xffff, 0x0012"), "{error}");
        for asked in [None, Some(0), Some(0x13)] {
            assert!(partition(&[(0, 0)], asked).unwrap_err().contains("table of keys is empty"));
        }
    }

    #[test]
    fn a_port_that_carries_nothing_says_what_to_do() {
        let state = |state, link_layer| {
            // SAFETY: numbers, for which zero is valid.
            let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
            (attributes.state, attributes.link_layer) = (state, link_layer);
            State { name: "rxe0".to_owned(), number: 1, attributes }.usable()
        };
        assert_eq!(state(IBV_PORT_ACTIVE, 2), Ok(()));
        assert!(state(IBV_PORT_DOWN, 2).unwrap_err().contains("ip link set"));
        assert!(state(IBV_PORT_DOWN, 1).unwrap_err().contains("cable"));
        assert!(state(IBV_PORT_INIT, 1).unwrap_err().contains("subnet manager"));
    }
}
