//! The address of a process's endpoints: locations of their queue pairs, and the memory that the peer may write.
//!
//! Little-endian: version (`u16`, 3), backend (`u16`: 1 writes, 2 messages), CRC-32 of everything else
//! (`u32`), and an [`Offer`] in postcard's encoding. The checksum detects damage; each number is checked against
//! lies.

use farjump_core::transport::Cause;
use farjump_rdma_sys::{IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2};
use serde::{Deserialize, Serialize};

use super::port::{Port, kind_of_gid};
use crate::verbs::device::Device;
use crate::verbs::options::{address_of, bytes_of_mtu, code_of_mtu};

const VERSION: u16 = 3;
const HEAD: usize = 8;
/// Most endpoints of an address.
pub(in crate::verbs) const MOST: usize = 4;
/// Longest address, in bytes; an endpoint takes about 70 of it, and at most 120.
const LONGEST: usize = 512;
/// Bits of the numbers of queue pairs and packets (InfiniBand Architecture Specification, 9.2).
pub(in crate::verbs) const BITS: u32 = 24;

/// The backend of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(in crate::verbs) enum Backend {
    Write = 1,
    Send = 2,
}

/// The contents of an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::verbs) struct Offer {
    /// Number of the peer's endpoint to which the first of these belongs. 0 before the peer's are known.
    pub(in crate::verbs) chosen: u8,
    /// At least one, the preferred one first. The peer takes one.
    pub(in crate::verbs) endpoints: Vec<EndpointAddress>,
}

/// The location of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::verbs) struct EndpointAddress {
    /// Number of the queue pair.
    pub(in crate::verbs) queue: u32,
    /// Number of the first packet that it sends.
    pub(in crate::verbs) packet: u32,
    /// True if the port is on Ethernet (RoCE), false for InfiniBand.
    pub(in crate::verbs) is_ethernet: bool,
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) gid: [u8; 16],
    /// Kind of the GID (`enum ibv_gid_type`): 0 InfiniBand, 1 RoCE v1, 2 RoCE v2.
    pub(in crate::verbs) gid_kind: u8,
    /// Whether packets to it need a global header.
    pub(in crate::verbs) is_global: bool,
    /// Longest packet, in bytes.
    pub(in crate::verbs) mtu: u16,
    pub(in crate::verbs) partition: u16,
    /// True if writes to it become visible in ascending order.
    pub(in crate::verbs) in_order: bool,
    /// Receives that it keeps posted.
    pub(in crate::verbs) receives: u32,
    /// Longest frame that it accepts, in bytes; for messages only.
    pub(in crate::verbs) max_frame: u64,
    /// The word into which the peer writes the number of receives that it has posted again.
    pub(in crate::verbs) credit_word: RemoteRegion,
    /// The region into which the peer writes frames; for writes only.
    pub(in crate::verbs) region: RemoteRegion,
}

/// Memory that a peer may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in crate::verbs) struct RemoteRegion {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) len: u64,
    pub(in crate::verbs) key: u32,
}

impl RemoteRegion {
    fn check(&self, what: &str, least: u64) -> Result<(), String> {
        let whole = self.address.checked_add(self.len).is_some() && usize::try_from(self.len).is_ok();
        if self.len < least || !whole || !self.address.is_multiple_of(8) {
            return Err(format!("its {what} has {} bytes at {:#x}", self.len, self.address));
        }
        Ok(())
    }
}

impl Offer {
    /// Encodes the address for a peer.
    ///
    /// # Panics
    /// Never: encoding numbers into memory does not fail.
    pub(in crate::verbs) fn to_bytes(&self, backend: Backend) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("numbers are encoded into memory");
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((backend as u16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        let sum = sum(&bytes);
        bytes[4..HEAD].copy_from_slice(&sum);
        bytes
    }

    /// Decodes a peer's address.
    pub(in crate::verbs) fn from_bytes(bytes: &[u8], backend: Backend) -> Result<Offer, Cause> {
        let wrong = |what: String| Err(Cause::Address(what));
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return wrong(format!("it has {} bytes, and its head alone {HEAD}", bytes.len()));
        };
        if bytes.len() > LONGEST {
            return wrong(format!("it has {} bytes, and at most {LONGEST} make sense", bytes.len()));
        }
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if (short(0), short(2)) != (VERSION, backend as u16) {
            return wrong(format!(
                "it is of version {} and backend {}, not {VERSION} and {}: run the same version of farjump in both processes",
                short(0),
                short(2),
                backend as u16
            ));
        }
        if sum(bytes) != head[4..] {
            return wrong("it is damaged: its checksum is wrong".to_owned());
        }
        match postcard::take_from_bytes::<Offer>(body) {
            Ok((offer, [])) => offer.check(backend).map_err(Cause::Address).map(|()| offer),
            Ok((_, rest)) => wrong(format!("{} bytes follow it", rest.len())),
            Err(error) => wrong(format!("it does not decode: {error}")),
        }
    }

