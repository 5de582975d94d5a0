//! An MPI program whose ranks query one of them about its part of the work while it runs:
//! `mpirun --oversubscribe -n 4 mpi_heat FOLDER LIBRARY`.
//!
//! Heat spreads along a rod, of which each rank has a slab; after each step neighbours exchange the cells at
//! their edges. Rank 0 is also a target, at a socket in FOLDER. The others inject a function of LIBRARY
//! (`hottest.c`) every hundred steps, which reads the slab of rank 0 in place. The loop is the program's own:
//! wherever it would wait for MPI it gives farjump a turn, and no thread is started for it unless the MPI
//! needs a [`Worker`]. MPI's messages of the simulation, and those of farjump, are independent.
//!
//! Every rank first computes the whole rod for itself, and compares: replies, step by step and bit by bit.

use std::error::Error;
use std::time::{Duration, Instant};

use farjump::{Library, Link, Target};
use farjump_mpi_example::{Pool, Windows, Worker, finalize};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::request::{Request, Scope, WaitGuard, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

/// Cells of a slab; `hottest.c` has the same number.
const CELLS: usize = 1024;
/// Steps of the simulation.
const STEPS: u64 = 2_000;
/// Steps between two queries of the others.
const QUERY_INTERVAL: u64 = 100;
/// The part of the difference to a neighbour that flows in a step.
const FLOW: f64 = 0.25;
/// The temperature above which the others count cells.
const WARM: f64 = 0.5;
/// Bytes of a mailbox: many queries, and many answers.
const MAILBOX: usize = 256 << 10;
/// Longer than any wait takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Failed = Box<dyn Error>;

/// A rank's part of the rod, as `hottest.c` sees it.
#[repr(C)]
#[derive(Clone)]
struct Slab {
    step: u64,
    cells: [f64; CELLS],
}

impl Slab {
    /// Returns the slab of `rank` before the first step: the first half of each is warm, decreasing with the distance.
    fn new(rank: usize) -> Slab {
        let warmth = |cell| if cell < CELLS / 2 { 1.0 / (rank + 1) as f64 } else { 0.0 };
        Slab { step: 0, cells: std::array::from_fn(warmth) }
    }

    /// One step, with the former values of the neighbours' adjacent cells.
    fn advance(&mut self, before: f64, behind: f64) {
        let mut left = before;
        for cell in 0..CELLS {
            let (here, right) = (self.cells[cell], self.cells.get(cell + 1).copied().unwrap_or(behind));
            self.cells[cell] = here + FLOW * (left - here) + FLOW * (right - here);
            left = here;
        }
        self.step += 1;
    }

    fn edges(&self) -> [f64; 2] {
        [self.cells[0], self.cells[CELLS - 1]]
    }

    fn heat(&self) -> f64 {
        self.cells.iter().sum()
    }

    /// Returns the expected reply of `hottest` about it.
    fn expected_reply(&self) -> HottestReply {
        let warmer = self.cells.iter().filter(|cell| **cell > WARM).count() as u64;
        HottestReply {
            step: self.step,
            warmer,
            hottest: self.cells.iter().copied().fold(self.cells[0], f64::max),
        }
    }
}

/// The reply of `hottest.c`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct HottestReply {
    step: u64,
    warmer: u64,
    hottest: f64,
}

impl HottestReply {
    fn read(reply: &[u8]) -> Option<HottestReply> {
        let words: &[[u8; 8]; 3] = reply.as_chunks().0.try_into().ok().filter(|_| reply.len() == 24)?;
        let [step, warmer, hottest] = *words;
        let hottest = f64::from_ne_bytes(hottest);
        Some(HottestReply { step: u64::from_ne_bytes(step), warmer: u64::from_ne_bytes(warmer), hottest })
    }
}

/// A rank's work besides simulating.
enum Role<'a> {
    /// It is queried; its slab is the `target_args`.
    Queried(Box<Target<'a>>),
    /// It makes queries.
    Querying { slab: Box<Slab>, link: Box<Link>, calls: Vec<u32>, replies: Vec<HottestReply> },
}

