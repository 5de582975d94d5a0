//! The seeds of the kept corpus: real frames, images, handshakes and libraries, made by the code that makes them
//! elsewhere. Also files of keys, and the bytes that stores of objects and their clients read.
//!
//! `cargo run -p farjump-fuzz --bin seeds` writes them into `fuzz/corpus`. A test compares the files there with them.

use farjump_control::{AdminRequest, Control, EndpointInfo, Limits, Message, RefusalCause, RejectCause};
use farjump_core::bitcode::BitcodeParts;
use farjump_core::cpu::Cpu;
use farjump_core::frame::{Kind, LINE, Messages, Plan, PlanCode, Trailer};
use farjump_core::image::{ImageParts, Import, Level, Machine, Place, Relative};
use farjump_loader::code_id;
use farjump_loader::library::bundle::{Bundle, BundleImage, SYMBOL, Sizes};

use crate::store_seeds::{self, Seed};

/// The seeds of each target.
pub fn seeds() -> [(&'static str, Vec<Seed>); 10] {
    [
        ("frame", frames()),
        ("image", images()),
        ("handshake", handshakes()),
        ("records", records()),
        ("inspect", libraries()),
        ("library", libraries()),
        ("keys", files_of_keys()),
        ("objects", store_seeds::objects()),
        ("handles", store_seeds::handles()),
        ("replies", store_seeds::replies_of_owners()),
    ]
}

/// Files of keys: one as bytes, one as a line, several with names and rights, and one with the maximum.
fn files_of_keys() -> Vec<Seed> {
    let digits = |byte: u8| format!("{byte:02x}").repeat(32);
    let several = format!(
        "# Who may come.\n{} first\n\n{} second allow=observe,call\n{} allow=none\n",
        digits(1),
        digits(0xa2),
        digits(0xff)
    );
    let most: String = (0..64).map(|byte| digits(byte) + "\n").collect();
    vec![
        ("bytes", vec![0x80; 32]),
        ("one", (digits(7) + "\n").into_bytes()),
        ("several", several.into_bytes()),
        ("most", most.into_bytes()),
    ]
}

/// Images: the two of `docs/reference/protocol.md`, and one with all kinds of sites in both spans; and bitcode.
fn images() -> Vec<Seed> {
    vec![("counter", counter()), ("all", all()), ("sites", sites()), ("bitcode", bitcode())]
}

fn bitcode() -> Vec<u8> {
    let parts = BitcodeParts {
        machine: Machine::X86_64,
        payload_align_log2: 0,
        llvm: 19,
        name: "sum",
        wanted: vec!["libcrypto.so.3", "libz.so.1"],
        modules: vec![b"BC\xc0\xde\0\0\0\0", b"BC\xc0\xde\x01"],
    };
    parts.encode().expect("the seeds are bitcode")
}

fn encode(parts: &ImageParts<'_>) -> Vec<u8> {
    parts.encode().expect("the seeds are images")
}

fn plain(span1: &[u8]) -> ImageParts<'_> {
    ImageParts::text(Machine::X86_64, span1)
}

/// `incq (%rdx); ret`.
fn counter() -> Vec<u8> {
    encode(&plain(&[0x48, 0xff, 0x02, 0xc3]))
}

fn all() -> Vec<u8> {
    encode(&ImageParts {
        align_log2: 3,
        payload_align_log2: 8,
        data: &[0; 8],
        bss_len: 4,
        imports: vec![Import { site: Place::Span1(8), name: "hook", addend: 16, weak: true }],
        relatives: vec![Relative { site: Place::Span2(0), to: Place::Span1(4) }],
        ..plain(b"\xc3\x90\x90\x90far\0\0\0\0\0\0\0\0\0")
    })
}

fn sites() -> Vec<u8> {
    let import = |site, name, addend, weak| Import { site, name, addend, weak };
    let relative = |site, to| Relative { site, to };
    encode(&ImageParts {
        align_log2: 4,
        data: &[0; 20],
        bss_len: 28,
        imports: vec![
            import(Place::Span1(16), "store_get", 0, false),
            import(Place::Span1(24), "farjump_reply", 0, false),
            import(Place::Span2(8), "store_get", -8, true),
        ],
        relatives: vec![
            relative(Place::Span1(32), Place::Span1(0)),
            relative(Place::Span1(41), Place::Span1(3)),
            relative(Place::Span2(0), Place::Span2(48)),
            relative(Place::Span2(40), Place::Span1(5)),
        ],
        wanted: vec!["libz.so.1", "libcrypto.so.3"],
        ..plain(&[0; 49])
    })
}

