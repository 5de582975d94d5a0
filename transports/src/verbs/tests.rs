//! Choices of devices, ports and GIDs, and requests to a device, over fake devices.

use std::ptr::NonNull;

use farjump_core::transport::{
    Address, Cause, Endpoint, OpenRequest, Transport, TransportError, UnconnectedEndpoint,
};
use farjump_fixtures::forked::in_child;
use farjump_rdma_sys::{
    IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_QPS_RTR, IBV_TRANSPORT_IB,
    IBV_TRANSPORT_IWARP, ibv_ah_attr,
};

use super::fake::{Fake, FakePort, ended, preparations, request_of};
use super::write::Write;
use super::*;
use crate::verbs::device::address::{Backend, EndpointAddress, Offer};

type Opened = Box<dyn UnconnectedEndpoint>;

fn open_by(options: Options) -> Result<Opened, TransportError> {
    Write::with_options(options).open(&OpenRequest::new(8192, 4096))
}

/// An endpoint over the device chosen by default.
fn open() -> Opened {
    open_by(Options::default()).unwrap()
}

fn on(device: &str) -> Options {
    Options::default().on(device).unwrap()
}

fn offered(end: &Opened) -> Offer {
    Offer::from_bytes(&end.address().bytes, Backend::Write).unwrap()
}

fn offered_address(end: &Opened) -> EndpointAddress {
    offered(end).endpoints[0].clone()
}

fn connect(end: Opened, peer: &Opened) -> Result<Endpoint, TransportError> {
    let address = Address { bytes: peer.address().bytes, descriptors: Vec::new(), stream: None };
    end.connect(address, 1000)
}

/// The refusal to connect, as text.
fn refused(end: Opened, peer: &Opened) -> String {
    match connect(end, peer) {
        Err(error) => match error.cause() {
            Cause::Address(what) => what.clone(),
            other => panic!("{other}"),
        },
        Ok(_) => panic!("they connect"),
    }
}

/// The path of a connected queue pair.
fn path_of(number: u32) -> ibv_ah_attr {
    let requested = request_of(number);
    requested.changes.iter().find(|change| change.qp_state == IBV_QPS_RTR).unwrap().ah_attr
}

fn mapped(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets()
}

#[test]
fn a_peer_in_another_subnet_is_reached_by_router_lid_or_refused() {
    let fake = Fake::new();
    fake.device("near0", 0, IBV_TRANSPORT_IB, &[FakePort::infiniband(4, "fec0::4")]);
    fake.device("far0", 0, IBV_TRANSPORT_IB, &[FakePort::infiniband(5, "fec0:0:0:7::5")]);
    let far = open_by(on("far0")).unwrap();
    let said = refused(open_by(on("near0")).unwrap(), &far);
    assert!(said.contains("subnet fec0:0:0:7::") && said.contains("router="), "{said}");
    let routed = open_by(on("near0").with("router=9").unwrap()).unwrap();
    let number = offered_address(&routed).queue;
    let _end = connect(routed, &far).unwrap();
    let path = path_of(number);
    assert_eq!((path.dlid, path.is_global), (9, 1));
}

#[test]
fn gids_of_two_kinds_are_refused_by_name() {
    let fake = Fake::new();
    let older = FakePort::ethernet("10.9.0.2").with_gid(1, IBV_GID_TYPE_ROCE_V1, "10.9.0.2");
    fake.roce("new0", "10.9.0.1");
    fake.device("old0", 0, IBV_TRANSPORT_IB, &[older]);
    let (new, old) = (open_by(on("new0")).unwrap(), open_by(on("old0")).unwrap());
    assert_eq!((offered_address(&new).gid_kind, offered_address(&old).gid_kind), (2, 1));
    let said = refused(new, &old);
    assert!(said.contains("is of RoCE v1 and that of this process of RoCE v2"), "{said}");
}

