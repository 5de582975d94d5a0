//! Addresses come from other processes: every wrong one causes an error and no harm.

use std::os::fd::{AsRawFd, RawFd};

use farjump_core::mailbox;
use farjump_core::transport::{Address, LocalAddress, OpenRequest, Transport, UnconnectedEndpoint};

use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::Subject;
use crate::connect::{self, Streams};

/// Time to reach an unreachable peer, in milliseconds.
const DEADLINE_MS: u32 = 200;
/// Most lengths at which an address is cut off. Each attempt opens an endpoint, which takes some backends
/// milliseconds, and addresses have hundreds of bytes.
const CUTS: usize = 40;
/// Number of random addresses.
const RANDOM: usize = 20;
/// Most bytes of a random address where the honest one has none.
const MADE_UP: usize = 64;

/// Checks that wrong addresses are refused by name: addresses that are cut off, too long or random, and addresses
/// without their descriptors or their stream.
pub(super) fn addresses(subject: &Subject) -> Counted {
    let mut pair = subject.make();
    let peer = open(&mut *pair.target)?;
    let honest = peer.address();
    let again = peer.address();
    let same = honest.bytes == again.bytes && numbers(&honest) == numbers(&again);
    ensure!(same, "an opening's address changes");
    ensure!(honest.bytes.len() <= 64 << 10, "an address of {} bytes", honest.bytes.len());
    ensure!(honest.descriptors.len() <= 8, "an address with {} descriptors", honest.descriptors.len());
    ensure!(
        honest.descriptors.is_empty() || pair.target.capabilities().descriptors,
        "an address with descriptors, of which the capabilities say nothing"
    );
    let mut refused = 0;
    // The descriptors are valid, so that only the bytes are wrong.
    let honest = honest.bytes.clone();
    let len = honest.len();
    for len in (0..len).step_by(len.div_ceil(CUTS).max(1)).chain(len.checked_sub(1)) {
        refused += is_refused(&mut *pair.source, &*peer, |address| address.bytes.truncate(len))?;
    }
    refused += is_refused(&mut *pair.source, &*peer, |address| address.bytes.push(0))?;
    refused += is_refused(&mut *pair.source, &*peer, |address| address.bytes.extend([0xff; 4096]))?;
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..RANDOM {
        let made_up = random(&mut rng, &honest);
        refused += is_refused(&mut *pair.source, &*peer, |address| address.bytes = made_up)?;
    }
    let Address { bytes, descriptors, .. } = connect::handed_over(&*peer)?;
    if !descriptors.is_empty() || pair.source.capabilities().stream {
        let bare = Address { bytes, descriptors: Vec::new(), stream: None };
        refused += check(open(&mut *pair.source)?, bare, pair.source.name())?;
    }
    // After all of these an honest address still works.
    drop(peer);
    let request = request();
    connect::connect(&mut *pair.source, &mut *pair.target, &request)?;
    Ok(refused)
}

/// Random bytes that are not the address `honest`: as many as it has, or some if it has none.
fn random(rng: &mut fastrand::Rng, honest: &[u8]) -> Vec<u8> {
    loop {
        let len = if honest.is_empty() { rng.usize(1..=MADE_UP) } else { honest.len() };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        if bytes != honest {
            return bytes;
        }
    }
}

fn numbers(address: &LocalAddress<'_>) -> Vec<RawFd> {
    address.descriptors.iter().map(AsRawFd::as_raw_fd).collect()
}

fn request() -> OpenRequest {
    OpenRequest::new(mailbox::region_len(8192), 4096)
}

fn open(transport: &mut dyn Transport) -> Result<Box<dyn UnconnectedEndpoint>, Failure> {
    let capabilities = transport.capabilities();
    let request = request();
    Ok(transport
        .open(&OpenRequest::new(request.region_len, request.max_frame.min(capabilities.max_frame)))?)
}

fn is_refused(
    from: &mut dyn Transport,
    peer: &dyn UnconnectedEndpoint,
    spoil: impl FnOnce(&mut Address),
) -> Counted {
    let mut address = connect::handed_over(peer)?;
    spoil(&mut address);
    if from.capabilities().stream {
        let [source, _] = Streams::default().pair()?;
        address.stream = Some(source);
    }
    check(open(from)?, address, from.name())
}

fn check(opening: Box<dyn UnconnectedEndpoint>, address: Address, name: &str) -> Counted {
    let shown = format!("{:02x?}", &address.bytes[..address.bytes.len().min(32)]);
    match opening.connect(address, DEADLINE_MS) {
        Ok(_) => Err(Failure::new(format!("connected to a made-up address {shown}"))),
        Err(error) => {
            ensure!(error.to_string().contains(name), "an error that does not name {name}: {error}");
            Ok(1)
        }
    }
}
