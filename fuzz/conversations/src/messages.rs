//! Messages as bytes, which are changed before they are sent, and bytes with descriptors.

use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use farjump_control::{
    AdminRequest, Control, EndpointInfo, Limits, Message, PREFIX_LEN, RefusalCause, RejectCause, Rights,
    Share,
};
use farjump_core::image::CodeId;
use farjump_fixtures::by_hand::{cpu, endpoint_info, send_with};
use farjump_fuzz::Mutator;
use fastrand::Rng;
use rustix::net::SendFlags;

use crate::descriptors::Odd;

/// Random bytes, of a random length in `lengths`.
pub fn random(seed: u64, lengths: Range<usize>) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    (0..rng.usize(lengths)).map(|_| rng.u8(..)).collect()
}

/// A message of some kind, whole and unexpected by any peer.
pub fn any(kind: u8, code: CodeId, image: &[u8]) -> Message {
    let text = String::from("by the fuzzer");
    let end = EndpointInfo { address: vec![1; 16], key: [3; 16], rules: 0xff, ..endpoint_info() };
    match kind % 21 {
        0 => Message::Hello { cpu: cpu(), pid: 1, program: text, transports: vec!["shm".into()] },
        1 => Message::Welcome { epoch: 1, cpu: cpu(), pid: 1, program: text, endpoint: end, stream: None },
        2 => Message::Ready { endpoint: end, stream: None },
        3 => Message::Go,
        4 => Message::Reject { cause: RejectCause::Failed, text },
        5 => Message::Refused { token: 0x8000, cause: RefusalCause::Policy, text },
        6 => Message::NeedCode { index: 1, id: code.0 },
        7 => Message::Closing { text },
        8 => Message::Code { id: code.0, image: image.to_vec() },
        9 => Message::NoCode { id: code.0 },
        10 => Message::Bye,
        11 => Message::CodeLinked { index: 1, nanoseconds: u64::MAX },
        12 => Message::Limits(Limits::default()),
        13 => Message::LargeRequest { frame: 1 << 16, payload: 1 << 15 },
        14 => Message::LargeOffer { endpoint: end },
        15 => Message::LargeAccept { endpoint: end },
        16 => Message::LargeDecline { cause: RefusalCause::OutOfMemory, text },
        17 => Message::LargeRelease,
        18 => Message::AdminRequest(AdminRequest::Stats),
        19 => Message::AdminResponse { bytes: vec![1, 1, 0] },
        _ => Message::Rights(Rights::all()),
    }
}

/// The share of the stream's secret in a Welcome; only one byte follows it.
pub fn share_of(message: &Message) -> [u8; Share::LEN] {
    let bytes = bytes_of(message);
    let from = bytes.len().saturating_sub(Share::LEN + 1);
    bytes[from..].first_chunk().copied().unwrap_or([0; Share::LEN])
}

/// A message as it travels, without the preamble.
pub fn bytes_of(message: &Message) -> Vec<u8> {
    let (mut reader, own) = UnixStream::pair().expect("a pair of sockets");
    let mut control = Control::from_stream(own).expect("a connection to this process");
    // A message too long for a connection before the handshake is replaced.
    if control.send(message, &[]).is_err() || control.wants_write() {
        return vec![0; 8];
    }
    drop(control);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("what was sent");
    bytes.split_off(PREFIX_LEN)
}

/// The bytes of a changed message.
pub fn spoilt(message: &Message, seed: u64) -> Vec<u8> {
    let mut bytes = bytes_of(message);
    Mutator::new(seed).mutate(&mut bytes, 64, 1 << 16);
    bytes
}

/// Writes bytes directly to the socket, with descriptors beside the first. Bytes that do not fit are lost.
pub fn write(control: &impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let descriptors = &descriptors[..descriptors.len().min(16)];
    // Any outcome is allowed: the socket may be full or closed.
    let _ = send_with(control, bytes, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Sends a message with descriptors that the seed makes, in place of those of a region of `len` bytes. Their other ends
/// stay in `kept`.
pub fn send_odd(control: &mut Control, message: &Message, seed: u64, len: u64, kept: &mut Vec<OwnedFd>) {
    let odd = Odd::some(seed, len);
    let _ = control.send(message, &odd.borrowed());
    kept.extend(odd.kept);
}

/// As [`send_odd`], for a message that may not have descriptors: its head claims as many as come, or as `claimed` says.
pub fn write_odd(
    control: &Control,
    message: &Message,
    seed: u64,
    claimed: Option<usize>,
    kept: &mut Vec<OwnedFd>,
) {
    let odd = Odd::some(seed, 8192);
    let body = bytes_of(message).split_off(8);
    let claimed = claimed.unwrap_or(odd.passed.len());
    write(control, &[&head(body.len(), claimed)[..], &body].concat(), &odd.borrowed());
    kept.extend(odd.kept);
}

/// The head of a message with a body of `len` bytes and `descriptors` descriptors.
fn head(len: usize, descriptors: usize) -> [u8; 8] {
    let [a, b, c, d] = (len as u32).to_le_bytes();
    [a, b, c, d, descriptors as u8, 0, 0, 0]
}