#[test]
fn a_gid_of_an_interface_in_another_network_namespace_is_passed_over() {
    let fake = Fake::new();
    let port = FakePort::ethernet("10.9.0.9").on(7, "eth0").with_gid(2, IBV_GID_TYPE_ROCE_V2, "10.9.0.1");
    fake.device("shared0", 0, IBV_TRANSPORT_IB, &[port.on(3, "eth1")]);
    // The same index and name, and another address: index and name may be equal in two namespaces.
    fake.namespace(&[(7, "eth0"), (3, "eth1")], &["10.9.0.1"]);
    assert_eq!(offered_address(&open()).gid, mapped("10.9.0.1"));
    fake.namespace(&[(3, "eth1")], &[]);
    let error = open_by(Options::default()).err().unwrap().to_string();
    assert!(error.contains("in other network namespaces") && error.contains("GID 1 10.9.0.9"), "{error}");
}

#[test]
fn an_iwarp_device_is_unusable_with_the_reason_and_another_is_taken() {
    let fake = Fake::new();
    fake.device("siw0", 0, IBV_TRANSPORT_IWARP, &[FakePort::ethernet("10.9.0.9")]);
    let why = Write::usable().unwrap_err();
    assert!(why.contains("siw0 is an iWARP device") && why.contains("rdma_cm"), "{why}");
    let report = &ports(&OpenRequest::new(8192, 4096))[0];
    assert!(report.usable.as_ref().is_err_and(|why| why.contains("iWARP")), "{report:?}");
    fake.roce("zz0", "10.9.0.1");
    assert_eq!(offered_address(&open()).gid, mapped("10.9.0.1"));
}

#[test]
fn addresses_of_a_port_are_read_again_at_each_open() {
    let fake = Fake::new();
    fake.device("ib0", 0, IBV_TRANSPORT_IB, &[FakePort::infiniband(4, "fec0::4")]);
    // Kept open, like links of a long-running target.
    let first = open();
    assert_eq!(
        (offered_address(&first).lid, offered_address(&first).mtu, offered_address(&first).partition),
        (4, 2048, 0xffff)
    );
    let mut changed = FakePort::infiniband(9, "fec0::9");
    (changed.mtu, changed.keys) = (3, vec![0x8001]);
    fake.change("ib0", &[changed], IBV_EVENT_LID_CHANGE);
    let second = open();
    let now = offered_address(&second);
    assert_eq!((now.lid, now.mtu, now.partition), (9, 1024, 0x8001));
    assert_eq!(now.gid, "fec0::9".parse::<std::net::Ipv6Addr>().unwrap().octets());
    // An unchanged device is not opened again.
    let (one, other) = (Device::open(&on("ib0")).unwrap(), Device::open(&Options::default()).unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

/// Two connected queue pairs of one port.
fn linked() -> (queue::Queue, queue::Queue) {
    linked_by(&Options::default())
}

fn linked_by(options: &Options) -> (queue::Queue, queue::Queue) {
    let device = Device::open(options).unwrap();
    let [mut one, mut other] = [(); 2].map(|()| {
        queue::Queue::create(&super::device::domain::Domain::create(&device).unwrap(), 16).unwrap()
    });
    let (of_one, of_other) = (one.endpoint_address(16), other.endpoint_address(16));
    one.connect(&of_other).unwrap();
    other.connect(&of_one).unwrap();
    (one, other)
}

#[test]
fn a_link_survives_a_port_that_goes_down_and_comes_back() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let (mut one, _other) = linked();
    let mut down = FakePort::ethernet("10.9.0.1");
    down.is_active = false;
    fake.change("roce0", &[down], IBV_EVENT_PORT_ERR);
    assert_eq!(one.check(), Ok(()), "the port is down, and the link has not failed");
    fake.change("roce0", &[FakePort::ethernet("10.9.0.1")], IBV_EVENT_PORT_ACTIVE);
    assert_eq!(one.check(), Ok(()));
    let word = one.return_credit(7);
    // SAFETY: the word is inside the request.
    unsafe { one.post(&[word]) }.unwrap();
    one.look().map_err(|(cause, _)| cause).unwrap();
    assert_eq!(_other.returned_by_peer(), 7);
    assert!(one.beside().unwrap().contains("the port went down"), "it would explain a later end");
}

#[test]
fn requests_that_a_device_forgets_at_an_outage_end_the_link() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let mut down = FakePort::ethernet("10.9.0.1");
    down.is_active = false;
    let options = on("roce0").with("timeout=1,retries=0").unwrap();
    let silence = || std::thread::sleep(options.longest_silence() * 2);
    // Requests with and without a completion.
    for tells in [true, false] {
        fake.change("roce0", &[FakePort::ethernet("10.9.0.1")], IBV_EVENT_PORT_ACTIVE);
        let (mut idle, _of_idle) = linked_by(&options);
        let (mut one, _other) = linked_by(&options);
        let request = if tells { one.nothing() } else { one.return_credit(7) };
        fake.silence("roce0", true);
        // SAFETY: the word is inside the request.
        unsafe { one.post(&[request]) }.unwrap();
        silence();
        assert_eq!(one.check(), Ok(()), "the port is up");
        // SAFETY: as above.
        unsafe { one.post(&[request]) }.unwrap();
        fake.change("roce0", &[down.clone()], IBV_EVENT_PORT_ERR);
        assert_eq!(one.check(), Ok(()), "the device may still repeat it");
        silence();
        if !tells {
            assert_eq!(one.check(), Ok(()), "a request with a completion is posted behind it");
            silence();
        }
        let said = one.check().unwrap_err().to_string();
        assert!(said.contains("no end for 32.8µs") && said.contains("connect again"), "{said}");
        assert!(said.contains("port 1 of roce0 is down"), "{said}");
        assert_eq!(idle.check(), Ok(()), "nothing is under way");
        fake.silence("roce0", false);
    }
    // The requests arrived, though none of them has a completion: the link goes on.
    fake.change("roce0", &[FakePort::ethernet("10.9.0.1")], IBV_EVENT_PORT_ACTIVE);
    let (mut one, _other) = linked_by(&options);
    let word = one.return_credit(7);
    // SAFETY: as above.
    unsafe { one.post(&[word]) }.unwrap();
    fake.change("roce0", &[FakePort::ethernet("10.9.0.1")], IBV_EVENT_PORT_ERR);
    for _ in 0..4 {
        assert_eq!(one.check(), Ok(()));
        silence();
        one.look().map_err(|(cause, _)| cause).unwrap();
    }
    assert_eq!((one.next(), one.done()), (2, 2));
}