    fn check(&self, backend: Backend) -> Result<(), String> {
        if !(1..=MOST).contains(&self.endpoints.len()) {
            return Err(format!("it has {} endpoints", self.endpoints.len()));
        }
        self.endpoints.iter().try_for_each(|endpoint| endpoint.check(backend))
    }

    /// The endpoint of this number.
    pub(in crate::verbs) fn endpoint(&self, number: u8) -> Result<EndpointAddress, Cause> {
        self.endpoints.get(usize::from(number)).cloned().ok_or_else(|| {
            Cause::Address(format!("it has {} endpoints, and none of number {number}", self.endpoints.len()))
        })
    }
}

impl EndpointAddress {
    /// The address of a queue pair of `port`, whose first packet has this number. Its owner adds the memory that
    /// peers may write.
    pub(in crate::verbs) fn of(port: &Port, queue: u32, packet: u32) -> EndpointAddress {
        EndpointAddress {
            queue,
            packet,
            is_ethernet: port.is_ethernet,
            lid: port.lid,
            gid: port.gid.raw,
            // No other kind has a number above 2.
            gid_kind: port.gid.kind as u8,
            is_global: port.is_global,
            mtu: port.mtu,
            partition: port.partition.1,
            in_order: false,
            receives: 0,
            max_frame: 0,
            credit_word: RemoteRegion::default(),
            region: RemoteRegion::default(),
        }
    }

    fn check(&self, backend: Backend) -> Result<(), String> {
        if self.queue >> BITS != 0 || self.packet >> BITS != 0 {
            return Err(format!("its queue pair is {:#x}, its first packet {:#x}", self.queue, self.packet));
        }
        if code_of_mtu(self.mtu).is_none() {
            return Err(format!("its packets have {} bytes", self.mtu));
        }
        if u32::from(self.gid_kind) > IBV_GID_TYPE_ROCE_V2
            || self.is_ethernet != (u32::from(self.gid_kind) != IBV_GID_TYPE_IB)
        {
            let network = if self.is_ethernet { "Ethernet" } else { "InfiniBand" };
            return Err(format!("its GID is of kind {} on {network}", self.gid_kind));
        }
        if self.receives == 0 {
            return Err("it receives nothing".to_owned());
        }
        self.credit_word.check("credit word", 8)?;
        match backend {
            Backend::Write => self.region.check("region", 1),
            Backend::Send if self.max_frame == 0 => Err("it takes no frame".to_owned()),
            Backend::Send => Ok(()),
        }
    }

    /// Checks that packets can pass between the peer and the port of this process's device, as far as the
    /// addresses show.
    pub(in crate::verbs) fn check_device(&self, own: &Device) -> Result<(), Cause> {
        self.check_port(&own.name, &own.port)
    }

    pub(in crate::verbs) fn check_port(&self, device: &str, port: &Port) -> Result<(), Cause> {
        let kind = |is_ethernet| if is_ethernet { "Ethernet" } else { "InfiniBand" };
        if self.is_ethernet != port.is_ethernet {
            return Err(Cause::Address(format!(
                "the peer's port is on {} and {device}:{} on {}: choose devices of one network (verbs::choose_device)",
                kind(self.is_ethernet),
                port.number,
                kind(port.is_ethernet)
            )));
        }
        // The highest bit is full membership; two limited members cannot reach each other.
        let (ours, theirs) = (port.partition.1, self.partition);
        if ours & 0x7fff != theirs & 0x7fff || (ours | theirs) & 0x8000 == 0 {
            return Err(Cause::Address(format!(
                "the peer is in partition {theirs:#06x} and this process in {ours:#06x}: choose one for both (pkey= in FARJUMP_VERBS)"
            )));
        }
        if port.gid.kind != u32::from(self.gid_kind) {
            return Err(Cause::Address(format!(
                "the peer's GID is of {} and that of this process of {}: choose GIDs of one kind (gid= in FARJUMP_VERBS)",
                kind_of_gid(self.gid_kind.into()),
                kind_of_gid(port.gid.kind)
            )));
        }
        let (own_address, address) = (address_of(port.gid.raw), address_of(self.gid));
        if port.is_ethernet && own_address.is_ipv4() != address.is_ipv4() {
            return Err(Cause::Address(format!(
                "the peer's GID is {address} and that of this process {own_address}: choose GIDs of one kind (gid= in FARJUMP_VERBS)"
            )));
        }
        Ok(())
    }

