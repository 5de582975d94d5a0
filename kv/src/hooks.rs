//! The target's turns in the server's event loop.
//!
//! Functions run only inside an internal command that the hooks call. There time stands still for expiry, and all
//! writes become one transaction of the append-only file and of replicas. A descriptor's callback, which also runs
//! inside busy scripts, only notes that the target was woken. The target stays armed until then, because arming costs
//! other clients time for each link.
//!
//! Where there is an append-only file, the reply to a call that has written is held until the server has written that
//! file. The server does so between the two hooks: before it sleeps, behind the first.

use std::time::{Duration, Instant};

use farjump::Target;

use crate::api::{self, Args, Command, Context, Hooks, context_flags};
use crate::causes::with_causes;
use crate::code_key::KEY;
use crate::functions::{self, CommandInput};
use crate::host::{self, FIRST_CALLS, Host};
use crate::watcher::Watcher;

/// Longest time to stay armed without a look, in microseconds, so that a lost wake delays but never hangs.
const LONGEST_ARMED: u64 = 500_000;
/// Time after which a run stops polling, because clients wait meanwhile.
const MOST_TIME: Duration = Duration::from_micros(25);
/// Maximum number of calls of a link in one poll.
const MOST_CALLS: u64 = 64;
/// Time to linger in a run after the last call. For the rest of the setting, the loop lingers in turns, which serve
/// clients.
const LINGER_INSIDE: Duration = Duration::from_micros(5);
/// Maximum number of turns in a row without a run, in a server that does not sleep, while the links' memory shows no
/// call.
const MOST_SKIPPED: u32 = 15;
/// Time in microseconds after which a run checks more than frames: new links, and links that end. By itself the target
/// checks them after some hundred polls, and clients may make each turn of the loop long.
const TEND_AFTER: u64 = 1000;
/// The sleep of a target without anything due.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Sleeps of at least this time need no timer: the server's loop turns more often by itself.
const LONG_SLEEP: Duration = Duration::from_millis(100);

struct Turn;

/// Makes the server call the hooks.
pub(crate) fn subscribe(context: &Context<'_>) -> bool {
    // Watched writes to hashes cost a little more. In a cluster, so do all writes that add or remove keys.
    let has_seals = host::get().is_some_and(|host| host.code.borrow().has_seals());
    api::subscribe::<Turn>(context) && (!has_seals || api::watch_keys::<Turn>(context))
}

impl Hooks for Turn {
    fn before_sleep(context: &Context<'_>) {
        let Some(host) = host::get() else { return };
        if !host.turns.opened.get() {
            if context.flags() & (context_flags::LOADING | context_flags::ASYNC_LOADING) != 0 {
                return;
            }
            host.open();
            let mut code = host.code.borrow_mut();
            code.want_all();
            code.learn_all(context);
        }
        look_at_code(&host, context);
        if host.target.borrow().is_some() {
            host.drop_calls_of_lost_users();
            before_sleep(&host, context);
            if host.holds_replies() {
                // Replies leave after the next sleep, so that sleep is to end at once.
                host.kick();
            }
        }
    }

    fn after_sleep(context: &Context<'_>) {
        let Some(host) = host::get() else { return };
        host.release_replies();
        if !host.turns.armed.get() && host.target.borrow().is_some() {
            run_if_due(&host, context);
        }
    }

    fn loaded(context: &Context<'_>) {
        let Some(host) = host::get() else { return };
        // No function runs at this time.
        if let Ok(mut code) = host.code.try_borrow_mut() {
            code.learn_all(context);
        }
    }

    fn key_changed(context: &Context<'_>, key: &[u8]) {
        if !key.starts_with(KEY) {
            return;
        }
        let Some(host) = host::get() else { return };
        // Writes of FJ.LOAD and FJ.DELETE do not count here: those commands note them themselves. Nor do writes of
        // loaded code, which has no newer seal.
        if let Ok(mut code) = host.code.try_borrow_mut() {
            code.learn(context, key);
        }
    }

    fn emptied() {
        if let Some(host) = host::get() {
            host.happened.lost();
        }
    }