#[test]
fn a_lost_link_is_explained_by_the_change_of_its_addresses() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let (mut one, other) = linked();
    drop(other);
    assert_eq!(one.beside(), None);
    fake.change("roce0", &[FakePort::ethernet("10.77.0.9")], IBV_EVENT_GID_CHANGE);
    assert_eq!(one.check(), Ok(()), "a change ends no link");
    let said = one.beside().unwrap();
    assert!(said.contains("GID 1 10.9.0.1 (RoCE v2) became GID 1 10.77.0.9 (RoCE v2)"), "{said}");
    assert!(said.ends_with("connect again"), "{said}");
}

#[test]
fn inline_limits_and_order_are_probed_with_a_link_sized_queue_pair() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    // At depth 1, the device would accept all.
    fake.refuse_longer("roce0", 256 * 100);
    fake.keep_order("roce0");
    let end = open();
    let requested = request_of(offered_address(&end).queue);
    assert_eq!((requested.depth, requested.receives, requested.inline), (256, 256, 64));
    assert!(offered_address(&end).in_order, "it is promised of queue pairs that send");
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    assert!(!offered_address(&open()).in_order);
}

#[test]
fn queues_that_something_sleeps_on_are_spread_over_the_completion_vectors() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let ends: Vec<_> = (0..4).map(|_| open()).collect();
    let mut vectors: Vec<_> =
        ends.iter().map(|end| request_of(offered_address(end).queue).vectors[1]).collect();
    vectors.sort();
    assert_eq!(vectors, [0, 1, 2, 3]);
}

#[test]
fn a_read_ends_once_a_request_posted_behind_it_completes() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let (mut one, other) = linked();
    let lent = memory::Memory::create(&other.domain, 4096, memory::Use::ReadByPeer).unwrap();
    let key = [
        &(lent.start().addr().get() as u64).to_le_bytes()[..],
        &4096_u64.to_le_bytes(),
        &lent.remote_key().to_le_bytes(),
    ];
    let mut reads = reads::QueueReads::default();
    reads.start(&mut one, &key.concat(), 4096).unwrap();
    let read = one.next();
    // The bytes have arrived: the fake device has executed the read.
    assert!(reads.poll(&mut one).unwrap().is_none());
    assert_eq!((one.done(), one.next()), (read, read + 1), "an empty write is behind it");
    assert_eq!(reads.poll(&mut one).unwrap().unwrap().len(), 4096);
}

