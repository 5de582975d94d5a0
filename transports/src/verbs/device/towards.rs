//! Choice of the ports of two processes that reach each other best.
//!
//! A target describes its endpoints first: one on the port that it prefers, and one on each port in another network.
//! The source then chooses the pair: of the same network and subnet, of the same kind of GIDs, and with a route of the
//! system from one to the other.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{EndpointAddress, MOST};
use super::interfaces::{Interfaces, source_towards};
use super::pair::is_apart;
use super::port::{Port, kind_of_gid, system_interfaces};
use super::sysfs::{GidInfo, PortInfo, System};
use crate::verbs::device::Device;
use crate::verbs::device::open_device::distance;
use crate::verbs::options::{Gid, Options, address_of};

/// The ways in which a port reaches a peer, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    /// Not at all, as far as the addresses show.
    None,
    /// By a router of InfiniBand that the options name.
    Routed,
    /// Perhaps: the path of packets is unknown.
    Perhaps,
    /// In its subnet, or by the system's routes.
    Straight,
}

/// Number of the peer's endpoint that this process reaches best, and the port that reaches it. The port is `None` if
/// that of `current` does, or if no other can be opened. The link then uses the current port, or is refused when it
/// connects.
pub(in crate::verbs) fn best_pair(
    current: &Device,
    wished: &Options,
    peers: &[EndpointAddress],
) -> (u8, Option<Arc<Device>>) {
    let peers: Vec<_> = (0_u8..)
        .zip(peers)
        .map(|(number, peer)| {
            (number, peer, if peer.is_ethernet { source_towards(address_of(peer.gid)) } else { None })
        })
        .collect();
    // The peer prefers its endpoints in their order.
    let rank = |reach: Reach, number: u8| (reach, Reverse(number));
    let of_current =
        |&(number, peer, source)| rank(reach_of(&current.port, &current.options, peer, source), number);
    let present = peers.iter().map(of_current).max().unwrap_or((Reach::None, Reverse(0)));
    if present == rank(Reach::Straight, 0) {
        return (0, None);
    }
    let interfaces = system_interfaces().unwrap_or_default();
    let mut found = Vec::new();
    for port in System::own().ports().iter().filter(|port| is_allowed(port, wished)) {
        for &(number, peer, source) in &peers {
            let Some((reach, gid)) = best_gid(port, wished, peer, source, &interfaces) else { continue };
            if rank(reach, number) > present {
                let key = (Reverse(rank(reach, number)), distance(port.memory_node));
                found.push((key, peer, pinned(port, gid, wished)));
            }
        }
    }
    found.sort_by_key(|(key, ..)| *key);
    let better = found.into_iter().find_map(|((Reverse((_, Reverse(number))), _), peer, options)| {
        let device = Device::open(&options).ok()?;
        peer.check_device(&device).is_ok().then_some((number, Some(device)))
    });
    let (_, Reverse(number)) = present;
    better.unwrap_or((number, None))
}

/// Ports that `wished` allows in other networks than that of `first`, nearest first, one for each network. At most as many
/// as an address has endpoints beside the first.
pub(in crate::verbs) fn in_other_networks(first: &Device, wished: &Options) -> Vec<Arc<Device>> {
    if wished.gid != Gid::Best {
        return Vec::new();
    }
    let interfaces = system_interfaces().unwrap_or_default();
    let mut ports = System::own().ports();
    ports.retain(|port| is_allowed(port, wished));
    ports.sort_by_key(|port| distance(port.memory_node));
    let mut networks = vec![network(first.port.is_ethernet, first.port.gid.raw)];
    let mut devices = Vec::new();
    for port in &ports {
        let is_first = (&*port.device, port.port) == (&*first.name, first.port.number);
        for (gid, raw) in gids_of_networks(port, &interfaces) {
            let network = network(port.link == "Ethernet", raw);
            let is_known = networks.contains(&network) || is_first && gid == Gid::Best;
            if devices.len() + 1 < MOST
                && !is_known
                && let Ok(device) = Device::open(&pinned(port, gid, wished))
            {
                networks.push(network);
                devices.push(device);
            }
        }
    }
    devices
}

