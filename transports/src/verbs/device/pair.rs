//! The queue pairs of links: their capacities, their states, and the path to a peer.

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr::NonNull;

use farjump_core::transport::Cause;
use farjump_rdma_sys::{
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, Verbs, ibv_ah_attr,
    ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};

use super::address::EndpointAddress;
use super::port::Port;
use crate::verbs::device::Device;
use crate::verbs::options::Options;

/// Work requests of a send queue, if the device supports as many.
pub(in crate::verbs) const DEPTH: u32 = 256;
/// The pause after a peer had no receive posted: 0.64 ms (InfiniBand Architecture Specification, 9.7.5.2.8). Credit
/// avoids the pause in the steady state.
const RNR_TIMER: u8 = 12;
/// Number of attempts after such a pause.
const RNR_RETRIES: u8 = 6;
/// Hop limit, which ends stray packets.
const HOPS: u8 = 64;

/// Capacities of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verbs) struct Capacities {
    /// Work requests of the send queue.
    pub(in crate::verbs) depth: u32,
    /// Work requests of the receive queue.
    pub(in crate::verbs) receives: u32,
    /// Bytes that fit inside a work request.
    pub(in crate::verbs) max_inline: u32,
}

impl Capacities {
    /// Creates a reliable connection's queue pair. Returns it with the bytes that fit inside a request of it.
    /// `None` leaves the reason in `errno`.
    ///
    /// # Safety
    /// The domain and the completion queues exist and belong to one context of `verbs`.
    pub(in crate::verbs) unsafe fn create(
        &self,
        verbs: &Verbs,
        domain: *mut ibv_pd,
        [sent, received]: [*mut ibv_cq; 2],
    ) -> Option<(NonNull<ibv_qp>, u32)> {
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut asked: ibv_qp_init_attr = unsafe { zeroed() };
        (asked.send_cq, asked.recv_cq, asked.qp_type) = (sent, received, IBV_QPT_RC);
        (asked.cap.max_send_wr, asked.cap.max_send_sge) = (self.depth, 1);
        (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (self.receives, 1);
        asked.cap.max_inline_data = self.max_inline;
        // SAFETY: the caller's (see Safety).
        let qp = unsafe { verbs.ibv_create_qp(domain, &mut asked) };
        // The device grants at least the requested capacities.
        NonNull::new(qp).map(|qp| (qp, asked.cap.max_inline_data.min(self.max_inline)))
    }
}

/// A change of a queue pair's state: the attributes, and the mask of those that are set.
pub(in crate::verbs) type Change = (ibv_qp_attr, c_int);

fn attributes() -> ibv_qp_attr {
    // SAFETY: numbers and optional numbers, for which zero is valid.
    unsafe { zeroed() }
}

/// The change after which receives can be posted.
pub(in crate::verbs) fn ready(port: &Port) -> Change {
    let mut to = attributes();
    (to.qp_state, to.port_num, to.pkey_index) = (IBV_QPS_INIT, port.number, port.partition.0);
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    (to, (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) as c_int)
}

/// The change after which the queue pair receives from the peer's.
pub(in crate::verbs) fn connected(
    port: &Port,
    options: &Options,
    peer: &EndpointAddress,
) -> Result<Change, Cause> {
    let mut to = attributes();
    (to.qp_state, to.path_mtu) = (IBV_QPS_RTR, peer.mtu_with(port.mtu));
    (to.dest_qp_num, to.rq_psn) = (peer.queue, peer.packet);
    (to.max_dest_rd_atomic, to.min_rnr_timer) = (1, RNR_TIMER);
    to.ah_attr = path(port, options, peer)?;
    let fields = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    Ok((to, fields as c_int))
}

/// The change after which the queue pair also sends, `packet` first.
pub(in crate::verbs) fn sending(options: &Options, packet: u32) -> Change {
    let mut to = attributes();
    to.qp_state = IBV_QPS_RTS;
    (to.timeout, to.retry_cnt, to.rnr_retry) = (options.timeout, options.retries, RNR_RETRIES);
    (to.sq_psn, to.max_rd_atomic) = (packet, 1);
    let fields = IBV_QP_STATE
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_SQ_PSN
        | IBV_QP_MAX_QP_RD_ATOMIC;
    (to, fields as c_int)
}

/// The path to a peer. On Ethernet only the GIDs determine it. On InfiniBand, the LID of the next device does: the
/// peer's within a subnet, and the router's to another subnet.
fn path(port: &Port, options: &Options, peer: &EndpointAddress) -> Result<ibv_ah_attr, Cause> {
    // SAFETY: numbers, for which zero is valid.
    let mut path: ibv_ah_attr = unsafe { zeroed() };
    (path.dlid, path.sl, path.port_num) = (peer.lid, options.service_level, port.number);
    let is_apart = is_apart(port, peer);
    if is_apart {
        path.dlid = options.router.ok_or_else(|| {
            let subnet = |mut gid: [u8; 16]| {
                gid[8..].fill(0);
                std::net::Ipv6Addr::from(gid)
            };
            Cause::Address(format!(
                "the peer is in InfiniBand subnet {} and this process in {}: name the LID of the router between them \
                 (router= in FARJUMP_VERBS)",
                subnet(peer.gid),
                subnet(port.gid.raw)
            ))
        })?;
    }
    if port.is_global || peer.is_global || is_apart {
        path.is_global = 1;
        path.grh.dgid.raw = peer.gid;
        (path.grh.sgid_index, path.grh.hop_limit, path.grh.traffic_class) =
            (port.gid.index, HOPS, options.traffic_class);
    }
    Ok(path)
}

/// Returns whether only a router connects the port and the peer: on InfiniBand the first half of a GID names the
/// subnet.
pub(in crate::verbs) fn is_apart(port: &Port, peer: &EndpointAddress) -> bool {
    !port.is_ethernet && peer.gid[..8] != port.gid.raw[..8]
}

/// Returns whether the bytes of writes into this queue pair become visible in ascending order. Connects it to itself
/// for that, because mlx5 reports the order only for a queue pair that sends. `false` if that fails.
///
/// # Safety
/// The queue pair is the device's, new, and is not used after this.
pub(in crate::verbs) unsafe fn places_in_order(device: &Device, qp: NonNull<ibv_qp>) -> bool {
    // SAFETY: the queue pair exists.
    let own = EndpointAddress::of(&device.port, unsafe { qp.as_ref() }.qp_num, 0);
    let Ok(connected) = connected(&device.port, &device.options, &own) else { return false };
    let changes = [ready(&device.port), connected, sending(&device.options, 0)];
    let is_sending = changes.into_iter().all(|(mut to, fields)| {
        // SAFETY: the queue pair exists, and the named fields are set.
        unsafe { device.verbs.ibv_modify_qp(qp.as_ptr(), &mut to, fields) == 0 }
    });
    // SAFETY: the queue pair exists.
    is_sending && unsafe { device.promises_order(qp) }
}

#[cfg(test)]
mod tests {
    use farjump_rdma_sys::{IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2};