#[test]
fn the_device_near_the_thread_is_chosen_unless_its_port_is_down() {
    let fake = Fake::new();
    fake.device("a0", 1, IBV_TRANSPORT_IB, &[FakePort::ethernet("10.9.0.1")]);
    fake.device("b0", 0, IBV_TRANSPORT_IB, &[FakePort::ethernet("10.9.0.2")]);
    assert_eq!(offered_address(&open()).gid, mapped("10.9.0.2"));
    fake.run_on(1);
    let near = open();
    assert_eq!(offered_address(&near).gid, mapped("10.9.0.1"));
    let reports = ports(&OpenRequest::new(8192, 4096));
    let taken: Vec<_> = reports.iter().map(|it| (it.is_taken, it.info.memory_node)).collect();
    assert_eq!(taken, [(true, Some(1)), (false, Some(0))]);
    let mut down = FakePort::ethernet("10.9.0.1");
    down.is_active = false;
    fake.change("a0", &[down], IBV_EVENT_PORT_ERR);
    assert_eq!(offered_address(&open()).gid, mapped("10.9.0.2"));
}

#[test]
fn a_source_without_a_named_port_chooses_one_that_reaches_the_target() {
    let fake = Fake::new();
    fake.device("eth0", 0, IBV_TRANSPORT_IB, &[FakePort::ethernet("10.9.0.1")]);
    let far = FakePort::infiniband(4, "fec0:0:0:7::4");
    fake.device("ib0", 1, IBV_TRANSPORT_IB, &[far, FakePort::infiniband(5, "fec0::5")]);
    let target = open_by(on("ib0:2")).unwrap();
    let mut source = open();
    assert!(offered_address(&source).is_ethernet, "by itself it takes the nearest");
    source.arrival_with(&target.address().bytes).unwrap();
    let chosen = offered_address(&source);
    assert_eq!((chosen.is_ethernet, chosen.lid), (false, 5), "of two ports the one in the target's subnet");
    let (number, lid) = (chosen.queue, offered_address(&target).lid);
    let _end = connect(source, &target).unwrap();
    assert_eq!((path_of(number).dlid, path_of(number).port_num), (lid, 2));
    // A named port stays the choice.
    let mut named = open_by(on("eth0")).unwrap();
    named.arrival_with(&target.address().bytes).unwrap();
    assert!(refused(named, &target).contains("on InfiniBand and eth0:1 on Ethernet"));
}

/// A machine with a port of Ethernet near this thread, and two subnets of InfiniBand, of which one has two ports.
fn mixed() -> Fake {
    let fake = Fake::new();
    fake.device("eth0", 0, IBV_TRANSPORT_IB, &[FakePort::ethernet("10.9.0.1")]);
    let far = FakePort::infiniband(4, "fec0:0:0:7::4");
    fake.device("ib0", 1, IBV_TRANSPORT_IB, &[far, FakePort::infiniband(5, "fec0::5")]);
    fake.device("ib1", 1, IBV_TRANSPORT_IB, &[FakePort::infiniband(6, "fec0::6")]);
    fake
}

