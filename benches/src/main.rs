//! farjump over shared memory against the floor of the machine: `cargo run --release -p farjump-benches`.
//!
//! Two processes, each pinned to a processor of its own. Each round measures the reference and farjump one right after the
//! other, so that a machine whose cores drift apart drifts for both; what is reported is the median of the rounds' ratios.

mod count;
mod first_call;
mod floor;
mod in_place;
mod layers;
mod report;
mod shm;
mod store;

use std::process::{Child, Command as Process, ExitCode};

use floor::Floor;

/// What went wrong, in words.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("other") => other(&arguments[1..]),
        Some("layers") => layers(),
        None => measure(15),
        Some(rounds) => match rounds.parse() {
            Ok(rounds) => measure(rounds),
            Err(_) => Err(format!("`{rounds}`: give a number of rounds, or `layers`").into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The layers alone.
fn layers() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    layers::run(&shm::Libraries::build(folder.path())?)?;
    in_place::layers()
}

/// The measuring process: the source.
fn measure(rounds: usize) -> Result<(), Failure> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Err("these figures need two processors: one for each process".into());
    }
    let folder = tempfile::tempdir()?;
    let libraries = shm::Libraries::build(folder.path())?;
    let floor = Floor::create()?;
    let address = format!("unix:{}", folder.path().join("bench.sock").display());
    let other = Other::start(&floor, &address, folder.path())?;
    report::machine();
    floor::pin(0)?;
    floor.wait_done();
    let outcome = shm::run(rounds, &floor, &address, &libraries)
        .and_then(|()| first_call::run(&floor, &address, &libraries))
        .and_then(|()| store::run(rounds));
    floor.command(floor::Command::Exit, 0);
    drop(other);
    outcome?;
    layers::run(&libraries)?;
    in_place::layers()
}

/// The other process: the target.
fn other(arguments: &[String]) -> Result<(), Failure> {
    let [descriptor, address, folder] = arguments else {
        return Err("`other` is started by the benchmark itself".into());
    };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let floor = Floor::inherit(descriptor.parse()?)?;
    floor::pin(1)?;
    shm::serve(&floor, address, std::path::Path::new(folder))
}

/// The child, killed if it has not ended by itself.
struct Other(Child);

impl Other {
    fn start(floor: &Floor, address: &str, folder: &std::path::Path) -> Result<Other, Failure> {
        let child = Process::new(std::env::current_exe()?)
            .args(["other", &floor.descriptor().to_string(), address])
            .arg(folder)
            .stdout(std::process::Stdio::null())
            .spawn()?;
        Ok(Other(child))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        for _ in 0..200 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
