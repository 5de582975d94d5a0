//! Memory for a function's write in a server that evicts.
//!
//! The server evicts before a client's command, and not before a command that a module runs. This module chooses
//! victims as the server does: the best of a few random keys. It deletes them by DEL, so that the deletion reaches
//! replicas and the append-only file. UNLINK would free large values later, in a thread, but the memory is needed at
//! once.

use super::{Kv, count};
use crate::api::{self, CallFlags, Context, Rank, Str};
use crate::code_key::KEY;

/// Longest time to evict for one write, in microseconds.
const MOST_TIME: u64 = 1000;
/// Most keys that one write evicts.
const MOST_KEYS: usize = 1024;
/// The excess over the limit, as a fraction of it, at which a server still takes a write if there was no time to evict
/// enough. The server lets commands of clients run while it has not finished evicting.
const MOST_OVER: f32 = 0.25;
/// Most keys in one DEL. The first DEL has one key, and each has twice as many as the one before. Until the turn ends,
/// a command that goes to replicas may take more memory than one small key.
const MOST_TOGETHER: usize = 16;
/// Number of random keys to try for each sample. By some policies only keys with an expiry may be evicted.
const TRIES: usize = 16;
/// Most samples, because the server's setting may have any value.
const MOST_SAMPLES: usize = 64;

/// The server's policy of eviction, for one turn.
#[derive(Clone)]
pub(super) struct Policy {
    rank: Rank,
    /// Whether only keys with an expiry go.
    only_volatile: bool,
    samples: usize,
}

impl Policy {
    /// Returns the server's policy. `None` if the server does not report it, or evicts nothing.
    fn of(context: &Context<'_>) -> Option<Policy> {
        let answer =
            context.call(c"config", &CallFlags::QUERY, &[Str::new(b"get"), Str::new(b"maxmemory-*")])?;
        let answer = answer.root();
        let words: Vec<&[u8]> =
            (0..answer.len()).filter_map(|index| Some(answer.element(index)?.bytes())).collect();
        let value = |name: &[u8]| {
            let pair = words.chunks_exact(2).find(|pair| pair[0] == name)?;
            std::str::from_utf8(pair[1]).ok()
        };
        let (keys, order) = value(b"maxmemory-policy")?.split_once('-')?;
        let rank = match order {
            "lru" => Rank::Idle,
            "lfu" => Rank::Frequency,
            "ttl" => Rank::Expiry,
            "random" => Rank::None,
            _ => return None,
        };
        let samples = value(b"maxmemory-samples").and_then(|samples| samples.parse().ok()).unwrap_or(5);
        let samples = if rank == Rank::None { 1 } else { samples };
        Some(Policy { rank, only_volatile: keys == "volatile", samples: samples.clamp(1, MOST_SAMPLES) })
    }

    /// Returns the numbers of the databases with keys that may be evicted.
    fn databases(&self, context: &Context<'_>) -> Vec<i32> {
        let answer = context.call(c"info", &CallFlags::QUERY, &[Str::new(b"keyspace")]);
        let Some(answer) = answer.filter(|answer| answer.error().is_none()) else {
            return vec![context.database()];
        };
        let text = String::from_utf8_lossy(answer.root().bytes());
        let with_keys = text.lines().filter_map(|line| {
            let (number, rest) = line.strip_prefix("db")?.split_once(':')?;
            let has_some = !self.only_volatile || !rest.split(',').any(|field| field.trim() == "expires=0");
            number.parse().ok().filter(|_| has_some)
        });
        with_keys.collect()
    }
}

impl Kv {
    /// Evicts until the server is below its limit of memory, or some time has passed. Returns whether a write may
    /// proceed. The keys named by `words`, and the keys of loaded code, stay. The caller has checked that the server
    /// may write.
    pub(super) fn make_space(&self, words: &[Str]) -> bool {
        // Keys of other slots cannot be evicted here. The server itself has evicted before such a command.
        if self.state.borrow().slot.is_some() {
            return false;
        }
        // A cursor's key has no reference to its value.
        self.lent.close_cursors();
        let known = self.state.borrow().eviction.clone();
        self.lent.with(|context| {
            if context.flags() & api::context_flags::EVICT == 0 {
                return false;
            }
            let policy = known.or_else(|| Policy::of(context));
            let has_space = policy.as_ref().is_some_and(|policy| make_space(context, policy, words));
            self.state.borrow_mut().eviction = policy;
            has_space
        }) == Some(true)
    }
}

fn make_space(context: &Context<'_>, policy: &Policy, words: &[Str]) -> bool {
    let end = api::now() + MOST_TIME;
    let databases = policy.databases(context);
    let (mut evicted, mut together) = (0, 1);
    // At least once: the system may have let another process run until this point.
    loop {
        let before = evicted;
        for &database in &databases {
            let gone = context.in_database(database, || evict(context, policy, words, together, end));
            evicted += gone.unwrap_or(0);
            if context.flags() & api::context_flags::OOM == 0 {
                return true;
            }
        }
        if evicted == before {
            return false;
        }
        if evicted >= MOST_KEYS || api::now() >= end {
            break;
        }
        together = (2 * together).min(MOST_TOGETHER);
    }
    api::used_memory() < 1.0 + MOST_OVER
}

/// Evicts at most `most` keys of the selected database. Returns their number.
fn evict(context: &Context<'_>, policy: &Policy, words: &[Str], most: usize, end: u64) -> usize {
    let mut victims: Vec<Str> = Vec::new();
    for _ in 0..most {
        match victim(context, policy, words, &victims, end) {
            Some(victim) => victims.push(victim),
            None => break,
        }
    }
    if victims.is_empty() {
        return 0;
    }
    let answer = context.call(c"del", &CallFlags::WRITE, &victims);
    // With too few replicas, for example, the server deletes nothing.
    if answer.is_none_or(|answer| answer.error().is_some()) {
        return 0;
    }
    victims.iter().for_each(|victim| context.notify_evicted(victim));
    count(|figures| figures.evicted += victims.len() as u64);
    victims.len()
}

/// The best victim among some random keys.
fn victim(context: &Context<'_>, policy: &Policy, words: &[Str], taken: &[Str], end: u64) -> Option<Str> {
    let mut best: Option<(i64, Str)> = None;
    let mut seen = 0;
    for _ in 0..TRIES * policy.samples {
        if seen == policy.samples || seen != 0 && api::now() >= end {
            break;
        }
        let key = context.random_key()?;
        let name = key.bytes();
        if name.starts_with(KEY) || words.iter().chain(taken).any(|other| other.bytes() == name) {
            continue;
        }
        let Some(rank) = context.rank(&key, policy.rank, policy.only_volatile) else { continue };
        seen += 1;
        if best.as_ref().is_none_or(|(highest, _)| rank > *highest) {
            best = Some((rank, key));
        }
    }
    best.map(|(_, key)| key)
}