#[test]
fn a_target_without_a_named_port_connects_in_the_sources_network() {
    let _fake = mixed();
    let request = OpenRequest::new(8192, 4096);
    let on_ib1 = || on("ib1").with("timeout=14").unwrap();
    let pairs: [(Backend, Opened, Opened); 2] = [
        (Backend::Write, open(), open_by(on_ib1()).unwrap()),
        (
            Backend::Send,
            Send::new().open(&request).unwrap(),
            Send::with_options(on_ib1()).open(&request).unwrap(),
        ),
    ];
    for (backend, target, mut source) in pairs {
        let offer = Offer::from_bytes(&target.address().bytes, backend).unwrap();
        let places: Vec<_> = offer.endpoints.iter().map(|it| (it.is_ethernet, it.lid)).collect();
        assert_eq!(places, [(true, 0), (false, 4), (false, 5)], "one for each network, the nearest first");
        source.arrival_with(&target.address().bytes).unwrap();
        let answer = Offer::from_bytes(&source.address().bytes, backend).unwrap();
        assert_eq!((answer.chosen, answer.endpoints.len(), answer.endpoints[0].lid), (2, 1, 6));
        let (of_source, of_target) = (answer.endpoints[0].queue, offer.endpoints[2].queue);
        let address = source.address().bytes;
        let _source = connect(source, &target).unwrap();
        let address = Address { bytes: address, descriptors: Vec::new(), stream: None };
        let _target = target.connect(address, 1000).unwrap();
        assert_eq!((path_of(of_source).dlid, path_of(of_target).dlid), (5, 6));
        assert_eq!(path_of(of_target).port_num, 2, "the port of the target's in that subnet");
    }
}

#[test]
fn both_processes_choose_though_neither_names_a_port() {
    let fake = mixed();
    let target = open();
    fake.run_on(1);
    let mut source = open();
    assert!(!offered_address(&source).is_ethernet, "it is near another port");
    source.arrival_with(&target.address().bytes).unwrap();
    let answer = offered(&source);
    assert_eq!(answer.endpoints.len(), 1, "the target's are known, so no others are opened");
    // The target prefers Ethernet, but reaches this process there only perhaps.
    assert_eq!((answer.chosen, answer.endpoints[0].lid), (1, 4));
}