    use super::*;
    use crate::verbs::device::port::Chosen;

    fn port(is_ethernet: bool, gid: &str, lid: u16) -> Port {
        let kind = if is_ethernet { IBV_GID_TYPE_ROCE_V2 } else { IBV_GID_TYPE_IB };
        let raw = gid.parse::<std::net::Ipv6Addr>().unwrap().octets();
        Port {
            number: 2,
            is_ethernet,
            is_global: is_ethernet,
            lid,
            gid: Chosen { index: 3, raw, kind, is_foreign: false },
            mtu: 1024,
            max_message: 1 << 23,
            partition: (0, 0xffff),
        }
    }

    #[test]
    fn packets_use_the_peers_lid_within_a_subnet_otherwise_the_routers() {
        let own = port(false, "fec0::1", 4);
        let options = Options::default();
        let near = path(&own, &options, &EndpointAddress::of(&port(false, "fec0::2", 5), 1, 0)).unwrap();
        assert_eq!((near.dlid, near.is_global, near.port_num), (5, 0, 2));
        let far = EndpointAddress::of(&port(false, "fec0:0:0:7::2", 5), 1, 0);
        let Err(Cause::Address(said)) = path(&own, &options, &far) else { panic!("there is no path") };
        assert!(said.contains("subnet fec0:0:0:7:: and this process in fec0::"), "{said}");
        assert!(said.contains("router="), "{said}");
        let routed = path(&own, &options.clone().with("router=0x31").unwrap(), &far).unwrap();
        assert_eq!((routed.dlid, routed.is_global, routed.grh.sgid_index), (0x31, 1, 3));
        // SAFETY: all fields of a GID are bytes.
        assert_eq!(unsafe { routed.grh.dgid.raw }, far.gid);
        // A router does not change the path to peers of the same subnet.
        let near = path(
            &own,
            &options.with("router=0x31").unwrap(),
            &EndpointAddress::of(&port(false, "fec0::2", 5), 1, 0),
        );
        assert_eq!(near.unwrap().dlid, 5);
    }

    #[test]
    fn on_ethernet_the_gids_say_the_path_whatever_their_first_halves() {
        let own = port(true, "2001:db8::1", 0);
        let path =
            path(&own, &Options::default(), &EndpointAddress::of(&port(true, "2001:db8:1::1", 0), 1, 0))
                .unwrap();
        assert_eq!((path.dlid, path.is_global, path.grh.hop_limit), (0, 1, HOPS));
    }
}