    /// The verbs number of the longest packet that both ports accept.
    pub(in crate::verbs) fn mtu_with(&self, own: u16) -> u32 {
        let both = self.mtu.min(own);
        (1..=5).rev().find(|code| bytes_of_mtu(*code) <= both).unwrap_or(1)
    }
}

/// The checksum of everything but itself.
fn sum(bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..4]);
    hasher.update(&bytes[HEAD..]);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use farjump_rdma_sys::IBV_GID_TYPE_ROCE_V1;

    use super::*;
    use crate::verbs::device::port::Chosen;

    fn sample() -> EndpointAddress {
        EndpointAddress {
            queue: 17,
            packet: 0xab_cdef,
            is_ethernet: true,
            lid: 0,
            gid: [1; 16],
            gid_kind: 2,
            is_global: true,
            mtu: 1024,
            partition: 0xffff,
            in_order: false,
            receives: 256,
            max_frame: 1 << 20,
            credit_word: RemoteRegion { address: 1 << 40, len: 8, key: 7 },
            region: RemoteRegion { address: 1 << 41, len: 8192, key: u32::MAX },
        }
    }

    /// An address with `count` endpoints.
    fn offer(count: u32) -> Offer {
        let endpoints = (0..count).map(|number| EndpointAddress { queue: 17 + number, ..sample() });
        Offer { chosen: 1, endpoints: endpoints.collect() }
    }

    fn alone(endpoint: EndpointAddress) -> Offer {
        Offer { chosen: 0, endpoints: vec![endpoint] }
    }

    #[test]
    fn a_verbs_address_is_read_only_by_the_backend_that_wrote_it() {
        let most = offer(MOST as u32);
        let bytes = most.to_bytes(Backend::Write);
        assert_eq!(Offer::from_bytes(&bytes, Backend::Write).as_ref(), Ok(&most));
        assert_eq!(most.endpoint(3).unwrap().queue, 20);
        assert!(most.endpoint(4).unwrap_err().to_string().contains("none of number 4"));
        let error = Offer::from_bytes(&bytes, Backend::Send).unwrap_err();
        assert!(error.to_string().contains("backend 1"), "{error}");
    }

    #[test]
    fn a_cut_longer_or_bit_flipped_verbs_address_is_refused() {
        let bytes = offer(2).to_bytes(Backend::Send);
        for len in 0..bytes.len() {
            let cut = Offer::from_bytes(&bytes[..len], Backend::Send);
            assert!(matches!(cut, Err(Cause::Address(_))), "{len}");
        }
        for more in [1, LONGEST] {
            assert!(Offer::from_bytes(&[&bytes[..], &vec![0; more]].concat(), Backend::Send).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(Offer::from_bytes(&turned, Backend::Send).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn impossible_verbs_address_fields_are_refused_despite_a_valid_checksum() {
        let lies = [
            EndpointAddress { queue: 1 << 24, ..sample() },
            EndpointAddress { packet: u32::MAX, ..sample() },
            EndpointAddress { mtu: 1500, ..sample() },
            EndpointAddress { gid_kind: 3, ..sample() },
            EndpointAddress { gid_kind: 0, ..sample() },
            EndpointAddress { is_ethernet: false, ..sample() },
            EndpointAddress { receives: 0, ..sample() },
            EndpointAddress { credit_word: RemoteRegion { len: 7, ..sample().credit_word }, ..sample() },
            EndpointAddress {
                credit_word: RemoteRegion { address: u64::MAX - 7, ..sample().credit_word },
                ..sample()
            },
            EndpointAddress { credit_word: RemoteRegion { address: 4, ..sample().credit_word }, ..sample() },
        ];
        for lie in &lies {
            for backend in [Backend::Write, Backend::Send] {
                for mut endpoints in [vec![], vec![sample()]] {
                    endpoints.push(lie.clone());
                    let bytes = Offer { chosen: 0, endpoints }.to_bytes(backend);
                    assert!(matches!(Offer::from_bytes(&bytes, backend), Err(Cause::Address(_))), "{lie:?}");
                }
            }
        }
        let nowhere = alone(EndpointAddress { region: RemoteRegion::default(), ..sample() });
        assert!(Offer::from_bytes(&nowhere.to_bytes(Backend::Write), Backend::Write).is_err());
        let nothing = alone(EndpointAddress { max_frame: 0, ..sample() });
        assert!(Offer::from_bytes(&nothing.to_bytes(Backend::Send), Backend::Send).is_err());
        for count in [0, MOST as u32 + 1] {
            assert!(Offer::from_bytes(&offer(count).to_bytes(Backend::Send), Backend::Send).is_err());
        }
    }

    #[test]
    fn ports_that_cannot_connect_are_an_error_naming_the_difference() {
        let mapped = |last| std::net::Ipv4Addr::new(10, 9, 0, last).to_ipv6_mapped().octets();
        let own = Port {
            number: 1,
            is_ethernet: true,
            is_global: true,
            lid: 0,
            gid: Chosen { index: 1, raw: mapped(1), kind: IBV_GID_TYPE_ROCE_V2, is_foreign: false },
            mtu: 1024,
            max_message: 1 << 23,
            partition: (0, 0xffff),
        };
        let peer = EndpointAddress { gid: mapped(2), ..sample() };
        assert_eq!(peer.check_port("rxe0", &own), Ok(()));
        let said = |peer: EndpointAddress, own: &Port| match peer.check_port("rxe0", own) {
            Err(Cause::Address(what)) => what,
            other => panic!("{other:?}"),
        };
        let network = said(EndpointAddress { is_ethernet: false, ..peer.clone() }, &own);
        assert!(
            network.contains("on InfiniBand and rxe0:1 on Ethernet")
                && network.ends_with("choose devices of one network (verbs::choose_device)"),
            "{network}"
        );
        let partition = said(EndpointAddress { partition: 0x8001, ..peer.clone() }, &own);
        assert!(partition.contains("0x8001 and this process in 0xffff"), "{partition}");
        // Two limited members cannot reach each other.
        let limited = Port { partition: (0, 0x0001), ..own.clone() };
        assert!(said(EndpointAddress { partition: 0x0001, ..peer.clone() }, &limited).contains("0x0001"));
        assert_eq!(
            EndpointAddress { partition: 0x8001, ..peer.clone() }.check_port("rxe0", &limited),
            Ok(())
        );
        let older = said(EndpointAddress { gid_kind: IBV_GID_TYPE_ROCE_V1 as u8, ..peer.clone() }, &own);
        assert!(older.contains("of RoCE v1 and that of this process of RoCE v2"), "{older}");
        assert!(older.contains("gid="), "{older}");
        let local: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let kind = said(EndpointAddress { gid: local.octets(), ..peer }, &own);
        assert!(
            kind.contains("fe80::1 and that of this process 10.9.0.1") && kind.contains("gid="),
            "{kind}"
        );
    }

    #[test]
    fn the_longest_address_fits() {
        let region = RemoteRegion { address: u64::MAX, len: u64::MAX, key: u32::MAX };
        let longest = EndpointAddress {
            queue: (1 << BITS) - 1,
            packet: (1 << BITS) - 1,
            lid: u16::MAX,
            receives: u32::MAX,
            max_frame: u64::MAX,
            credit_word: region,
            region,
            ..sample()
        };
        let longest = Offer { chosen: u8::MAX, endpoints: vec![longest; MOST] };
        assert!(longest.to_bytes(Backend::Write).len() <= LONGEST);
    }

    #[test]
    fn packets_are_as_long_as_both_ports_take() {
        assert_eq!(sample().mtu_with(4096), 3);
        assert_eq!(sample().mtu_with(512), 2);
    }
}
