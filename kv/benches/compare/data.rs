//! The data that servers have.

use crate::client::request;
use crate::protobuf::varint;

/// Number of vectors, and of the values of each.
pub(crate) const VECTORS: usize = 10_000;
const DIMS: usize = 128;
/// Number of keys of the chase.
pub(crate) const LINKS: usize = 1_000;
/// Number of hashes to filter.
pub(crate) const HASHES: usize = 2_000;

/// Arguments of the sample `filter_aggregate`.
pub(crate) const FILTER: [&[u8]; 5] = [b"item:", b"price", b"100", b"199", b"stock"];

/// Number of the members, fields and entries that scripts read.
const MANY: usize = 10_000;
/// Milliseconds of a span that has 100 entries.
pub(crate) const SPAN: u64 = 60_000;
/// The field of the messages that is added up.
pub(crate) const SUMMED: &[u8] = b"3";

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn vector(&mut self) -> Vec<u8> {
        (0..DIMS).flat_map(|_| (self.next() as f32 / (1_u64 << 31) as f32).to_le_bytes()).collect()
    }
}

/// The query.
pub(crate) fn query() -> Vec<u8> {
    Numbers(7).vector()
}

/// The name of the key with a vector of its own.
pub(crate) fn vector_key(index: usize) -> String {
    format!("vector:{index}")
}

/// The name of the first key of the chase.
pub(crate) const FIRST: &[u8] = b"chase:0";

/// Bits of the Bloom filter of the sample `bloom`.
const BITS: u32 = 65_536;
/// An item in that filter.
pub(crate) const ITEM: &[u8] = b"item 77";

/// The bits that an item sets, as the sample computes them.
pub(crate) fn bloom_bits(item: &[u8]) -> [u32; 7] {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = item.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = hash ^ (hash >> 33);
    let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
    std::array::from_fn(|index| first.wrapping_add(step.wrapping_mul(index as u32)) % BITS)
}

/// A filter with 1,000 items.
fn bloom() -> Vec<u8> {
    let mut filter = vec![0; BITS as usize / 8];
    for bit in (0..1000).flat_map(|item| bloom_bits(format!("item {item}").as_bytes())) {
        filter[bit as usize / 8] |= 0x80_u8 >> (bit % 8);
    }
    filter
}

/// Messages of five fields, each with its length in front. The third is added up.
fn messages() -> Vec<u8> {
    let message = |index: u64| {
        let varints = [1, 3, 4, 5].map(|field| [varint(field << 3), varint(index * field)].concat());
        let text = [varint(2 << 3 | 2), varint(10), vec![b'x'; 10]].concat();
        let message = [varints.concat(), text].concat();
        [varint(message.len() as u64), message].concat()
    };
    (0..1000).flat_map(message).collect()
}

/// Commands that write all data.
pub(crate) fn commands() -> impl Iterator<Item = Vec<u8>> {
    let mut numbers = Numbers(1);
    let vectors: Vec<Vec<u8>> = (0..VECTORS).map(|_| numbers.vector()).collect();
    let all = request(&[b"SET", b"vectors", &vectors.concat()]);
    let single = vectors.into_iter().enumerate();
    let single = single.map(|(index, vector)| request(&[b"SET", vector_key(index).as_bytes(), &vector]));
    // Keys in an order that is not that of their names: 377 and the number of keys have no common factor.
    let chase = (0..LINKS).map(|index| {
        let name = |index: usize| match index {
            LINKS => "chase:end".to_owned(),
            index => format!("chase:{}", index * 377 % LINKS),
        };
        request(&[b"SET", name(index).as_bytes(), name(index + 1).as_bytes()])
    });
    let hashes = (0..HASHES).map(|index| {
        let (name, price, stock) = (format!("item:{index}"), index.to_string(), (2 * index).to_string());
        request(&[b"HSET", name.as_bytes(), b"price", price.as_bytes(), b"stock", stock.as_bytes()])
    });
    let user =
        |user: usize| format!("{{\"id\": {user}, \"name\": \"user {user}\", \"tags\": [\"a\", \"b\"]}}");
    let users: Vec<String> = (0..100).map(user).collect();
    let document = format!("{{\"version\": 1, \"users\": [{}]}}", users.join(", "));
    let scored = (0..MANY).flat_map(|index| {
        let (name, score) = (format!("m{index}"), (index * 377 % MANY).to_string());
        let team: &[u8] = if index % 10 == 0 { b"red" } else { b"blue" };
        let (time, value) =
            (format!("{}-0", 1_000_000 + index as u64 * SPAN / 100), format!("{}.5", index % 77));
        [
            request(&[b"ZADD", b"scores", score.as_bytes(), name.as_bytes()]),
            request(&[b"HSET", b"teams", name.as_bytes(), team]),
            request(&[b"HSET", b"numbers", name.as_bytes(), score.as_bytes()]),
            request(&[b"XADD", b"measured", time.as_bytes(), b"value", value.as_bytes()]),
        ]
    });
    let others = [
        request(&[b"SET", b"messages", &messages()]),
        request(&[b"SET", b"query", &query()]),
        request(&[b"SET", b"document", document.as_bytes()]),
        request(&[b"SET", b"bloom", &bloom()]),
        all,
    ];
    others.into_iter().chain(single).chain(chase).chain(hashes).chain(scored)
}
