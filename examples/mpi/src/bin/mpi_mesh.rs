//! Connects each rank of a job with each other one, and makes all reply: `mpi_mesh FOLDER TRANSPORT`, where the
//! transport is `mpi-window` or one of farjump's. Rank 0 prints the time that it took.

use std::error::Error;
use std::time::{Duration, Instant};

use farjump::{Link, LinkBuilder, Target};
use farjump_mpi_example::{Pool, Windows, Worker, finalize};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};

/// Bytes of a mailbox.
const MAILBOX: usize = 256 << 10;
/// Longer than any wait takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let (universe, _) =
        mpi::initialize_with_threading(Threading::Multiple).ok_or("MPI is running already")?;
    let world = universe.world();
    if let Err(error) = run(&world) {
        // The others would wait for this one.
        eprintln!("rank {}: {error}", world.rank());
        world.abort(1);
    }
    finalize(universe);
    Ok(())
}

fn run(world: &SimpleCommunicator) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, transport] = &arguments[..] else {
        return Err("mpi_mesh takes a folder and a transport".into());
    };
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    // Each other rank has a link to this one, and this one has a link to each.
    let pool = Pool::allocate(world, Pool::bytes_for(2 * ranks, MAILBOX))?;
    let worker = Worker::where_needed(&pool)?;
    let is_window = transport == "mpi-window";
    let address = |rank: usize| format!("unix:{folder}/{rank}.sock");
    let listen = address(rank);
    let mut target = Target::listen(&listen).mailbox_size(MAILBOX).handshake_timeout(PATIENCE);
    if is_window {
        target = target.with_transport(Box::new(Windows::new(&pool)));
    }
    let target = target.transport(transport).build()?.spawn()?;
    world.barrier();

    let begun = Instant::now();
    let mut links = Vec::new();
    // Not all to rank 0 first.
    for other in (1..ranks).map(|distance| (rank + distance) % ranks) {
        let address = address(other);
        let mut link: LinkBuilder = Link::builder(&address).reply_mailbox_size(MAILBOX);
        if is_window {
            link = link.with_transport(Box::new(Windows::new(&pool)));
        }
        links.push(link.transport(transport).connect_timeout(PATIENCE).connect()?);
    }
    for link in &links {
        link.flush(PATIENCE)?;
    }
    world.barrier();
    if rank == 0 {
        let (links, took) = (ranks * (ranks - 1), begun.elapsed().as_millis());
        println!("{ranks} ranks have {links} links over {transport} after {took} ms");
    }
    drop(links);
    world.barrier();
    target.stop()?;
    drop(worker);
    Ok(pool.free()?)
}
