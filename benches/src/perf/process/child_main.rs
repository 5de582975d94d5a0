//! The second process: the target's endpoints of all cases, commanded over the socket on standard input.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use farjump::Library;

use super::child_protocol::{EndpointSpec, Order, Played, Set, Talk};
use super::liveness::Watch;
use super::network_namespaces;
use super::shared_memory::Memory;
use crate::perf::experiments::baselines::injection::Polls;
use crate::perf::experiments::baselines::{self, Connected, Unconnected};
use crate::perf::experiments::chase;
use crate::perf::experiments::first_call;
use crate::perf::experiments::role::Receiver;
use crate::perf::experiments::scaling::Caller;
use crate::perf::experiments::wake_up;
use crate::perf::experiments::work::{Method, Task, injected, resident};
use crate::perf::machine::clock;
use crate::perf::machine::pin;
use crate::perf::options::PerfOther;
use crate::perf::options::ifuncs;
use crate::program::failure::Failure;
use crate::program::workspace::remove;

/// Executes commands until the last one, or until the source's process ends.
///
/// # Errors
/// The process cannot be set up, or the source's process sends something else than commands.
///
/// # Safety
/// [`run`](fn@crate::perf::run) started this process, or another process that may run code in it. Standard input is a
/// socket to that process, the descriptor of the command line is memory that it made, and libraries that it
/// names are loaded.
pub unsafe fn run(arguments: &PerfOther) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("the second process of perf cannot start: {error}"));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let watch = Watch::of(&socket).map_err(failed)?;
    let memory = Memory::inherit(arguments.memory)?;
    arguments.namespace.as_deref().map_or(Ok(()), network_namespaces::enter)?;
    let mut talk = Talk::new(socket).map_err(failed)?;
    let Some(Order::Set(set)) = talk.hear()? else { return Ok(()) };
    let is_ended = match obey(&set, &mut talk, &memory, &watch) {
        Ok(is_ended) => is_ended,
        // The process at the other end reports the failure, if it still runs.
        Err(failure) => !watch.has_failed() && talk.say(&Err::<(), _>(failure.to_string())).is_ok(),
    };
    if !is_ended {
        // The source's process was killed, and left its folder to this one.
        let _ = remove(&set.folder);
    }
    Ok(())
}

/// Executes commands. Returns true after the last one, or false if the source's process is gone.
fn obey(set: &Set, talk: &mut Talk, memory: &Memory, watch: &Watch) -> Result<bool, Failure> {
    set.cpu.map_or(Ok(()), pin)?;
    let counter = ifuncs::open(&set.counter)?;
    let mut opened = Vec::new();
    let mut offers = Vec::new();
    for spec in &set.endpoints {
        let endpoint = open(spec, set, &counter, memory).map_err(|failure| failure.to_string());
        offers.push(endpoint.as_ref().map(|endpoint| endpoint.offer.clone()).map_err(Clone::clone));
        opened.push(endpoint.ok());
    }
    talk.reply(offers)?;
    let mut endpoints: Vec<Option<Connected>> = Vec::new();
    let mut caller = None;
    while let Some(order) = talk.hear()? {
        match order {
            Order::Set(_) => return Err(Failure::new("the second process was set up twice")),
            Order::Join(theirs) => {
                let mut joined = Vec::new();
                for pair in opened.drain(..).zip(theirs) {
                    let connected = match pair {
                        (Some(endpoint), Some(offer)) => endpoint.connect(&offer, memory).map(Some),
                        _ => Ok(None),
                    };
                    joined.push(connected.as_ref().map(drop).map_err(Failure::to_string));
                    endpoints.push(connected.ok().flatten());
                }
                talk.reply(joined)?;
            }
            Order::Play { endpoint, size, streams, expected } => {
                let receiver = receiver(&mut endpoints, endpoint)?;
                receiver.prepare(size, streams)?;
                talk.reply(())?;
                let before = clock::of_this_thread();
                let counted = receiver.serve(!streams, expected, memory, watch)?;
                let cpu = clock::of_this_thread() - before;
                let (processor, yields) = (rustix::thread::sched_getcpu(), receiver.yields());
                talk.reply(Played { counted, cpu, processor, yields })?;
            }
            Order::First { endpoint, adds } => {
                let receiver = receiver(&mut endpoints, endpoint)?;
                talk.reply(())?;
                talk.reply(receiver.time_first(&adds, memory, watch)?)?;
            }
            Order::Load(libraries) => talk.reply(first_call::load_and_call(&libraries)?)?,
            Order::Hold { query, size } => {
                resident::present::hold(query, size);
                talk.reply(())?;
            }
            Order::End => return Ok(true),
            Order::Sleep(sleeper) => return wake_up::sleep(&sleeper, set, talk, memory),
            Order::Shard(shard) => return chase::serve_shard(&shard, set, talk),
            Order::Wire(_) | Order::Handled => {
                return Err(Failure::new("the process is no shard, but received an order for one"));
            }
            Order::Connect { socket, transport } => {
                caller = Some(Caller::connect(&socket, &transport, &counter, set)?);
                talk.reply(())?;
            }
            Order::Send { size, count } => {
                let Some(caller) = &mut caller else {
                    return Err(Failure::new("the process is no source, but received an order to send"));
                };
                talk.reply(caller.send(size, count)?)?;
            }
        }
    }
    Ok(false)
}

fn open(spec: &EndpointSpec, set: &Set, counter: &Library, memory: &Memory) -> Result<Unconnected, Failure> {
    match spec {
        EndpointSpec::Farjump { transport, socket, sources } => {
            Ok(Unconnected::target(Box::new(Polls::of_counter(socket, transport, *sources, set, counter)?)))
        }
        EndpointSpec::Compiling { transport, socket } => {
            Ok(Unconnected::target(Box::new(Polls::of_bitcode(socket, transport, set, counter)?)))
        }
        EndpointSpec::Work(task @ Task { method: Method::Injected(transport), .. }) => {
            Ok(Unconnected::target(injected::receiver(task, transport, set)?))
        }
        EndpointSpec::Resident(
            task @ resident::Task { method: resident::Method::Injected(transport), .. },
        ) => Ok(Unconnected::target(baselines::resident::open_target(task, transport, set, memory)?)),
        baseline => baselines::open(baseline, &set.layout, &set.folder, Some(&set.host)),
    }
}

fn receiver(endpoints: &mut [Option<Connected>], number: usize) -> Result<&mut dyn Receiver, Failure> {
    match endpoints.get_mut(number) {
        Some(Some(endpoint)) => endpoint.receiver(),
        _ => Err(Failure::new(
            "the second process received an order to serve an endpoint that it does not have",
        )),
    }
}
