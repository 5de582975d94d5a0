//! The second process: the target's endpoints of all cases, commanded over the socket on standard input.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use farjump::Library;

use super::across;
use super::baselines::injection::Polls;
use super::baselines::{self, Half, Joined};
use super::child_protocol::{Answer, Offer, Order, Played, Set, Subject, Talk};
use super::clock;
use super::first_call;
use super::ifuncs;
use super::liveness::Watch;
use super::machine::pin;
use super::options::PerfOther;
use super::role::Other;
use super::scaling::Caller;
use super::shared_memory::Memory;
use super::wake_up;
use super::work::{Task, Way, injected};
use crate::program::failure::Failure;
use crate::program::workspace::remove;

/// The endpoint of one subject.
enum Side {
    Target(Box<Polls>),
    /// A target for one function's work.
    Work(Box<dyn Other>),
    Half(Half),
    Whole(Joined),
    Missing,
}

/// Executes commands until the last one, or until the source's process ends.
///
/// # Errors
/// The process cannot be set up, or the source's process sends something else than commands.
///
/// # Safety
/// [`run`](super::run) started this process, or another process that may run code in it. Standard input is a
/// socket to that process, the descriptor of the command line is memory that it made, and libraries that it
/// names are loaded.
pub unsafe fn run(arguments: &PerfOther) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("the second process of perf cannot start: {error}"));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let watch = Watch::of(&socket).map_err(failed)?;
    let memory = Memory::inherit(arguments.memory)?;
    arguments.namespace.as_deref().map_or(Ok(()), across::enter)?;
    let mut talk = Talk::new(socket).map_err(failed)?;
    let Some(Order::Set(set)) = talk.hear()? else { return Ok(()) };
    let gone = match obey(&set, &mut talk, &memory, &watch) {
        Ok(End::Told) => false,
        Ok(End::Gone) => true,
        // The process at the other end reports the failure, if it still runs.
        Err(failure) => watch.has_failed() || talk.say(&Answer::Failed(failure.to_string())).is_err(),
    };
    if gone {
        // The source's process was killed, and left its folder to this one.
        let _ = remove(&set.folder);
    }
    Ok(())
}

/// The way in which the commands ended.
enum End {
    Told,
    Gone,
}

fn obey(set: &Set, talk: &mut Talk, memory: &Memory, watch: &Watch) -> Result<End, Failure> {
    pin(set.cpu)?;
    let counter = ifuncs::open(&set.counter)?;
    let mut sides = Vec::new();
    let mut offers = Vec::new();
    for subject in &set.subjects {
        let (side, offer) = match make(subject, set, &counter) {
            Ok((side, offer)) => (side, Ok(offer)),
            Err(failure) => (Side::Missing, Err(failure.to_string())),
        };
        sides.push(side);
        offers.push(offer);
    }
    talk.say(&Answer::Made(offers))?;
    let mut caller = None;
    while let Some(order) = talk.hear()? {
        match order {
            Order::Set(_) => return Err(Failure::new("the second process was set up twice")),
            Order::Join(theirs) => {
                let joined =
                    sides.iter_mut().zip(&theirs).map(|(side, offer)| join(side, offer, memory, set));
                talk.say(&Answer::Joined(joined.collect()))?;
            }
            Order::Play { subject, size, streams, expected } => {
                let other = other(&mut sides, subject)?;
                other.prepare(size, streams)?;
                talk.say(&Answer::Playing)?;
                let before = clock::of_this_thread();
                let counted = other.serve(!streams, expected, memory, watch)?;
                let cpu = clock::of_this_thread() - before;
                talk.say(&Answer::Played(Played { counted, cpu }))?;
            }
            Order::First { subject, adds } => {
                let Some(Side::Target(target)) = sides.get_mut(subject) else { return Err(unknown()) };
                talk.say(&Answer::Playing)?;
                let time = target.time_first(adds, watch)?;
                talk.say(&Answer::Timed(time.as_nanos() as u64))?;
            }
            Order::Load { library, symbol, adds } => {
                let time = load(&library, &symbol, adds)?;
                talk.say(&Answer::Timed(time))?;
            }
            Order::End => return Ok(End::Told),
            Order::Sleep(sleeper) => {
                return Ok(match wake_up::sleep(&sleeper, set, talk, memory)? {
                    true => End::Told,
                    false => End::Gone,
                });
            }
            Order::Connect { socket, transport } => {
                caller = Some(Caller::connect(&socket, &transport, &counter, set)?);
                talk.say(&Answer::Connected)?;
            }
            Order::Send { size, count } => {
                let Some(caller) = &mut caller else {
                    return Err(Failure::new("the process is no source, but received an order to send"));
                };
                talk.say(&Answer::Sent(caller.send(size, count)?))?;
            }
        }
    }
    Ok(End::Gone)
}

fn make(subject: &Subject, set: &Set, counter: &Library) -> Result<(Side, Offer), Failure> {
    match subject {
        Subject::Farjump(transport) => {
            let target = Polls::listen(transport, transport, 1, set, counter)?;
            Ok((Side::Target(Box::new(target)), Offer::default()))
        }
        Subject::Crowd { transport, socket, sources } => {
            let target = Polls::listen(socket, transport, *sources, set, counter)?;
            Ok((Side::Target(Box::new(target)), Offer::default()))
        }
        Subject::Work(task @ Task { way: Way::Injected(transport), .. }) => {
            let target = injected::listen(task, transport, set)?;
            Ok((Side::Work(target), Offer::default()))
        }
        baseline => {
            let half = baselines::open(baseline, &set.layout, &set.folder, Some(&set.host))?;
            let offer = half.offer()?;
            Ok((Side::Half(half), offer))
        }
    }
}

fn join(side: &mut Side, offer: &Option<Offer>, memory: &Memory, set: &Set) -> Result<(), String> {
    match (std::mem::replace(side, Side::Missing), offer) {
        (Side::Half(half), Some(offer)) => {
            let whole =
                half.join(offer, memory, false, &set.layout).map_err(|failure| failure.to_string())?;
            *side = Side::Whole(whole);
        }
        (target @ (Side::Target(_) | Side::Work(_)), _) => *side = target,
        _ => {}
    }
    Ok(())
}

fn other(sides: &mut [Side], subject: usize) -> Result<&mut dyn Other, Failure> {
    match sides.get_mut(subject) {
        Some(Side::Target(target)) => Ok(&mut **target),
        Some(Side::Work(target)) => Ok(&mut **target),
        Some(Side::Whole(whole)) => whole.other(),
        _ => Err(unknown()),
    }
}

fn unknown() -> Failure {
    Failure::new("the second process received an order to serve a case that it does not have")
}

fn load(library: &Path, symbol: &str, adds: u64) -> Result<u64, Failure> {
    Ok(first_call::load_and_call(library, symbol, adds)?.as_nanos() as u64)
}