/// Frames of every kind, at the first line of a page and behind it.
fn frames() -> Vec<Seed> {
    let image = counter();
    let code = |image| PlanCode {
        image,
        id: code_id(&counter()),
        epoch: 0x0123_4567_89ab_cdef,
        name: "counter",
        family: None,
    };
    let plan = |kind| Plan { wants_reply: true, index: 7, token: 0x0001_0002, ..Plan::of(kind) };
    let any = u8::MAX;
    // Three messages of nine bytes.
    let messages = [&Messages { len: 9, count: 3 }.to_word().to_le_bytes()[..], &[0x55; 48]].concat();
    let call_code = Plan { code: Some(code(&image)), ..plan(Kind::CallCode) };
    let aligned = Plan { align_log2: 8, ..call_code };
    let call_id = Plan { code: Some(code(&[])), ..plan(Kind::CallId) };
    let skip = [&[0; 8][..], &[128, 0, 0, 0, 0, 0, 0, 0, Kind::Skip as u8], &[0; 111]].concat();
    vec![
        ("call", frame(0, any, &plan(Kind::Call), b"hello", Trailer::Never)),
        ("call-long", frame(3, 8, &plan(Kind::Call), &[0x77; 200], Trailer::Never)),
        (
            "calls",
            frame(2, any, &Plan { wants_reply: false, ..plan(Kind::CallBatch) }, &messages, Trailer::Never),
        ),
        ("call-trailer", frame(0, any, &plan(Kind::Call), &[0x77; 100], Trailer::Always)),
        ("call-code", frame(1, any, &call_code, b"payload", Trailer::Never)),
        ("call-code-aligned", frame(1, any, &aligned, &[1; 40], Trailer::Never)),
        ("call-id", frame(0, 4, &call_id, b"payload", Trailer::Never)),
        ("reply", frame(0, any, &plan(Kind::Reply), &42_u64.to_le_bytes(), Trailer::Never)),
        ("flush", frame(0, any, &plan(Kind::Flush), b"", Trailer::Never)),
        ("skip", [&[0, any][..], &skip].concat()),
        ("delivered-call", delivered(any, &plan(Kind::Call), b"hello")),
        ("delivered-call-code", delivered(any, &call_code, b"payload")),
        ("delivered-call-id", delivered(4, &call_id, &[0x77; 100])),
        ("delivered-calls", delivered(8, &Plan { wants_reply: false, ..plan(Kind::CallBatch) }, &messages)),
    ]
}

/// The frame of `plan` as a message, in the body's format. Its stamp is zero.
fn delivered(lines: u8, plan: &Plan<'_>, payload: &[u8]) -> Vec<u8> {
    let layout = plan.layout_delivered(payload.len());
    let mut bytes = vec![0; layout.frame_len];
    plan.write_delivered(&layout, 0, payload.len(), &mut bytes).expect("it is as long as its layout says");
    bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
    [&[0, lines][..], &bytes].concat()
}

/// The frame of `plan` at a line of a page, in the body's format. Its signal is zero.
fn frame(line: u8, lines: u8, plan: &Plan<'_>, payload: &[u8], trailer: Trailer) -> Vec<u8> {
    let layout = plan.layout(usize::from(line) * LINE, payload.len(), trailer);
    let mut bytes = vec![0; layout.frame_len];
    plan.write(&layout, 0, payload.len(), &mut bytes).expect("it is as long as its layout says");
    bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
    [&[line, lines][..], &bytes].concat()
}

