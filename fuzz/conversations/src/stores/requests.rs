//! Requests to a store as bytes, and its replies (`docs/reference/protocol.md`, `docs/guide/handles-streams.md`).

use farjump_fuzz::{fields, word};

/// The key of an object.
pub(super) type Key = [u8; 16];

/// First bytes of replies.
pub(super) const DONE: u8 = 0;
pub(super) const GONE: u8 = 1;
pub(super) const FULL: u8 = 4;
pub(super) const WAIT: u8 = 64;
pub(super) const REFUSED: u8 = 65;
/// Kinds of entries: one with a handle, and one that a publisher has ended.
pub(super) const ITEM: u8 = 0;
pub(super) const PUBLISHER_GONE: u8 = 1;

pub(super) fn put(contents: &[u8]) -> Vec<u8> {
    fields!([1], word(0), [0; 16], [0], contents)
}

pub(super) fn allocate(len: u64) -> Vec<u8> {
    fields!([2], word(len), [0])
}

pub(super) fn commit(number: u64) -> Vec<u8> {
    fields!([4], word(number), word(0), [0; 16])
}

pub(super) fn claim(number: u64, key: &Key) -> Vec<u8> {
    fields!([5, 0, 0], word(number), key)
}

/// This request has no reply.
pub(super) fn release(claim: u64) -> Vec<u8> {
    fields!([6, 1, 0], word(claim))
}

pub(super) fn evict(number: u64, key: &Key) -> Vec<u8> {
    fields!([8], word(number), key)
}

pub(super) fn lease(number: u64, key: &Key, milliseconds: u64) -> Vec<u8> {
    fields!([11], word(number), key, word(milliseconds))
}

/// Opens a topic to publish there. The choices are its capacity, the entries that it keeps, and the subscribers that
/// it waits for.
pub(super) fn open(topic: &str, choices: &[u32; 3], overflow: u8) -> Vec<u8> {
    let [capacity, keep, awaited] = choices.map(u32::to_le_bytes);
    fields!([64, topic.len() as u8], topic, capacity, keep, awaited, [overflow])
}

pub(super) fn publish(publisher: u64, is_owned: bool, handle: &[u8]) -> Vec<u8> {
    fields!([65], word(publisher), [is_owned.into()], handle)
}

pub(super) fn finish(publisher: u64) -> Vec<u8> {
    fields!([66], word(publisher), [1])
}

pub(super) fn subscribe(topic: &str, publishers: u32) -> Vec<u8> {
    fields!([67, topic.len() as u8], topic, [1], publishers.to_le_bytes())
}

/// Requests the next entry, from this number on.
pub(super) fn next(subscriber: u64, from: u64) -> Vec<u8> {
    fields!([68], word(subscriber), [0, 0], word(from))
}

pub(super) fn unsubscribe(subscriber: u64) -> Vec<u8> {
    fields!([70], word(subscriber), word(u64::MAX))
}

pub(super) fn discard(topic: &str) -> Vec<u8> {
    fields!([71, topic.len() as u8], topic)
}

/// An encoded handle without addresses.
pub(super) fn handle(epoch: u64, number: u64, len: u64, key: &Key) -> Vec<u8> {
    fields!(b"FJH\x01", word(epoch), word(number), word(len), key, [0, 0])
}

/// The key in an encoded handle.
pub(super) fn key_in(handle: &[u8]) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&handle[28..44]);
    key
}

/// Reads the fields of a reply.
#[derive(Clone, Copy)]
pub(super) struct Reply<'a>(pub(super) &'a [u8]);

impl Reply<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("the store's reply is whole");
        self.0 = rest;
        *taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(super) fn key(&mut self) -> Key {
        self.array()
    }
}
