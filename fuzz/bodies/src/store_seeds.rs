//! The seeds for stores of objects: requests, handles, and replies (`docs/reference/protocol.md`, `docs/guide/handles-streams.md`).

use crate::objects::{CREATES, ENDS, EPOCH, HANDLE_KEY, KEY, PANICS, RESOLVES, RETURNS};
use crate::replies::{HONEST, MAPPED};
use crate::{fields, word};

/// A file of the corpus: its name, and its bytes.
pub(super) type Seed = (&'static str, Vec<u8>);

/// The number of the first object that a source makes: the body makes one before.
const FIRST: u64 = 2;

fn half(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn text(text: &str) -> Vec<u8> {
    fields!([text.len() as u8], text)
}

/// An input of the body `objects`.
fn steps(choices: u8, steps: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut input = vec![choices];
    for (actor, bytes) in steps {
        input.push(*actor);
        input.extend((bytes.len() as u16).to_le_bytes());
        input.extend(bytes);
    }
    input
}

/// A request about one object: operation, number, key.
fn about(op: u8, number: u64) -> Vec<u8> {
    fields!([op], word(number), KEY)
}

fn put(contents: &[u8]) -> Vec<u8> {
    fields!([1], word(0), [0; 16], text("f32"), contents)
}

fn allocate(len: u64) -> Vec<u8> {
    fields!([2], word(len), text(""))
}

fn write(number: u64, at: u64, contents: &[u8]) -> Vec<u8> {
    fields!([3], word(number), word(at), contents)
}

/// Commits an object. If `reserved` is not 0, the object takes this reserved number.
fn commit(number: u64, reserved: u64) -> Vec<u8> {
    fields!([4], word(number), word(reserved), KEY)
}

/// Claims an object, and releases another claim.
fn claim(op: u8, number: u64, released: u64) -> Vec<u8> {
    fields!([op, 1, 0], word(released), word(number), KEY)
}

fn read(claim: u64, at: u64, len: u64) -> Vec<u8> {
    fields!([7], word(claim), word(at), word(len))
}

/// A handle of the store that the body makes.
fn of_store(number: u64, len: u64) -> Vec<u8> {
    fields!(b"FJH\x01", EPOCH, word(number), word(len), HANDLE_KEY, text("f32"), [0])
}

/// Requests: all about objects; a full store with a file; reserved numbers; functions beside sources; topics.
pub(super) fn objects() -> Vec<Seed> {
    let second = FIRST + 1;
    let all = steps(
        0,
        &[
            (0, fields!([0, 1])),
            (0, put(&[1; 100])),
            (1, allocate(3000)),
            (1, write(second, 0, &[2; 2000])),
            (1, write(second, 2000, &[3; 1000])),
            (1, commit(second, 0)),
            (0, claim(5, FIRST, 0)),
            (2, claim(13, second, 9)),
            (2, read(second, 100, 2900)),
            (0, read(FIRST, 0, 100)),
            (0, about(9, FIRST)),
            (0, fields!(about(11, second), word(60_000))),
            (0, fields!(about(12, second), word(1))),
            (0, fields!(about(12, second), word(u64::MAX))),
            (0, about(8, FIRST)),
            (0, fields!([6, 2, 0], word(FIRST), word(second))),
            (2, read(second, 0, 10)),
            (ENDS, vec![2]),
            (3, allocate(500)),
            (3, about(8, second + 1)),
        ],
    );
    let large = |number: u64, source: u8| {
        [(source, allocate(100_000)), (source, write(number, 0, &[5; 100])), (source, commit(number, 0))]
    };
    let mut spilled: Vec<_> = (0..4).flat_map(|index| large(FIRST + index, index as u8)).collect();
    spilled.extend((0..4).map(|index| (0, claim(5, FIRST + index, FIRST + index.saturating_sub(1)))));
    let reserved = steps(
        0,
        &[
            (0, fields!([10], text("later"))),
            (1, claim(5, FIRST, 0)),
            (0, fields!([1], word(FIRST), KEY, text(""), b"contents")),
            (1, claim(5, FIRST, 0)),
            (0, allocate(64)),
            (0, commit(FIRST + 2, FIRST)),
            (1, claim(5, FIRST, FIRST + 1)),
            (0, about(8, FIRST)),
        ],
    );
    let calls = steps(
        0,
        &[
            (0, put(&[6; 200])),
            (RESOLVES, of_store(FIRST, 200)),
            (CREATES, vec![1, 0]),
            (0, about(8, FIRST)),
            (RETURNS, vec![]),
            (CREATES, vec![100]),
            (RESOLVES, of_store(1, 38)),
            (PANICS, vec![]),
        ],
    );
    vec![
        ("all", all),
        ("spilled", steps(1, &spilled)),
        ("reserved", reserved),
        ("calls", calls),
        ("topics", topics()),
        ("full-topic", full_topic()),
    ]
}

/// Two publishers and two subscribers of a topic, and the entries that they pass.
fn topics() -> Vec<u8> {
    let open = |overflow: u8| fields!([64], text("topic"), half(2), half(1), half(1), [overflow]);
    let publish =
        |id: u64, is_owned: u8, number: u64| fields!([65], word(id), [is_owned], of_store(number, 10));
    let next =
        |id: u64, released: u64, from: u64| fields!([68], word(id), [1, 0], word(released), word(from));
    // The topic, publishers and subscribers have their numbers in the order in which they come.
    let mut all = vec![
        (0, open(1)),
        (1, open(1)),
        (2, fields!([67], text("topic"), [1], half(1))),
        (3, fields!([67], text("topic"), [0], half(0))),
        (0, put(&[7; 10])),
        (0, put(&[8; 10])),
    ];
    all.extend((1..6).flat_map(|id| [(0, publish(id, 1, FIRST)), (1, publish(id, 0, FIRST + 1))]));
    all.extend((1..6).flat_map(|id| [(2, next(id, 0, 0)), (3, next(id, 1, 1)), (2, next(id, 1, 2))]));
    all.extend((1..6).map(|id| (2, fields!([69], word(id), [1, 0], word(1)))));
    all.extend((1..6).map(|id| (0, fields!([66], word(id), [1]))));
    all.push((ENDS, vec![1]));
    all.extend((1..6).flat_map(|id| [(2, next(id, 2, 3)), (3, fields!([70], word(id), word(2)))]));
    all.extend([(0, fields!([71], text("topic"))), (ENDS, vec![2]), (0, fields!([71], text("topic")))]);
    steps(0, &all)
}

/// A topic that is full: its publisher waits for the subscriber.
fn full_topic() -> Vec<u8> {
    let open = fields!([64], text("full"), half(2), half(0), half(1), [0]);
    let subscribe = fields!([67], text("full"), [1], half(1));
    let mut all = vec![(0, open), (1, subscribe), (0, put(&[7; 10]))];
    all.extend((1..4).flat_map(|id| [0; 3].map(|_| (0, fields!([65], word(id), [0], of_store(FIRST, 10))))));
    steps(0, &all)
}

/// Handles: one without an address, and one with every part that a handle can have.
pub(super) fn handles() -> Vec<Seed> {
    let head = fields!(b"FJH\x01", word(0x1122_3344_5566_7788), word(7), word(4096), [0xab; 16]);
    let address = |text: &str| fields!((text.len() as u16).to_le_bytes(), text);
    let several = ["unix:/run/a.sock", "tcp:10.0.0.1:7", "unix:@name"].map(address).concat();
    vec![
        ("none", fields!(head, text(""), [0])),
        ("several", fields!(head, text("u64"), [3], several)),
        ("longest", fields!(head, text(&"t".repeat(255)), [1], address(&"a".repeat(1024)))),
    ]
}

/// An input of the body `replies`. A reply that is `None` is the store's own.
fn replies(choices: u8, replies: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut input = vec![choices];
    for reply in replies {
        match reply {
            Some(bytes) => {
                input.extend((bytes.len() as u16).to_le_bytes());
                input.extend(bytes);
            }
            None => input.extend(HONEST.to_le_bytes()),
        }
    }
    input
}

/// Replies: honest ones alone; made up ones, for each request; refusals; and replies that require a wait. Over mapped
/// memory and over frames.
pub(super) fn replies_of_owners() -> Vec<Seed> {
    let hello = fields!([0, 1], word(5), word(256 << 10), [1, 4, 0], b"tcp:");
    let claim = |offset: u64, len: u64| Some(fields!([0], word(3), word(offset), word(len)));
    let made = Some(fields!([0], word(3), [1; 16], word(4096)));
    let full = fields!([4], word(1), word(2), word(3), word(4));
    let made_up: Vec<_> = [
        vec![Some(hello.clone())],
        vec![claim(0, 100), Some(fields!([0], [7; 60])), Some(fields!([0], [7; 40]))],
        vec![made.clone(), claim(64, 200), Some(fields!([0], [8; 200]))],
        vec![made.clone(), Some(vec![0]), claim(1 << 40, 1 << 40), Some(vec![0])],
        vec![made.clone(), Some(fields!([3], word(4096))), made.clone(), Some(vec![0]), claim(0, 0)],
        vec![Some(vec![0, 1]), Some(vec![0]), Some(fields!([0], word(2))), Some(vec![0, 1])],
        vec![Some(fields!([0], word(1))), Some(fields!([0], word(4))), made, Some(vec![0]), Some(vec![0])],
        // An item, and the end.
        vec![
            Some(fields!([0], word(1), word(0))),
            Some(fields!([0, 0], word(1), word(1), word(1), [1], of_store(1, 10))),
            claim(0, 10),
            Some(fields!([0], [9; 10])),
            Some(fields!([0, 1], word(0), word(2), word(1), word(3))),
            Some(fields!([0, 2], word(0))),
            Some(vec![0, 1]),
        ],
    ]
    .concat();
    let mut refusals = vec![None];
    refusals.extend([1, 2, 5].map(|status| Some(vec![status])));
    refusals.push(Some(full));
    refusals.extend((0..9).map(|code| Some(fields!([65, code], half(2), half(3)))));
    let waits = [None, None, None, None, None, None, None, None, None, None, None, None, None, None]
        .into_iter()
        .chain([Some(fields!([64], word(64), half(0))), Some(fields!([3], word(128)))])
        .collect::<Vec<_>>();
    let honest = vec![None; 40];
    vec![
        ("honest-mapped", replies(MAPPED, &honest)),
        ("honest-frames", replies(0, &honest)),
        ("mapped", replies(MAPPED, &made_up)),
        ("frames", replies(0, &made_up)),
        ("refusals", replies(0, &refusals)),
        ("waits", replies(MAPPED, &waits)),
    ]
}
