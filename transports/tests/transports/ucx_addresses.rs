//! Peers with a UCX address that is cut off, damaged, of another kind or UCX. UCX itself would trust it.

use std::thread;

use farjump_control::{Arrival, Handshake, HandshakeError, Listener, connect_target};
use farjump_core::transport::Transport;
use farjump_fixtures::altered::Altered;
use farjump_transports::ucx::Am;

use farjump_fixtures::control::{Place, accept, drive, far, source_options, target_options};

/// A change to an address before it is sent.
type Warp = fn(&mut Vec<u8>);

/// Runs a handshake and returns both results: the source's and the target's.
fn handshake_of(
    place: &Place,
    listener: &Listener,
    source: Box<dyn Transport>,
    target: Box<dyn Transport>,
) -> (Result<Handshake, HandshakeError>, Result<Handshake, HandshakeError>) {
    let address = place.address();
    thread::scope(|scope| {
        let source = scope.spawn(move || connect_target(&address, &mut [source], &source_options(), far()));
        let target = accept(listener)
            .and_then(|control| drive(&mut Arrival::new(control, target_options()), &mut [target]));
        (source.join().unwrap(), target)
    })
}

/// Makes the checksum fit the changed address.
fn sum_up(bytes: &mut [u8]) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// The lies, and a part of the cause of each rejection.
const LIES: [(Warp, &str); 7] = [
    (Vec::clear, "it has 0 bytes"),
    (|bytes| bytes.truncate(19), "it has 19 bytes"),
    (|bytes| bytes.truncate(bytes.len() - 1), "bytes for UCX and claims"),
    (|bytes| bytes[40] ^= 1, "it is damaged"),
    (
        |bytes| *bytes = b"an address that no UCX has made, for another kind of transport".to_vec(),
        "it is of version",
    ),
    (
        |bytes| {
            bytes[6..8].copy_from_slice(&99_u16.to_le_bytes());
            sum_up(bytes);
        },
        "the peer has UCX 1.99 and this process",
    ),
    (
        |bytes| {
            bytes[8..10].copy_from_slice(&1_u16.to_le_bytes());
            sum_up(bytes);
        },
        "settings of UCX that must be the same in both processes differ",
    ),
];

#[test]
fn a_bad_ucx_address_is_rejected_and_the_next_handshake_succeeds() {
    if let Err(why) = Am::new().usable() {
        return println!("skipped: {why}");
    }
    let place = Place::new();
    let listener = place.listener();
    for (warp, words) in LIES {
        for target_lies in [true, false] {
            let [honest, lying]: [Box<dyn Transport>; 2] =
                [Box::new(Am::new()), Altered::new(Am::new()).stating(warp).boxed()];
            let (source, target) = match target_lies {
                true => handshake_of(&place, &listener, honest, lying),
                false => handshake_of(&place, &listener, lying, honest),
            };
            // The liar's result depends on the order: it sees the cause, or that the peer's worker is gone.
            let deceived = if target_lies { source } else { target };
            let error = deceived.expect_err("it was believed").to_string();
            assert!(error.contains("ucx-am") && error.contains(words), "{error}");
            let (source, target) = handshake_of(&place, &listener, Box::new(Am::new()), Box::new(Am::new()));
            assert!(source.is_ok() && target.is_ok(), "{words}: {:?} {:?}", source.err(), target.err());
        }
    }
}