/// The messages of both processes in a handshake, and every other message once.
fn handshakes() -> Vec<Seed> {
    let endpoint = EndpointInfo {
        transport: "shm".into(),
        address: [&[1, 0, 3, 0, 0, 0, 0, 0][..], &8192_u64.to_le_bytes()].concat(),
        key: [7; 16],
        rules: 1,
        line_whole: true,
        max_frame: 4096,
        region_len: 8192,
    };
    let of_level =
        |number| Level::new(Machine::X86_64, number).map(|level| Cpu::of_level(Machine::X86_64, level));
    let cpu = |number| of_level(number).unwrap_or_default().encode();
    let hello = Message::Hello {
        cpu: cpu(0),
        pid: 1234,
        program: "source".into(),
        transports: vec!["ucx".into(), "shm".into()],
    };
    let welcome = Message::Welcome {
        epoch: 1 << 40,
        cpu: cpu(3),
        pid: 1235,
        program: "store".into(),
        endpoint: endpoint.clone(),
        stream: None,
    };
    let (ready, id) = (Message::Ready { endpoint, stream: None }, [3; 16]);
    let refuse = Message::Reject { cause: RejectCause::Full, text: "it has 4 links".into() };
    let refused = Message::Refused { token: 9, cause: RefusalCause::BadImage, text: "it is empty".into() };
    let limits = Message::Limits(Limits { image: 1 << 20, ..Limits::default() });
    let later = [
        Message::Go,
        Message::NeedCode { index: 1, id },
        Message::Code { id, image: counter() },
        Message::NoCode { id },
        refused,
        Message::CodeLinked { index: 1, nanoseconds: 12_345 },
        Message::Closing { text: "stopping".into() },
        Message::Bye,
    ];
    let both = [hello.clone(), ready];
    vec![
        ("source", sent(0, &both)),
        ("source-in-pieces", sent(5, &both)),
        ("target", sent(0, &[welcome.clone(), Message::Go])),
        ("target-with-limits", sent(0, &[welcome, limits, Message::Go])),
        ("refusal", sent(0, &[hello, refuse])),
        ("later", sent(0, &later)),
        ("admin-request", sent(0, &[Message::AdminRequest(AdminRequest::Drop { id })])),
        (
            "two-admin-requests",
            sent(
                0,
                &[Message::AdminRequest(AdminRequest::Store), Message::AdminRequest(AdminRequest::Stats)],
            ),
        ),
        ("answer", sent(0, &[Message::AdminResponse { bytes: vec![1, 1, 0] }])),
        // Steps of a source with a stream: hello, and then the stream and the source's endpoint in either order, or
        // more streams.
        ("stream-first", vec![0, 0, 2, 1]),
        ("stream-last", vec![0, 0, 1, 2]),
        ("streams-again", vec![0, 0, 3 | 18 << 3, 4 | 20 << 3, 2, 2, 9, 2]),
    ]
}

/// The bytes of a process that sends `messages`, in the body's format.
fn sent(pace: u8, messages: &[Message]) -> Vec<u8> {
    use std::io::Read;
    let (mut reader, own) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let mut control = Control::from_stream(own).expect("a connection to this process");
    for message in messages {
        control.send(message, &[]).expect("the socket has space");
    }
    drop(control);
    let mut bytes = vec![pace];
    reader.read_to_end(&mut bytes).expect("what was sent");
    bytes
}

/// Changes to records: their protection, their arrival, and steps of two bytes.
fn records() -> Vec<Seed> {
    // Messages of all lengths pass unchanged, and get replies.
    let honest = |len: u8| [[0, len], [2, 0], [4, 0], [5, 0], [6, len], [7, 0]].concat();
    let all = (0..8).flat_map(honest).collect::<Vec<_>>();
    let script = |terms: u8, pace: u8, steps: &[u8]| [&[terms, pace][..], steps].concat();
    let many = [0, 0].repeat(40);
    // The endpoint under test has sent more than its peer took, so it receives while it holds a message.
    let held =
        [&many[..], &[0, 3, 2, 0, 4, 0], &[6, 7].repeat(16), &[2, 0, 15, 2, 15, 3, 4, 0, 5, 0]].concat();
    let padded = [12, 1, 11, 255, 2, 0, 6, 7].repeat(38);
    let spoilt = |step: [u8; 2]| [&many[..20], &[0, 6], &step, &[2, 0, 4, 0]].concat();
    vec![
        ("clear", script(4, 0, &all)),
        ("aes", script(5, 0, &all)),
        ("chacha", script(6, 0, &all)),
        ("byte-by-byte", script(5, 1, &all)),
        ("held-clear", script(8, 0, &held)),
        ("held-aes", script(9, 0, &held)),
        ("padded", script(0, 0, &[&[6, 7, 6, 7], &padded[..]].concat())),
        // More than the window.
        ("beyond", script(0, 0, &[&[6, 7, 6, 7], &[12, 4, 2, 0, 6, 7].repeat(40)[..]].concat())),
        ("flipped", script(5, 0, &spoilt([8, 9]))),
        ("flipped-clear", script(4, 0, &spoilt([8, 32]))),
        ("lost", script(5, 7, &spoilt([9, 96]))),
        ("again", script(5, 0, &[&all[..8], &[0, 0, 2, 0, 10, 96, 2, 0, 4, 0]].concat())),
        ("made-up", script(4, 0, &[&all[..12], &[12, 0x80, 2, 0, 12, 0x46, 2, 0, 4, 0, 5, 0]].concat())),
        ("turned", script(6, 0, &[&[0, 0, 0, 0], &[14, 97][..], &[2, 0, 4, 0]].concat())),
        ("cut", script(5, 0, &[&[0, 7, 3, 200], &[14, 8][..]].concat())),
        ("cut-whole", script(4, 0, &[&all[..12], &[14, 8][..]].concat())),
    ]
}

