//! The network interfaces of this process's namespace, and their addresses.
//!
//! A device's table of GIDs is the same in every network namespace, and lists interfaces of all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::{io, ptr};

use crate::verbs::options::address_of;

/// The interfaces of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::verbs) struct Interfaces {
    /// Indices and names.
    pub(in crate::verbs) there: Vec<(u32, String)>,
    /// The addresses of all interfaces.
    pub(in crate::verbs) addresses: Vec<IpAddr>,
}

impl Interfaces {
    /// The interfaces of this process's namespace.
    ///
    /// # Errors
    /// The system's, if it does not list the interfaces.
    pub(in crate::verbs) fn own() -> io::Result<Interfaces> {
        let mut interfaces = Interfaces::default();
        let mut first = ptr::null_mut();
        // SAFETY: the output is valid.
        if unsafe { libc::getifaddrs(&mut first) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut next = first;
        while !next.is_null() {
            // SAFETY: an entry of the list, which is freed below.
            let entry = unsafe { &*next };
            // SAFETY: the name is a string of the list's.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            // SAFETY: the name is a string.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let named = (index, name.to_string_lossy().into_owned());
            if !interfaces.there.contains(&named) {
                interfaces.there.push(named);
            }
            // SAFETY: the address belongs to the list, and is as long as its family requires.
            interfaces.addresses.extend(unsafe { ip_of(entry.ifa_addr) });
            next = entry.ifa_next;
        }
        // SAFETY: made above, and not used again.
        unsafe { libc::freeifaddrs(first) };
        Ok(interfaces)
    }

    /// Returns whether a GID belongs to another namespace: to an interface with this index and, if the system states
    /// it, with this name. Indices of two namespaces may be equal, and names too. So the address decides, which a GID
    /// has from its interface. A link-local GID is made from the hardware's address, which need not be among the
    /// interface's addresses.
    pub(in crate::verbs) fn lack(&self, gid: [u8; 16], index: u32, name: Option<&str>) -> bool {
        if index == 0 {
            return false;
        }
        let is_there =
            self.there.iter().any(|(own, own_name)| *own == index && name.is_none_or(|it| it == own_name));
        let address = address_of(gid);
        let is_of_hardware = matches!(address, IpAddr::V6(long) if long.is_unicast_link_local());
        !is_there || !is_of_hardware && !self.addresses.contains(&address)
    }
}

/// The IP address in a socket address.
///
/// # Safety
/// `address` is null, or as long as its family requires.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null (see Safety). Entries may be aligned to less than their type.
    match i32::from(unsafe { (*address).sa_family }) {
        // SAFETY: the family guarantees this length.
        libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(unsafe {
            address.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr
        })))),
        // SAFETY: the family guarantees this length.
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(unsafe {
            address.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr
        }))),
        _ => None,
    }
}

/// The address from which the system would send to `peer`, by its routes. Sends nothing. `None` without a route.
pub(in crate::verbs) fn source_towards(peer: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    // The port of RoCE v2. The call only looks up the route.
    socket.connect(SocketAddr::new(peer, 4791)).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_belongs_to_this_namespace_and_unknown_interfaces_do_not() {
        let own = Interfaces::own().unwrap();
        let Some((index, name)) = own.there.iter().find(|(_, name)| name == "lo") else {
            return println!("skipped: this namespace has no lo");
        };
        let mapped = |address: &str| address.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
        let local = "fe80::1".parse::<Ipv6Addr>().unwrap().octets();
        assert!(!own.lack(mapped("127.0.0.1"), *index, Some(name)));
        assert!(!own.lack(local, *index, Some(name)));
        assert!(
            own.lack(mapped("192.0.2.77"), *index, Some(name)),
            "another's interface with the same index and name"
        );
        assert!(own.lack(local, *index, Some("eth9")) && own.lack(local, u32::MAX, None));
        assert!(!own.lack(mapped("192.0.2.77"), 0, None), "InfiniBand has no interface");
    }

    #[test]
    fn the_route_to_loopback_starts_at_loopback() {
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(source_towards(own), Some(own));
    }
}