#[test]
fn the_ports_that_a_target_offers_are_reported() {
    let fake = mixed();
    let two = FakePort::ethernet("10.9.0.2").with_gid(2, IBV_GID_TYPE_ROCE_V2, "10.77.0.2");
    fake.device("eth1", 1, IBV_TRANSPORT_IB, &[two]);
    let reports = ports(&OpenRequest::new(8192, 4096));
    let shown: Vec<_> =
        reports.iter().map(|it| (&*it.info.device, it.info.port, it.is_taken, &it.offered[..])).collect();
    // At most four, the nearest first: the subnet of ib0:2 and ib1 does not fit.
    let expected: [(&str, u8, bool, &[u16]); 5] = [
        ("eth0", 1, true, &[1]),
        ("eth1", 1, false, &[1, 2]),
        ("ib0", 1, false, &[0]),
        ("ib0", 2, false, &[]),
        ("ib1", 1, false, &[]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_process_that_names_its_port_offers_no_other() {
    let _fake = mixed();
    assert_eq!(offered(&open_by(on("eth0")).unwrap()).endpoints.len(), 1);
    assert_eq!(offered(&open_by(on("ib0:2")).unwrap()).endpoints.len(), 1);
    assert_eq!(offered(&open_by(on("ib0")).unwrap()).endpoints.len(), 2);
}

#[test]
fn each_address_of_a_port_may_be_another_network() {
    let fake = Fake::new();
    let port = FakePort::ethernet("10.9.0.1").with_gid(0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
    let port = port.with_gid(2, IBV_GID_TYPE_ROCE_V1, "10.77.0.1");
    fake.device("vlan0", 0, IBV_TRANSPORT_IB, &[port.with_gid(3, IBV_GID_TYPE_ROCE_V2, "10.77.0.1")]);
    let gids: Vec<_> = offered(&open()).endpoints.iter().map(|it| (it.gid, it.gid_kind)).collect();
    assert_eq!(gids, [(mapped("10.9.0.1"), 2), (mapped("10.77.0.1"), 2)]);
    let named = open_by(Options::default().with("gid=10.77.0.1").unwrap()).unwrap();
    assert_eq!(offered(&named).endpoints.len(), 1);
}

#[test]
fn an_offer_for_a_nonexistent_endpoint_is_refused() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let (target, source) = (open(), open());
    target.address();
    let mut lie = offered(&source);
    lie.chosen = 1;
    let lie = Address { bytes: lie.to_bytes(Backend::Write), descriptors: Vec::new(), stream: None };
    let error = target.connect(lie, 1000).err().unwrap().to_string();
    assert!(error.contains("it answers endpoint 1 of 1"), "{error}");
}

#[test]
fn the_gid_is_of_the_peers_kind_where_the_port_has_one() {
    let fake = Fake::new();
    fake.device(
        "old0",
        0,
        IBV_TRANSPORT_IB,
        &[FakePort::ethernet("10.9.0.2").with_gid(1, IBV_GID_TYPE_ROCE_V1, "10.9.0.2")],
    );
    let both = FakePort::ethernet("10.9.0.1").with_gid(0, IBV_GID_TYPE_ROCE_V1, "10.9.0.1");
    fake.device("both0", 0, IBV_TRANSPORT_IB, &[both]);
    let target = open_by(on("old0")).unwrap();
    let mut source = open_by(on("both0")).unwrap();
    assert_eq!(offered_address(&source).gid_kind, 2);
    source.arrival_with(&target.address().bytes).unwrap();
    assert_eq!(u32::from(offered_address(&source).gid_kind), IBV_GID_TYPE_ROCE_V1);
    let _end = connect(source, &target).unwrap();
}

#[test]
fn endpoints_have_separate_domains_so_another_peers_key_is_rejected() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let (victim, target, source) = (open(), open(), open());
    let [of_victim, of_target] =
        [offered_address(&victim), offered_address(&target)].map(|address| request_of(address.queue).domain);
    assert_ne!(of_victim, of_target);
    // A source that guessed the key of another source's mailbox at the same target.
    let mut lie = offered(&target);
    lie.endpoints[0].region = offered_address(&victim).region;
    let lie = Address { bytes: lie.to_bytes(Backend::Write), descriptors: Vec::new(), stream: None };
    let of_source = Address { bytes: source.address().bytes, descriptors: Vec::new(), stream: None };
    let _target = target.connect(of_source, 1000).unwrap();
    let Ok(Endpoint::OneSided { mut remote, .. }) = source.connect(lie, 1000) else { panic!("it connects") };
    remote.put_word(0, 1, 7).unwrap();
    let mut said = None;
    until("a refusal", || {
        said = remote.progress().err();
        said.is_some()
    });
    assert!(said.unwrap().to_string().contains("remote access error"));
}

#[test]
fn each_process_prepares_for_forks_once_before_it_uses_a_device() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    // In a child, which has no other threads, because other tests of this process open devices, too.
    in_child(|| {
        let is_first = preparations() == 0;
        drop((open(), open()));
        is_first && preparations() == 1
    });
}

#[test]
fn a_forked_child_leaves_its_parents_device_objects_and_opens_its_own() {
    let fake = Fake::new();
    fake.roce("roce0", "10.9.0.1");
    let request = OpenRequest::new(8192, 4096);
    let backends: [Box<dyn Transport>; 2] = [Box::new(Write::new()), Box::new(Send::new())];
    for mut backend in backends {
        let name = backend.name().to_owned();
        let (source, target) = (backend.open(&request).unwrap(), backend.open(&request).unwrap());
        let mut inherited = Some((connect(source, &target).unwrap(), target, backend));
        in_child(|| {
            let Some((mut end, target, backend)) = inherited.take() else { return false };
            let (word, lender) = match &mut end {
                Endpoint::OneSided { local, remote } => (remote.put_word(0, 1, 7), local.lender()),
                Endpoint::TwoSided(messages) => (messages.poll().map(drop), messages.lender()),
            };
            // SAFETY: the bytes stay valid until the process ends.
            let lent = unsafe { lender.unwrap().lend(NonNull::from(&[7_u8; 64]).cast(), 64) };
            let are_refused = word.is_err() && lent.is_err();
            drop((end, target, backend));
            let are_leaked = ended() == 0;
            drop(open());
            are_refused && are_leaked && ended() > 0
        });
        assert!(inherited.is_some(), "{name}");
    }
    let device = Device::open(&on("roce0")).unwrap();
    let since = device.since();
    fake.change("roce0", &[FakePort::ethernet("10.9.0.1")], IBV_EVENT_DEVICE_FATAL);
    in_child(|| device.fault(since, &[]).is_none());
    assert!(device.fault(since, &[]).is_some(), "the report is the parent's");
}
