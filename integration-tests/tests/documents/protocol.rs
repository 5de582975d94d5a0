//! The bytes in `docs/reference/protocol.md`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use farjump_control::{Control, Message};
use farjump_core::cpu::Cpu;
use farjump_core::frame::{FrameView, Kind, MAX_FRAME, Messages, Plan, PlanCode, Trailer};
use farjump_core::image::{ImageParts, ImageView, Import, Level, Machine, Place, Relative};
use farjump_core::signal::LinkKey;
use farjump_core::transport::{
    Address, Endpoint, Messages as Post, OpenRequest, Secret, Stream, StreamRole, Transport,
};
use farjump_loader::code_id;
use farjump_transports::tcp::Tcp;

use crate::hex;

const DOCUMENT: &str = "docs/reference/protocol.md";

fn key() -> LinkKey {
    LinkKey::from_bytes(std::array::from_fn(|index| index as u8))
}

/// The frame of `plan` at `position`, at an address that is a multiple of 4096.
fn frame(plan: &Plan<'_>, payload: &[u8], position: u64) -> Vec<u8> {
    let layout = plan.layout(0, payload.len(), Trailer::Never);
    let header = plan.header(&layout, payload.len());
    let mut bytes = vec![0; header.frame_len as usize];
    let [lengths, rest] = header.to_words();
    let code = plan.code_part(&layout).map(|part| part.to_words(layout.payload as u32));
    let words = [key().header(position), lengths, rest].into_iter().chain(code.into_iter().flatten());
    for (word, space) in words.zip(bytes.chunks_mut(8)) {
        space.copy_from_slice(&word.to_le_bytes());
    }
    if let (Some(code), Some(part)) = (&plan.code, plan.code_part(&layout)) {
        bytes[64..][..code.name.len()].copy_from_slice(code.name.as_bytes());
        bytes[part.image_offset as usize..][..code.image.len()].copy_from_slice(code.image);
    }
    bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
    bytes
}

fn counter() -> Vec<u8> {
    ImageParts::text(Machine::X86_64, &[0x48, 0xff, 0x02, 0xc3]).encode().unwrap()
}

#[test]
fn the_page_states_the_version_of_the_control_connection_wherever_it_does() {
    let document = hex::read(DOCUMENT);
    let version = farjump_control::VERSION;
    // The page's first sentence, the field of the preamble, and the example of it.
    for (before, behind) in [
        ("exchange, in version ", " (that of the control"),
        ("| 8 | 2 | version, ", " |"),
        ("| version ", "; zero"),
    ] {
        let (_, rest) = document.split_once(before).unwrap_or_else(|| panic!("{DOCUMENT} has no `{before}`"));
        let (stated, _) = rest.split_once(behind).unwrap_or_else(|| panic!("{DOCUMENT} has no `{behind}`"));
        assert_eq!(stated, version.to_string(), "{DOCUMENT}: `{before}…{behind}`");
    }
}

#[test]
fn the_frames_are_as_documented_and_are_taken() {
    let document = hex::read(DOCUMENT);
    let plan = Plan {
        kind: Kind::Call,
        wants_reply: true,
        alone: false,
        travelled: false,
        index: 7,
        token: 0x0001_0002,
        align_log2: 0,
        code: None,
    };
    let call = frame(&plan, b"hello", 0);
    hex::assert_block(&document, "call", &call);
    let view = FrameView::new_checked(&call, 0, MAX_FRAME).unwrap();
    assert_eq!((view.payload(), view.header().index), (&b"hello"[..], 7));

    let layout = plan.layout_delivered(5);
    let mut message = vec![0; layout.frame_len];
    plan.write_delivered(&layout, key().stamp(0), 5, &mut message).unwrap();
    message[..5].copy_from_slice(b"hello");
    hex::assert_block(&document, "delivered-call", &message);
    let view = FrameView::of_delivered(&message, MAX_FRAME).unwrap();
    assert_eq!((view.payload(), view.header().index), (&b"hello"[..], 7));
    assert_eq!(view.signal(), u64::from(key().stamp(0)));

    let image = counter();
    let code = PlanCode {
        image: &image,
        id: code_id(&image),
        epoch: 0x0123_4567_89ab_cdef,
        name: "counter",
        family: None,
    };
    let plan = Plan {
        kind: Kind::CallCode,
        wants_reply: false,
        alone: false,
        travelled: false,
        index: 0,
        token: 0,
        code: Some(code),
        ..plan
    };
    let call = frame(&plan, b"", 64);
    hex::assert_block(&document, "call-code", &call);
    let view = FrameView::new_checked(&call, 0, MAX_FRAME).unwrap();
    assert_eq!((view.image(), view.name()), (Some(&image[..]), Some(&b"counter"[..])));

    let messages = Messages { len: 4, count: 2 };
    let payload = [&messages.to_word().to_le_bytes()[..], b"oneA\0\0\0\0twoB\0\0\0\0"].concat();
    let calls = frame(&Plan { index: 7, ..Plan::of(Kind::CallBatch) }, &payload, 128);
    hex::assert_block(&document, "calls", &calls);
    let view = FrameView::new_checked(&calls, 0, MAX_FRAME).unwrap();
    let word = || u64::from_le_bytes(view.payload()[..8].try_into().unwrap());
    assert_eq!(Messages::of(&view.header(), word), Ok(messages));
}

