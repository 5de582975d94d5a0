//! The port of this process that reaches a peer best.
//!
//! A target describes its endpoint first. The source then takes the port, and the GID of it, that reaches the target's: of
//! the same network and subnet, of the same kind of GIDs, and the one from which the system's routes lead to the peer.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::EndpointAddress;
use super::device::Device;
use super::interfaces::{Interfaces, source_towards};
use super::open_device::distance;
use super::options::{Gid, Options, address_of};
use super::port::{Port, kind_of_gid, system_interfaces};
use super::queue::is_apart;
use super::sysfs::{GidInfo, PortInfo, System};

/// How a port reaches a peer, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    /// Not at all, as far as the addresses show.
    None,
    /// By a router of InfiniBand that the options name.
    Routed,
    /// Perhaps: nothing says how packets go.
    Perhaps,
    /// In its subnet, or by the system's routes.
    Straight,
}

/// Another port than that of `current` that reaches the peer better, among those that `wished` allows. `None` if there is
/// none, or it cannot be opened: the current one is used, or refused when it connects.
pub(super) fn better_than(current: &Device, wished: &Options, peer: &EndpointAddress) -> Option<Arc<Device>> {
    let source = if peer.is_ethernet { source_towards(address_of(peer.gid)) } else { None };
    let present = reach_of(&current.port, &current.options, peer, source);
    if present == Reach::Straight {
        return None;
    }
    let interfaces = system_interfaces().unwrap_or_default();
    let mut found: Vec<_> = System::own()
        .ports()
        .into_iter()
        .filter(|port| is_allowed(port, wished))
        .filter_map(|port| {
            let (reach, gid) = best_gid(&port, wished, peer, source, &interfaces)?;
            (reach > present).then(|| {
                let options = Options { port: Some(port.port), gid, ..wished.clone().named(&port.device) };
                (reach, distance(port.memory_node), options)
            })
        })
        .collect();
    found.sort_by_key(|(reach, distance, _)| (std::cmp::Reverse(*reach), *distance));
    found.into_iter().find_map(|(_, _, options)| {
        let device = Device::open(&options).ok()?;
        peer.meets(&device).is_ok().then_some(device)
    })
}

fn is_allowed(port: &PortInfo, wished: &Options) -> bool {
    let named = wished.device.as_ref().is_none_or(|device| *device == port.device);
    named && wished.port.is_none_or(|number| number == port.port) && port.state == "ACTIVE"
}

/// How an open port reaches the peer.
fn reach_of(port: &Port, options: &Options, peer: &EndpointAddress, source: Option<IpAddr>) -> Reach {
    if peer.meets_port("", port).is_err() {
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

/// Whether a GID is of an interface in another network namespace.
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