    fn swapped(first: i32, second: i32) {
        if let Some(host) = host::get() {
            host.happened.swapped(first, second);
        }
    }
}

/// Compares loaded code with the keys of a cluster's node, if that is due.
fn look_at_code(host: &Host, context: &Context<'_>) {
    let (target, code) = (host.target.try_borrow(), host.code.try_borrow_mut());
    if let (Ok(target), Ok(mut code)) = (target, code)
        && let Some(target) = &*target
    {
        code.look(context, target.cpu(), target.config().allow_code.as_deref().unwrap_or_default());
    }
}

fn before_sleep(host: &Host, context: &Context<'_>) {
    let turns = &host.turns;
    let now = api::now();
    if turns.armed.get() && !turns.woken.get() && now.saturating_sub(turns.armed_at.get()) < LONGEST_ARMED {
        return;
    }
    let was_armed = turns.armed.replace(false);
    if was_armed {
        disarm(host);
    }
    match was_armed && turns.due.get().is_some_and(|due| now >= due) {
        true => run(host, context),
        false => run_if_due(host, context),
    }
    if host.spins() {
        return;
    }
    if turns.has_more.get() || lingers(host) {
        return host.kick();
    }
    for _ in 0..2 {
        match arm(host) {
            Ok(Some(longest)) => {
                turns.armed.set(true);
                turns.armed_at.set(now);
                turns.arms.set(turns.arms.get() + 1);
                // Something other than a call is due then: a look at the file of keys, or the time limit of a
                // handshake.
                let due = (longest < LONGEST_SLEEP).then_some(longest);
                turns.due.set(due.map(|longest| now + longest.as_micros() as u64));
                if longest < LONG_SLEEP {
                    nap(host, context, longest);
                }
                return;
            }
            Ok(None) => {
                disarm(host);
                run(host, context);
            }
            Err(problem) => return host.fail(problem),
        }
    }
    // There is work, so the next sleep is to end at once.
    host.kick();
}

/// Runs functions of links if there may be some. For a server that does not sleep, because the internal command takes
/// longer than the rest of its turn.
fn run_if_due(host: &Host, context: &Context<'_>) {
    let turns = &host.turns;
    let may_have = host.target.borrow().as_ref().is_some_and(Target::may_have_frames);
    // A server that spins never turns the links' doorbells off.
    let was_rung = turns.woken.get() && (!host.spins() || is_tending_due(host));
    if may_have || was_rung || turns.has_more.get() || turns.skipped.get() >= MOST_SKIPPED {
        return run(host, context);
    }
    turns.skipped.set(turns.skipped.get() + 1);
    yield_processor(host);
}

/// Returns whether it is time for the target to check more than frames.
fn is_tending_due(host: &Host) -> bool {
    api::now().saturating_sub(host.turns.tended_at.get()) >= TEND_AFTER
}

/// Lets a source run that waits for this processor.
fn yield_processor(host: &Host) {
    if shares_processor(host) {
        std::thread::yield_now();
    }
}

fn shares_processor(host: &Host) -> bool {
    let mut target = host.target.borrow_mut();
    target.as_mut().is_some_and(Target::may_share_processor)
}

/// Returns whether the server is to stay awake for the next call. It does not if a source waits for this processor,
/// whose next call would come only after the lingering.
fn lingers(host: &Host) -> bool {
    let linger = host.linger.get();
    !linger.is_zero()
        && host.turns.last_call.get().is_some_and(|last| last.elapsed() < linger)
        && !shares_processor(host)
}

/// Runs functions of links, inside the internal command.
fn run(host: &Host, context: &Context<'_>) {
    host.turns.woken.set(false);
    host.turns.skipped.set(0);
    host.turns.in_hook.set(true);
    let answer = context.call_to_extend(RunLinks::NAME);
    host.turns.in_hook.set(false);
    if let Some(error) = answer.and_then(|answer| answer.error()) {
        log::error!("functions of links do not run: {error}");
    }
}

/// Runs the functions that links have brought. Only for the hooks.
pub(crate) struct RunLinks;

