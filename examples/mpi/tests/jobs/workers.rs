//! Windows whose ranks have to call MPI, tested between two ranks: this test program is started again as a
//! job.

use std::process::exit;
use std::thread::sleep;
use std::time::{Duration, Instant};

use farjump_core::transport::{Address, OpenRequest, Transport};
use farjump_mpi_example::{Pool, Windows, Worker};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::job::{self, Ended};

/// Length of the regions, in bytes.
const LEN: usize = 64 << 10;
/// Longer than any rank waits before it is ended.
const LONG: Duration = Duration::from_secs(60);

/// Starts the test of this name in two ranks that write by messages, and returns their ends. In a rank it
/// runs `play` and ends the process.
fn in_two_ranks(test: &str, play: impl FnOnce(&SimpleCommunicator, Pool)) -> Option<Ended> {
    if std::env::var_os(job::RANK).is_none() {
        let program = std::env::current_exe().unwrap();
        return job::run_to_its_end(&job::MESSAGES, 2, program, [test, "--exact", "--nocapture"]);
    }
    // A rank that aborts leaves no core file.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    let (universe, _) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    let world = universe.world();
    let pool = Pool::allocate(&world, 4 * (LEN + 4096)).unwrap();
    play(&world, pool);
    None
}

fn request() -> OpenRequest {
    OpenRequest::new(LEN, 4096)
}

#[test]
fn a_link_is_refused_without_the_worker_that_the_mpi_needs() {
    let test = "workers::a_link_is_refused_without_the_worker_that_the_mpi_needs";
    let ended = in_two_ranks(test, |world, pool| {
        let refused = Windows::new(&pool).open(&request()).err().unwrap().to_string();
        assert!(refused.contains("only while that rank calls MPI: start a Worker"), "{refused}");
        let worker = Worker::where_needed(&pool).unwrap().unwrap();
        drop(Windows::new(&pool).open(&request()).unwrap());
        drop(worker);
        Windows::new(&pool).open(&request()).err().unwrap();
        pool.free().unwrap();
        println!("rank {} played", world.rank());
    });
    let Some(Ended { status, output, errors }) = ended else { return };
    assert!(
        status.success() && output.contains("rank 0 played") && output.contains("rank 1 played"),
        "{errors}"
    );
}

#[test]
fn a_write_stalled_by_a_rank_ends_the_job_naming_it() {
    let test = "workers::a_write_stalled_by_a_rank_ends_the_job_naming_it";
    let ended = in_two_ranks(test, |world, pool| {
        let other = world.process_at_rank(1 - world.rank());
        let worker = Worker::with_patience(&pool, Duration::from_secs(1)).unwrap();
        let opening = Windows::new(&pool).open(&request()).unwrap();
        if world.rank() == 1 {
            let address = opening.address().try_to_owned().unwrap();
            other.send(&address.bytes[..]);
            other.receive::<u8>();
            // From now on this rank calls no function of MPI.
            drop(worker);
            sleep(LONG);
        } else {
            let (bytes, _) = other.receive_vec::<u8>();
            other.send(&1_u8);
            // The other rank may still have its worker the first times.
            let begun = Instant::now();
            while begun.elapsed() < LONG {
                let address = Address { bytes: bytes.clone(), ..Address::default() };
                drop(Windows::new(&pool).open(&request()).unwrap().connect(address, 1000).unwrap());
            }
            println!("rank 0 went on");
        }
        exit(2);
    });
    let Some(Ended { status, output, errors }) = ended else { return };
    assert!(!status.success() && !output.contains("went on"), "{status}\n{output}{errors}");
    let why = "has waited more than 1 s for rank 1, which calls nothing of MPI: keep a Worker in each rank";
    let said_why = errors.lines().any(|line| line.starts_with("rank 0: MPI_") && line.contains(why));
    assert!(said_why, "{errors}");
}