/// The network of a GID: a subnet of InfiniBand. On Ethernet the address itself, because nothing here shows which
/// addresses share a network.
fn network(is_ethernet: bool, mut gid: [u8; 16]) -> (bool, [u8; 16]) {
    if !is_ethernet {
        gid[8..].fill(0);
    }
    (is_ethernet, gid)
}

/// One GID of a port for each of its networks. On Ethernet those of RoCE v2 with IPv4 addresses, or if there are none
/// the choice of [`Gid::Best`].
fn gids_of_networks(port: &PortInfo, interfaces: &Interfaces) -> Vec<(Gid, [u8; 16])> {
    let own = port.gids.iter().filter_map(|gid| {
        let address: IpAddr = gid.address.parse().ok()?;
        (!is_foreign(gid, address, interfaces)).then_some((gid, address))
    });
    let mapped = own.clone().filter(|(gid, address)| gid.kind.ends_with("v2") && address.is_ipv4());
    let mapped: Vec<_> = mapped.map(|(_, address)| (Gid::Address(address), octets(address))).collect();
    if port.link == "Ethernet" && !mapped.is_empty() {
        return mapped;
    }
    own.map(|(_, address)| (Gid::Best, octets(address))).take(1).collect()
}

/// The options for one port and GID.
fn pinned(port: &PortInfo, gid: Gid, wished: &Options) -> Options {
    Options { port: Some(port.port), gid, ..wished.clone().named(&port.device) }
}

fn is_allowed(port: &PortInfo, wished: &Options) -> bool {
    let named = wished.device.as_ref().is_none_or(|device| *device == port.device);
    named && wished.port.is_none_or(|number| number == port.port) && port.state == "ACTIVE"
}

/// The way in which an open port reaches the peer.
fn reach_of(port: &Port, options: &Options, peer: &EndpointAddress, source: Option<IpAddr>) -> Reach {
    if peer.check_port("", port).is_err() {
        return Reach::None;
    }
    if port.is_ethernet {
        return by_route(address_of(port.gid.raw), source);
    }
    match is_apart(port, peer) {
        false => Reach::Straight,
        true => options.router.map_or(Reach::None, |_| Reach::Routed),
    }
}

fn by_route(own: IpAddr, source: Option<IpAddr>) -> Reach {
    if source == Some(own) { Reach::Straight } else { Reach::Perhaps }
}

/// The GID of a port that reaches the peer best, of those that `wished` allows.
fn best_gid(
    port: &PortInfo,
    wished: &Options,
    peer: &EndpointAddress,
    source: Option<IpAddr>,
    interfaces: &Interfaces,
) -> Option<(Reach, Gid)> {
    if (port.link == "Ethernet") != peer.is_ethernet {
        return None;
    }
    let kind = kind_of_gid(peer.gid_kind.into());
    let found = port.gids.iter().filter_map(|gid| {
        let own: IpAddr = gid.address.parse().ok()?;
        let index = u8::try_from(gid.index).ok()?;
        let is_allowed = match wished.gid {
            Gid::Best => true,
            Gid::Index(asked) => asked == index,
            Gid::Address(asked) => asked == own,
        };
        let reach = if peer.is_ethernet {
            // `IB/RoCE v1` and `RoCE v2`, in the system's words.
            let is_alike = gid.kind.ends_with(kind) && own.is_ipv4() == address_of(peer.gid).is_ipv4();
            if !is_alike || wished.gid == Gid::Best && is_foreign(gid, own, interfaces) {
                return None;
            }
            by_route(own, source)
        } else if octets(own)[..8] == peer.gid[..8] {
            Reach::Straight
        } else {
            wished.router.map_or(Reach::None, |_| Reach::Routed)
        };
        is_allowed.then_some((reach, Gid::Index(index)))
    });
    // The first of equals.
    found.reduce(|best, other| if other.0 > best.0 { other } else { best })
}

/// Returns whether a GID is of an interface in another network namespace.
fn is_foreign(gid: &GidInfo, own: IpAddr, interfaces: &Interfaces) -> bool {
    let Some(name) = &gid.interface else { return false };
    let index = interfaces.there.iter().find(|(_, it)| it == name).map_or(u32::MAX, |(index, _)| *index);
    interfaces.lack(octets(own), index, Some(name))
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(short) => short.to_ipv6_mapped().octets(),
        IpAddr::V6(long) => long.octets(),
    }
}
