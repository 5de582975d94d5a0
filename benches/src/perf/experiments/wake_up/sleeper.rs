//! The sleeping process: it sleeps until it is woken, and writes when it has run.
//!
//! It sleeps in the first thread; another one waits for the source's process to announce the end (`orders`).

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

#[cfg(feature = "ucx")]
use crate::perf::experiments::baselines::ucx;
use crate::perf::machine::clock;
use crate::perf::process::child_protocol::{EndpointSpec, Offer, Set, Talk};
use crate::perf::process::liveness::{CONNECTING, LONGEST_SLEEP};
use crate::perf::process::orders::until_ended;
use crate::perf::process::place;
use crate::perf::process::shared_memory::Memory;
use crate::perf::report::metric::Against;
use crate::program::failure::Failure;

/// Sends its offer, then sleeps and wakes until the order to end. Returns true after it; otherwise the
/// source's process is gone.
pub(crate) fn sleep(
    sleeper: &EndpointSpec,
    set: &Set,
    talk: &mut Talk,
    memory: &Memory,
) -> Result<bool, Failure> {
    match sleeper {
        EndpointSpec::Farjump { transport, socket, sources } => {
            let builder = place::target(&set.folder, &set.host, socket, transport)?
                .mailbox_size(set.ring)
                .handshake_timeout(CONNECTING)
                .max_sources(*sources)
                .export("perf_ran", perf_ran as extern "C" fn(_));
            let stamp: *const AtomicU64 = memory.stamp();
            // SAFETY: injected functions hand the argument to `perf_ran` alone, and the mapping outlives the
            // target.
            let mut target = unsafe { builder.args_raw(stamp.cast_mut().cast()) }.build()?;
            place::announce(&set.folder, socket, transport, &target)?;
            let stopper = target.stopper();
            talk.reply(Ok::<_, String>(Offer::default()))?;
            sleep_until_ended(talk, || stopper.stop(), || Ok(target.run()?))
        }
        EndpointSpec::Baseline(Against::Futex) => {
            let over = AtomicBool::new(false);
            talk.reply(Ok::<_, String>(Offer::default()))?;
            let stop = || {
                over.store(true, Ordering::Relaxed);
                wake(memory);
            };
            sleep_until_ended(talk, stop, || sleep_on_futex(memory, &over))
        }
        #[cfg(feature = "ucx")]
        EndpointSpec::Baseline(Against::UcxWait) => {
            let mut worker = match ucx::Waiting::create(memory) {
                Ok(worker) => worker,
                Err(failure) => return missing(talk, failure.to_string()),
            };
            talk.reply(Ok::<_, String>(worker.offer()?))?;
            let stopper = worker.stopper();
            sleep_until_ended(talk, || stopper.stop(), || worker.run())
        }
        #[cfg(not(feature = "ucx"))]
        EndpointSpec::Baseline(Against::UcxWait) => missing(talk, crate::perf::not_built_with("ucx")),
        _ => Err(Failure::new("the second process received an order to sleep for a case that polls")),
    }
}

/// Reports why the sleeper is missing, and waits for the end.
fn missing(talk: &mut Talk, why: String) -> Result<bool, Failure> {
    talk.reply(Err::<Offer, _>(why))?;
    sleep_until_ended(talk, || {}, || Ok(()))
}

/// Sleeps in this thread until the source's process announces the end, and `stop` is called.
fn sleep_until_ended(
    talk: &mut Talk,
    stop: impl FnOnce() + Send,
    sleep: impl FnOnce() -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let refuse = |_, _: &mut Talk| Err(Failure::new("the second process received an order while it slept"));
    until_ended(talk, refuse, stop, sleep)
}

/// The last call of the injected function: it has run.
extern "C" fn perf_ran(stamp: *mut c_void) {
    // SAFETY: `stamp` is the target's argument, a word whose mapping outlives the target.
    let stamp = unsafe { &*stamp.cast::<AtomicU64>() };
    stamp.store(clock::now(), Ordering::Release);
}

fn sleep_on_futex(memory: &Memory, over: &AtomicBool) -> Result<(), Failure> {
    let mut seen = 0;
    let longest = Timespec { tv_sec: LONGEST_SLEEP.as_secs() as i64, tv_nsec: 0 };
    while !over.load(Ordering::Relaxed) {
        match futex::wait(memory.bell(), futex::Flags::empty(), seen, Some(&longest)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(errno) => return Err(Failure::new(format!("a futex cannot be waited for: {errno}"))),
        }
        let now = memory.bell().load(Ordering::Acquire);
        if now != seen {
            seen = now;
            memory.stamp().store(clock::now(), Ordering::Release);
        }
    }
    Ok(())
}

/// Wakes the sleeper on the futex.
pub(super) fn wake(memory: &Memory) {
    memory.bell().fetch_add(1, Ordering::Release);
    // Only invalid addresses cause failures.
    let _ = futex::wake(memory.bell(), futex::Flags::empty(), 1);
}