/// Libraries: the minimal files that `farjump inspect` and sources accept, with an image for one platform and
/// with images for two.
fn libraries() -> Vec<Seed> {
    let (one, mut two) = (sites(), sites());
    // The other is for the CPU level v3.
    two[6] |= 3 << 4;
    let sizes = Sizes { text: 4, rodata: 12, got: 24, data: 20, bss: 28 };
    let image = |bytes| BundleImage { sizes, bytes };
    vec![
        ("one", library("counter", vec![image(&one)])),
        ("two", library("sum", vec![image(&one), image(&two)])),
        (
            "three",
            library("sum", vec![image(&one), BundleImage { sizes: Sizes::default(), bytes: &bitcode() }]),
        ),
    ]
}

/// A shared library with a table of dynamic symbols, and a section and a segment for the bundle; no code
/// (System V gABI, chapters 4 and 5).
fn library(name: &str, images: Vec<BundleImage<'_>>) -> Vec<u8> {
    const ADDRESS: u64 = 0x1000;
    const SECTIONS: [&str; 5] = ["", ".dynsym", ".dynstr", ".farjump", ".shstrtab"];
    let bundle = Bundle { name, images }.encode().expect("the seeds are bundles");

    let routines =
        ["main", "payload_init", "payload_get_max_size"].map(|routine| format!("{name}_{routine}"));
    let symbols: Vec<_> = [SYMBOL.to_owned()].into_iter().chain(routines).collect();
    let (mut names, mut dynsym) = (vec![0], vec![0; 24]);
    for (index, symbol) in symbols.iter().enumerate() {
        // st_name; st_info global: an object, or a function; st_shndx 3; st_value; st_size.
        let size = if index == 0 { bundle.len() as u64 } else { 0 };
        dynsym.extend((names.len() as u32).to_le_bytes());
        dynsym.extend([if index == 0 { 0x11 } else { 0x12 }, 0, 3, 0]);
        dynsym.extend([ADDRESS, size].map(u64::to_le_bytes).concat());
        names.extend([symbol.as_bytes(), b"\0"].concat());
    }
    let (mut titles, mut title_at) = (vec![], vec![]);
    for section in SECTIONS {
        title_at.push(titles.len() as u32);
        titles.extend([section.as_bytes(), b"\0"].concat());
    }

    let mut file = vec![0; 64 + 56];
    let mut bundle_at = 0;
    let mut headers = vec![0; 64];
    // sh_type, sh_flags, sh_addr, sh_link, sh_info, sh_entsize: symbols (their names are section 2), names,
    // bytes, names.
    let sections = [
        (11_u32, 2_u64, 0, 2_u32, 1_u32, 24_u64, &dynsym),
        (3, 2, 0, 0, 0, 0, &names),
        (1, 2, ADDRESS, 0, 0, 0, &bundle),
        (3, 0, 0, 0, 0, 0, &titles),
    ];
    for (index, (kind, flags, address, link, info, entry, bytes)) in sections.into_iter().enumerate() {
        file.resize(file.len().next_multiple_of(8), 0);
        if address != 0 {
            bundle_at = file.len() as u64;
        }
        headers.extend([title_at[index + 1], kind].map(u32::to_le_bytes).concat());
        let words = [flags, address, file.len() as u64, bytes.len() as u64];
        headers.extend(words.map(u64::to_le_bytes).concat());
        headers.extend([link, info].map(u32::to_le_bytes).concat());
        headers.extend([8, entry].map(u64::to_le_bytes).concat());
        file.extend(bytes);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let headers_at = file.len() as u64;
    file.extend(headers);
    // p_type, p_flags; p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align.
    let len = bundle.len() as u64;
    file[64..72].copy_from_slice(&[1_u32, 4].map(u32::to_le_bytes).concat());
    let words = [bundle_at, ADDRESS, ADDRESS, len, len, 8];
    file[72..120].copy_from_slice(&words.map(u64::to_le_bytes).concat());
    // 64 bits, little-endian; a shared library for x86-64; the offsets of its segment and its sections.
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    file[20] = 1;
    file[32] = 64;
    file[40..48].copy_from_slice(&headers_at.to_le_bytes());
    let halves = [64, 56, 1, 64, SECTIONS.len() as u16, SECTIONS.len() as u16 - 1];
    file[52..64].copy_from_slice(&halves.map(u16::to_le_bytes).concat());
    file
}