impl Role<'_> {
    fn slab(&mut self) -> Result<&mut Slab, Failed> {
        Ok(match self {
            Role::Queried(target) => target.args_mut::<Slab>().ok_or("the target has lost its slab")?,
            Role::Querying { slab, .. } => slab,
        })
    }

    /// Gives farjump its turn during a wait for MPI.
    fn turn(&mut self) -> Result<(), Failed> {
        match self {
            Role::Queried(target) => {
                target.poll()?;
            }
            Role::Querying { link, calls, replies, .. } => {
                let Some(mut call) = calls.first().and_then(|number| link.pending_from_raw(*number)) else {
                    return Ok(());
                };
                let reply = call.poll()?;
                call.into_raw();
                if let Some(reply) = reply {
                    replies.push(HottestReply::read(&reply).ok_or("the answer is none of hottest")?);
                    calls.remove(0);
                }
            }
        }
        std::thread::yield_now();
        Ok(())
    }

    /// Gives turns until `done`.
    fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Failed> {
        let begun = Instant::now();
        while !done(self) {
            self.turn()?;
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what} takes more than {} s", PATIENCE.as_secs()).into());
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Failed> {
    let (universe, _) =
        mpi::initialize_with_threading(Threading::Multiple).ok_or("MPI is running already")?;
    let world = universe.world();
    run(&world).unwrap_or_else(|error| end_all(&world, &error));
    finalize(universe);
    Ok(())
}

fn run(world: &SimpleCommunicator) -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, library] = &arguments[..] else {
        return Err("mpi_heat takes a folder and a library".into());
    };
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    if ranks < 2 {
        return Err("mpi_heat takes two ranks at least: one that is asked, and one that asks".into());
    }
    let expected = expected(ranks);

    // Rank 0 has a link of each other rank.
    let pool = Pool::allocate(world, Pool::bytes_for(ranks - 1, MAILBOX))?;
    let worker = Worker::where_needed(&pool)?;
    let windows = || Box::new(Windows::new(&pool));
    let (library, address) = (Library::open(library)?, format!("unix:{folder}/heat.sock"));
    let mut slab = Box::new(Slab::new(rank));
    let mut role = if rank == 0 {
        let target =
            Target::listen(&address).with_transport(windows()).transport("mpi-window").args(&mut *slab);
        let role = Role::Queried(Box::new(target.mailbox_size(MAILBOX).build()?));
        world.barrier();
        role
    } else {
        world.barrier();
        let link = Link::builder(&address).with_transport(windows()).transport("mpi-window");
        let link = Box::new(link.reply_mailbox_size(MAILBOX).connect_timeout(PATIENCE).connect()?);
        Role::Querying { slab, link, calls: Vec::new(), replies: Vec::new() }
    };

    let heat = total(world, &mut role)?;
    for step in 0..STEPS {
        if let Role::Querying { link, calls, .. } = &mut role
            && step % QUERY_INTERVAL == 0
        {
            calls.push(link.inject(&library, &WARM.to_ne_bytes())?.into_raw());
        }
        let [before, behind] = neighbours(world, &mut role)?;
        role.slab()?.advance(before, behind);
        role.turn()?;
    }
    let lost = (total(world, &mut role)? - heat).abs() / heat;
    if lost > 1e-9 {
        return Err(format!("{lost:e} of the heat is lost").into());
    }

    finish(role, rank, &expected)?;
    drop(worker);
    Ok(pool.free()?)
}

/// Waits for the last replies, compares them, and ends the links; with rank 0, until all have done so.
fn finish(mut role: Role<'_>, rank: usize, expected: &[HottestReply]) -> Result<(), Failed> {
    role.turn_until("what is still asked", |role| match role {
        Role::Queried(target) => target.sources() == 0,
        Role::Querying { calls, .. } => calls.is_empty(),
    })?;
    let Role::Querying { replies, .. } = role else { return Ok(()) };
    if let Some(wrong) = replies.iter().find(|answer| expected.get(answer.step as usize) != Some(*answer)) {
        return Err(format!("{wrong:?} is not what comes of computing it here").into());
    }
    let under_way = replies.iter().filter(|answer| (1..STEPS).contains(&answer.step)).count();
    if under_way == 0 {
        return Err("rank 0 answered nothing while it was computing".into());
    }
    println!(
        "rank {rank}: {} answers of rank 0 are right, {under_way} from the midst of its work",
        replies.len()
    );
    Ok(())
}

/// Returns the expected reply of `hottest` about rank 0 after each step, computed without MPI.
fn expected(ranks: usize) -> Vec<HottestReply> {
    let mut slabs: Vec<_> = (0..ranks).map(Slab::new).collect();
    let mut replies = vec![slabs[0].expected_reply()];
    for _ in 0..STEPS {
        let edges: Vec<_> = slabs.iter().map(Slab::edges).collect();
        for (rank, slab) in slabs.iter_mut().enumerate() {
            let before = rank.checked_sub(1).map_or(edges[rank][0], |before| edges[before][1]);
            let behind = edges.get(rank + 1).map_or(edges[rank][1], |behind| behind[0]);
            slab.advance(before, behind);
        }
        replies.push(slabs[0].expected_reply());
    }
    replies
}

/// Returns the cells next to this rank's slab: its own edges where the rod ends.
fn neighbours(world: &SimpleCommunicator, role: &mut Role<'_>) -> Result<[f64; 2], Failed> {
    let edges = role.slab()?.edges();
    let [mut before, mut behind] = edges;
    let (rank, last) = (world.rank(), world.size() - 1);
    scope(|scope| {
        let mut sent = Vec::new();
        let mut due = Vec::new();
        if rank > 0 {
            let process = world.process_at_rank(rank - 1);
            sent.push(WaitGuard::from(process.immediate_send(scope, &edges[0])));
            due.push(process.immediate_receive_into(scope, &mut before));
        }
        if rank < last {
            let process = world.process_at_rank(rank + 1);
            sent.push(WaitGuard::from(process.immediate_send(scope, &edges[1])));
            due.push(process.immediate_receive_into(scope, &mut behind));
        }
        due.into_iter().for_each(|request| complete(world, request, role));
    });
    Ok([before, behind])
}

/// Returns the heat of all slabs.
fn total(world: &SimpleCommunicator, role: &mut Role<'_>) -> Result<f64, Failed> {
    let (own, mut all) = (role.slab()?.heat(), 0.0);
    scope(|scope| {
        let sum = SystemOperation::sum();
        complete(world, world.immediate_all_reduce_into(scope, &own, &mut all, sum), role);
    });
    Ok(all)
}

/// Waits for MPI, and gives farjump its turns meanwhile. A request cannot be cancelled, so an error ends all
/// ranks.
fn complete<'a, T: ?Sized, S: Scope<'a>>(
    world: &SimpleCommunicator,
    request: Request<'a, T, S>,
    role: &mut Role<'_>,
) {
    let mut request = Some(request);
    let completed = role.turn_until("a neighbour", |_| {
        request = request.take().and_then(|request| request.test().err());
        request.is_none()
    });
    completed.unwrap_or_else(|error| end_all(world, &error));
}

/// Ends all ranks, which would wait for this one.
fn end_all(world: &SimpleCommunicator, error: &Failed) -> ! {
    eprintln!("rank {}: {error}", world.rank());
    world.abort(1)
}
