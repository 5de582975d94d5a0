//! A process that is one shard: its target waits for messages in the first thread, and another thread obeys orders.

use std::sync::atomic::{AtomicU64, Ordering};

use farjump::WaitPolicy;

use super::injected::{Refused, Variant};
use super::message::{Place, check_lost};
use super::table::Table;
use super::wire;
use crate::perf::process::child_protocol::{Order, Set, ShardSpec, Talk};
use crate::perf::process::orders::until_ended;
use crate::program::failure::Failure;

/// Turns for which an idle shard yields the processor before it sleeps, for each shard there. A message that goes
/// round among them is seldom away from one for longer.
const YIELDS: u32 = 16;

/// Messages that this process has handled.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Serves messages until the order to end. Returns true after it; otherwise the client's process is gone.
///
/// # Errors
/// The target cannot be made, or fails; a message was refused or lost.
pub(in crate::perf) fn serve_shard(spec: &ShardSpec, set: &Set, talk: &mut Talk) -> Result<bool, Failure> {
    let ShardSpec { shard, shards, log2, .. } = *spec;
    let variant = Variant::cached(&spec.transport, &set.folder, set.ring, spec.contestant);
    let words = Table::new(shards, log2).into_part(shard);
    let place = Place::over(&words, shard, shards);
    let refused = Refused::default();
    let builder = variant.builder(shards, shard, &refused, count_and_wait)?.wait_policy(wait_policy(shards));
    // SAFETY: `chase` reads the place on this thread, and the target is dropped before the place and its words.
    let mut target = unsafe { builder.args_raw(place.as_args()) }.build()?;
    let stopper = target.stopper();
    talk.reply(())?;
    let obey = |order, talk: &mut Talk| match order {
        Order::Wire(latency) => {
            wire::set(latency);
            talk.reply(())
        }
        Order::Handled => {
            refused.check()?;
            check_lost()?;
            talk.reply(HANDLED.load(Ordering::Relaxed))
        }
        _ => Err(Failure::new("a shard received an order for another process")),
    };
    until_ended(talk, obey, || stopper.stop(), || Ok(target.run()?))
}

/// Returns the waiting of each of so many targets on one processor. A target that spins would keep the next one from
/// running. One that sleeps at once would do so for every message, with system calls for each of its sources.
fn wait_policy(shards: usize) -> WaitPolicy {
    WaitPolicy { spins: 0, pauses: 0, events: 0, yields: YIELDS * shards as u32 }
}

/// `perf_wire_wait`, which `chase` calls first for each message.
extern "C" fn count_and_wait(sent: u64) {
    // Counts before the message continues, so that the count has each message of a chase that has ended.
    HANDLED.fetch_add(1, Ordering::Relaxed);
    wire::wait(sent);
}