impl Command for RunLinks {
    const NAME: &'static std::ffi::CStr = c"FJ._RUN";
    const FLAGS: &'static std::ffi::CStr = c"";
    const SUMMARY: &'static std::ffi::CStr = c"Runs the functions that links have brought. Internal.";
    /// The argument gets the names of the functions that ran, so that SLOWLOG and MONITOR show them.
    const ARITY: i32 = 2;

    fn run(context: &Context<'_>, args: &Args<'_>) {
        let host = host::get().filter(|host| host.turns.in_hook.replace(false));
        let Some(host) = host else {
            return context.reply_error("FJ._RUN is for the module itself: call code by FJ.CALL");
        };
        let start = Instant::now();
        let run = host.watcher.get().map(Watcher::run);
        let polled = functions::during(context, CommandInput::default(), || poll(&host));
        drop(run);
        let ran = host.turns.last_run.borrow();
        args.append(context, 1, &ran.shown());
        host.note_time(start, ran.function(), || ran.shown_with_caller());
        drop(ran);
        match polled {
            Some(Ok(())) => context.reply_null(),
            Some(Err(problem)) => {
                host.fail(problem);
                context.reply_error("the target has failed: INFO farjump says why");
            }
            None => context.reply_error("functions run already"),
        }
    }
}

/// Polls the target, and continues for a while after work. Only for the internal command.
///
/// # Errors
/// When the target cannot continue.
fn poll(host: &Host) -> Result<(), String> {
    let mut target = host.target.try_borrow_mut().map_err(|_| "the target is in use".to_owned())?;
    let Some(target) = &mut *target else { return Ok(()) };
    let linger = host.linger.get().min(LINGER_INSIDE);
    let turns = &host.turns;
    let start = Instant::now();
    let (mut now, mut last) = (start, None);
    let mut has_more = true;
    let mut calls = turns.last_run.borrow_mut();
    calls.begin();
    if is_tending_due(host) {
        turns.tended_at.set(api::now());
        target.tend();
    }
    while now - start < MOST_TIME {
        let ran = target.poll().map_err(|error| with_causes(&error))?;
        let before = std::mem::replace(&mut now, Instant::now());
        if ran != 0 {
            last = Some(now);
            calls.add(target, ran, now - before);
            turns.batch.set(next_batch(turns.batch.get(), ran, now - before));
            target.set_batch(turns.batch.get());
        } else if last.is_none_or(|last| now - last >= linger) || target.may_share_processor() {
            has_more = false;
            break;
        } else {
            std::hint::spin_loop();
        }
    }
    turns.has_more.set(has_more);
    if last.is_some() {
        turns.last_call.set(last);
    } else if target.may_share_processor() {
        // The server does not sleep: it spins, or a reply has no credit yet.
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns the maximum number of calls of a link in the next poll, if the last one ran `ran` calls in the time `took`.
/// It is as many as run in time, so that clients need not wait for a queue of long ones.
fn next_batch(batch: usize, ran: usize, took: Duration) -> usize {
    let each = (took.as_nanos() as u64 / ran as u64).max(1);
    let fit = (MOST_TIME.as_nanos() as u64 / each).clamp(1, MOST_CALLS) as usize;
    fit.min(2 * batch.max(FIRST_CALLS / 2))
}

fn arm(host: &Host) -> Result<Option<Duration>, String> {
    let mut target = host.target.try_borrow_mut().map_err(|_| "the target is in use".to_owned())?;
    let Some(target) = &mut *target else { return Ok(Some(LONG_SLEEP)) };
    target.arm().map_err(|error| with_causes(&error))
}

fn disarm(host: &Host) {
    if let Ok(mut target) = host.target.try_borrow_mut()
        && let Some(target) = &mut *target
    {
        target.disarm();
    }
}

/// Ends the sleep after `longest`, for transports without a doorbell.
fn nap(host: &Host, context: &Context<'_>, longest: Duration) {
    if host.turns.has_timer.replace(true) {
        return;
    }
    let milliseconds = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX).max(1);
    api::set_timer(context, milliseconds, || {
        if let Some(host) = host::get() {
            host.turns.has_timer.set(false);
            host.turns.woken.set(true);
        }
    });
    // Redis 7.0 has already computed the length of this sleep.
    host.kick();
}
