//! The target's turns in the server's event loop.
//!
//! Functions run only inside an internal command that the hooks call: there time stands still for expiry, and what is
//! written becomes one transaction of the append-only file and of replicas. A descriptor's callback, which also runs inside
//! busy scripts, only notes that the target was rung. The target stays armed until then: to arm it costs other clients
//! time, for each link.
//!
//! Where there is an append-only file, the reply to a call that has written is held until the server has written that file,
//! which it does between the two hooks: before it sleeps, behind the first.

use std::time::{Duration, Instant};

use crate::api::{self, CallFlags, Command, Context, Hooks, context_flags};
use crate::commands::RunLinks;
use crate::host::{self, Host};

/// Longest time to stay armed without a look, in microseconds: a lost wake delays and never hangs.
const LONGEST_ARMED: u64 = 500_000;
/// Polls in one run.
const MOST_POLLS: usize = 16;
/// Time after which a run polls no more: clients wait meanwhile. A poll takes up to 64 calls of each link.
const MOST_TIME: Duration = Duration::from_micros(100);
/// Sleeps of at least this take no timer: the server's loop turns more often by itself.
const LONG_SLEEP: Duration = Duration::from_millis(100);
/// Longest lingering in a run, as a multiple of the setting.
const MOST_LINGERS: u32 = 8;

struct Turn;

/// Has the server call the hooks.
pub(crate) fn subscribe(context: &Context<'_>) -> bool {
    api::subscribe::<Turn>(context)
}

impl Hooks for Turn {
    fn before_sleep(context: &Context<'_>) {
        let Some(host) = host::get() else { return };
        if !host.turns.opened.get() {
            if context.flags() & (context_flags::LOADING | context_flags::ASYNC_LOADING) != 0 {
                return;
            }
            host.open();
        }
        if host.target.borrow().is_some() {
            before_sleep(&host, context);
            if host.holds_replies() {
                // The sleep that follows is to end at once, as replies leave after it.
                host.kick();
            }
        }
    }

    fn after_sleep(context: &Context<'_>) {
        let Some(host) = host::get() else { return };
        host.release_replies();
        if !host.turns.armed.get() && host.target.borrow().is_some() {
            run(&host, context);
        }
    }
}

fn before_sleep(host: &Host, context: &Context<'_>) {
    let turns = &host.turns;
    let now = api::now();
    if turns.armed.get() && !turns.rung.get() && now.saturating_sub(turns.armed_at.get()) < LONGEST_ARMED {
        return;
    }
    if turns.armed.replace(false) {
        disarm(host);
    }
    turns.rung.set(false);
    run(host, context);
    if host.options().is_some_and(|options| options.spin) {
        return;
    }
    for _ in 0..2 {
        match arm(host) {
            Ok(Some(longest)) => {
                turns.armed.set(true);
                turns.armed_at.set(now);
                turns.arms.set(turns.arms.get() + 1);
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
    // There is work: the sleep that follows is to end at once.
    host.kick();
}

/// Runs functions of links, inside the internal command.
fn run(host: &Host, context: &Context<'_>) {
    host.turns.in_hook.set(true);
    let answer = context.call(RunLinks::NAME, &CallFlags::RUN, &[]);
    host.turns.in_hook.set(false);
    if let Some(error) = answer.and_then(|answer| answer.error()) {
        log::error!("functions of links do not run: {error}");
    }
}

/// Polls the target, and goes on for a while after work. For the internal command.
///
/// # Errors
/// When the target cannot go on.
pub(crate) fn poll(host: &Host) -> Result<(), String> {
    let mut target = host.target.try_borrow_mut().map_err(|_| "the target is in use".to_owned())?;
    let Some(target) = &mut *target else { return Ok(()) };
    let linger = host.linger.get();
    let mut all = 0;
    let start = Instant::now();
    for _ in 0..MOST_POLLS {
        let ran = target.poll().map_err(|error| host::with_causes(&error))?;
        all += ran;
        if ran == 0 || start.elapsed() >= MOST_TIME {
            break;
        }
    }
    if all != 0 && !linger.is_zero() {
        let mut last = Instant::now();
        // Not where a source waits for this processor: its next call would come only behind the lingering.
        while !target.may_share_processor()
            && last.elapsed() < linger
            && start.elapsed() < linger * MOST_LINGERS
        {
            match target.poll().map_err(|error| host::with_causes(&error))? {
                0 => std::hint::spin_loop(),
                ran => {
                    all += ran;
                    last = Instant::now();
                }
            }
        }
    }
    // The server does not sleep: it spins, or a reply has no credit yet.
    if all == 0 && target.may_share_processor() {
        std::thread::yield_now();
    }
    host.turns.ran.set(all);
    Ok(())
}

fn arm(host: &Host) -> Result<Option<Duration>, String> {
    let mut target = host.target.try_borrow_mut().map_err(|_| "the target is in use".to_owned())?;
    let Some(target) = &mut *target else { return Ok(Some(LONG_SLEEP)) };
    target.arm().map_err(|error| host::with_causes(&error))
}

fn disarm(host: &Host) {
    if let Ok(mut target) = host.target.try_borrow_mut()
        && let Some(target) = &mut *target
    {
        target.disarm();
    }
}

/// Ends the sleep after `longest`, for transports that ring nobody.
fn nap(host: &Host, context: &Context<'_>, longest: Duration) {
    if host.turns.has_timer.replace(true) {
        return;
    }
    let milliseconds = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX).max(1);
    api::set_timer(context, milliseconds, || {
        if let Some(host) = host::get() {
            host.turns.has_timer.set(false);
            host.turns.rung.set(true);
        }
    });
    // Redis 7.0 has computed the length of this sleep already.
    host.kick();
}