#[test]
fn the_signals_are_as_documented() {
    let signals =
        [key().header(0), key().header(64), key().trailer(64), key().checksum(0, [1, 2, 3].into_iter())];
    let bytes: Vec<u8> = signals.into_iter().flat_map(u64::to_le_bytes).collect();
    hex::assert_block(&hex::read(DOCUMENT), "signals", &bytes);
}

#[test]
fn the_images_are_as_documented_and_are_taken() {
    let document = hex::read(DOCUMENT);
    hex::assert_block(&document, "image-counter", &counter());
    let import = Import { site: Place::Span1(8), name: "hook", addend: 16, weak: true };
    let parts = ImageParts {
        machine: Machine::X86_64,
        level: Level::BASELINE,
        features: vec![],
        landing_pads: false,
        align_log2: 3,
        payload_align_log2: 8,
        span1: &[0xc3, 0x90, 0x90, 0x90, b'f', b'a', b'r', 0, 0, 0, 0, 0, 0, 0, 0, 0],
        entry: 0,
        data: &[0; 8],
        bss_len: 4,
        imports: vec![import],
        relatives: vec![Relative { site: Place::Span2(0), to: Place::Span1(4) }],
        wanted: vec!["libz.so.1"],
    };
    let image = parts.encode().unwrap();
    hex::assert_block(&document, "image-all", &image);
    let view = ImageView::new_checked(&image).unwrap();
    assert_eq!(view.imports().next(), Some(import));
    assert!(view.wanted().eq(["libz.so.1"]));
    assert_eq!(view.span2_len(), 12);
    let code = [0x48, 0xff, 0x02, 0xc3];
    let exact = ImageParts { features: vec!["sse2", "avx2"], ..ImageParts::text(Machine::X86_64, &code) };
    let image = exact.encode().unwrap();
    hex::assert_block(&document, "image-features", &image);
    let view = ImageView::new_checked(&image).unwrap();
    assert!(view.features().eq(["avx2", "sse2"]) && view.platform().is_none());
}

#[test]
fn the_first_bytes_on_a_control_connection_are_as_documented() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut control = Control::from_stream(ours).unwrap();
    let level = Level::new(Machine::X86_64, 3).unwrap();
    let cpu = Cpu::new(Machine::X86_64, level, "znver2", ["avx2", "sse2"]).unwrap();
    let hello =
        Message::Hello { cpu: cpu.encode(), pid: 1, program: "p".into(), transports: vec!["shm".into()] };
    control.send(&hello, &[]).unwrap();
    drop(control);
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).unwrap();
    hex::assert_block(&hex::read(DOCUMENT), "hello", &bytes);
}

/// The endpoint `role` of a `tcp` stream. Its peer's processor has no AES instructions, so the encrypted bytes are
/// the same on all machines.
fn endpoint(role: StreamRole, socket: UnixStream, is_sealed: bool) -> Box<dyn Post> {
    let open = || Tcp::new().open(&OpenRequest::new(4 << 20, 1 << 20)).unwrap();
    let mut bytes = open().address().bytes;
    bytes[1] = 0;
    let secret = is_sealed.then(|| Secret::from_bytes(std::array::from_fn(|at| at as u8)));
    let token = std::array::from_fn(|at| 0x80 + at as u8);
    let stream = Some(Stream { descriptor: socket.into(), role, token, secret });
    match open().connect(Address { bytes, descriptors: Vec::new(), stream }, 1000).unwrap() {
        Endpoint::TwoSided(end) => end,
        other => panic!("{other:?}"),
    }
}

/// The bytes that a source writes to send `message`, which a target then takes.
fn records(message: &[u8], is_sealed: bool) -> Vec<u8> {
    let (own, mut between) = UnixStream::pair().unwrap();
    let mut source = endpoint(StreamRole::Source, own, is_sealed);
    let space = source.reserve(message.len()).unwrap();
    // SAFETY: `reserve` lends `message.len()` bytes.
    unsafe { std::slice::from_raw_parts_mut(space.as_ptr(), message.len()) }.copy_from_slice(message);
    source.commit(message.len(), 0).unwrap();
    drop(source);
    let mut bytes = Vec::new();
    between.read_to_end(&mut bytes).unwrap();
    let (mut between, own) = UnixStream::pair().unwrap();
    let mut target = endpoint(StreamRole::Target, own, is_sealed);
    between.write_all(&bytes).unwrap();
    let found = target.poll().unwrap().expect("it is whole");
    let (start, len) = (found.start(), found.len());
    // SAFETY: `poll` lends `len` bytes until `release`.
    assert!(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) } == message);
    target.release();
    bytes
}

#[test]
fn the_records_are_as_documented_and_are_taken() {
    let document = hex::read(DOCUMENT);
    let message: Vec<u8> = (0..64).collect();
    hex::assert_block(&document, "record", &records(&message, false));
    hex::assert_block(&document, "record-sealed", &records(&message, true));
    // The records of a long message: the first head, and the bytes between the first body and the second.
    let message = vec![0; 16_384 + 64];
    let clear = records(&message, false);
    let heads = [&clear[..16], &clear[16 + 16_384..][..16]].concat();
    assert_eq!(clear.len(), message.len() + heads.len());
    hex::assert_block(&document, "record-long", &heads);
    let sealed = records(&message, true);
    let around = [&sealed[..16], &sealed[16 + 16_384..][..16 + 16]].concat();
    assert_eq!(sealed.len(), message.len() + around.len() + 16);
    hex::assert_block(&document, "record-long-sealed", &around);
}
