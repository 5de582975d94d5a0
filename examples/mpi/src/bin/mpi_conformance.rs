//! The conformance suite over the transport on MPI's windows, to be started as two ranks:
//! `mpirun -n 2 mpi_conformance`.
//!
//! Rank 0 runs the suite: both endpoints of a link in itself, and then with the targets in rank 1. It prints
//! the suite's tables; the status is 0 on success. Each rank has a thread in which MPI makes progress if the
//! MPI needs one, and with `--worker` in any case.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Instant;

use farjump_core::transport::{ArrivalRules, Transport};
use farjump_integration_tests::conformance::{Matrix, Pair, Subject, Verdict, run_reporting, serve_threads};
use farjump_integration_tests::middleware::{FaultInjector, Faults};
use farjump_mpi_example::{Pool, Windows, Worker, finalize};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

/// Bytes of each rank's part of the window: the suite has links with mailboxes of tens of megabytes.
const POOL: usize = 256 << 20;
/// Frames of the longest check.
const VOLUME: u64 = 100_000;
/// The subjects: a name, and the rule that its links use. The first is the transport's default.
const SUBJECTS: [(&str, ArrivalRules); 2] =
    [("mpi-window", ArrivalRules::FENCED), ("mpi-window, checked", ArrivalRules::CHECKED)];

fn main() -> Result<(), Box<dyn Error>> {
    let (universe, _) =
        mpi::initialize_with_threading(Threading::Multiple).ok_or("MPI is running already")?;
    let world = universe.world();
    if world.size() != 2 {
        return Err(format!("the suite takes two ranks, and not {}: mpirun -n 2", world.size()).into());
    }
    let helped = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--worker") => true,
        Some(other) => return Err(format!("{other:?} is no option; there is --worker").into()),
    };
    let pool = Pool::allocate(&world, POOL)?;
    let worker = (helped || pool.needs_worker()).then(|| Worker::start(&pool)).transpose()?;
    if world.rank() == 0 {
        let need = if pool.needs_worker() { "needs a worker in each rank" } else { "works without a worker" };
        println!(
            "{}: the window {need}",
            mpi::environment::library_version()?.lines().next().unwrap_or_default()
        );
    }
    let ended = match world.rank() {
        0 => suite(&world, &pool),
        _ => partner(&world, &pool),
    };
    drop(worker);
    if let Err(error) = ended.and_then(|()| Ok(pool.free()?)) {
        // The other rank waits for this one.
        eprintln!("rank {}: {error}", world.rank());
        world.abort(1);
    }
    finalize(universe);
    Ok(())
}

/// The suite's subject.
fn subject(pool: &Pool, name: &str, rule: ArrivalRules) -> Subject {
    let pool = pool.clone();
    let side = move || -> Box<dyn Transport> {
        let windows = Box::new(Windows::new(&pool));
        match rule {
            ArrivalRules::FENCED => windows,
            rule => Box::new(FaultInjector::new(windows, 1, Faults::NONE).offering(rule)),
        }
    };
    Subject::new(name, rule, move || Pair::new(side(), side())).volume(VOLUME).without_wake_ups()
}

/// Runs it, with targets in the other rank.
fn suite(world: &SimpleCommunicator, pool: &Pool) -> Result<(), Box<dyn Error>> {
    let (port, _) = world.process_at_rank(1).receive::<u16>();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut matrix = Matrix::default();
    for (name, rule) in SUBJECTS {
        let subject = subject(pool, name, rule).partnered_by(address);
        let begun = Instant::now();
        matrix.add(run_reporting(&subject, |cell| {
            let word = match &cell.verdict {
                Verdict::Failed(why) => why,
                Verdict::Ok(_) => "ok",
                _ => return,
            };
            eprintln!(
                "{:6.1} s  {name}, {}, {}: {word}",
                begun.elapsed().as_secs_f32(),
                cell.level,
                cell.check
            );
        }));
        // A blocking barrier would not match the other rank's.
        world.immediate_barrier().wait();
    }
    print!("{matrix}");
    if matrix.conforms() { Ok(()) } else { Err("it does not conform".into()) }
}

/// Plays targets for the other rank.
fn partner(world: &SimpleCommunicator, pool: &Pool) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    world.process_at_rank(0).send(&listener.local_addr()?.port());
    for (name, rule) in SUBJECTS {
        let mut ended = Some(world.immediate_barrier());
        let until = || {
            ended = ended.take().and_then(|barrier| barrier.test().err());
            ended.is_none()
        };
        let served = serve_threads(&listener, &subject(pool, name, rule), until);
        served.map_err(|failure| failure.to_string())?;
    }
    Ok(())
}
