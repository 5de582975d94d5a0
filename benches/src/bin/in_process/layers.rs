//! Cost of each layer of a cached call, in one process with all data in the nearest cache. Costs are in nanoseconds,
//! and in instructions, which do not depend on the machine's load.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use farjump::buffer::{AlignedBuffer, FrameRunner, FrameWriter, RunOutcome};
use farjump::build::{Options, build};
use farjump::core::frame::{FrameView, MAX_FRAME};
use farjump::core::signal::LinkKey;
use farjump::{Executor, Library, Link, Mode, Target, WaitPolicy};
use farjump_benches::rounds::Spread;

use crate::Failure;
#[cfg(target_arch = "x86_64")]
use crate::stepper;

const TURNS: usize = 200_000;
const ROUNDS: usize = 11;
/// Longer than any step here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// One layer: its name, a description, and the function that repeats it.
type Layer = (&'static str, &'static str, fn(&mut Layers, usize));

const LAYERS: [Layer; 8] = [
    ("decode", "a frame's lengths, offsets, kind and flags", |layers, turns| layers.decode(turns)),
    ("call", "the function alone", |layers, turns| layers.call(turns)),
    ("write", "payload routines and frame, into a buffer", |layers, turns| layers.write(turns)),
    ("write, run", "the same, then decoded, looked up and called", |layers, turns| {
        layers.write_and_run(turns)
    }),
    ("send, poll", "through a mailbox", |layers, turns| layers.send(turns)),
    ("round trip", "through a mailbox, with the reply", |layers, turns| {
        layers.round_trip(turns, Mode::Cached)
    }),
    ("always", "a round trip in mode always", |layers, turns| layers.round_trip(turns, Mode::Always)),
    ("local", "a round trip in mode local", |layers, turns| layers.round_trip(turns, Mode::Local)),
];

struct Layers {
    counter: Library,
    executor: Executor,
    writer: FrameWriter,
    runner: FrameRunner,
    buffer: AlignedBuffer,
    /// A separate frame that is decoded repeatedly.
    decoded: AlignedBuffer,
    count: Box<u64>,
    /// Both endpoints of a link over shared memory, in one thread.
    target: Target<'static>,
    link: Link,
}

impl Layers {
    fn new(counter: &Library) -> Result<Layers, Failure> {
        let folder = tempfile::tempdir()?;
        let address = format!("unix:{}", folder.path().join("layers.sock").display());
        let (target, link) = linked(&address, counter)?;
        let key = LinkKey::from_bytes([5; 16]);
        let mut executor = Executor::builder().build()?;
        let mut count = Box::new(0_u64);
        // SAFETY: `counter` adds one to a u64; `count` is its box, which outlives the executor's last run.
        unsafe { executor.set_target_args((&raw mut *count).cast()) };
        let mut writer = FrameWriter::new(key, executor.epoch());
        let mut runner = FrameRunner::new(key);
        let mut buffer = AlignedBuffer::new(4096);
        writer.write(&mut buffer, counter, b"first")?;
        // SAFETY: `writer` above wrote the frame.
        unsafe { runner.run(&mut executor, &mut buffer) }?;
        let mut decoded = AlignedBuffer::new(64);
        FrameWriter::new(key, 0).write(&mut buffer, counter, b"first")?;
        let mut again = FrameWriter::new(key, executor.epoch());
        again.write(&mut buffer, counter, b"first")?;
        let len = again.write(&mut buffer, counter, b"cached!!")?;
        decoded.copy_from_slice(&buffer[..len]);
        Ok(Layers {
            counter: counter.clone(),
            executor,
            writer,
            runner,
            buffer,
            decoded,
            count,
            target,
            link,
        })
    }

    fn write(&mut self, turns: usize) {
        let mut writer = FrameWriter::new(LinkKey::from_bytes([5; 16]), self.executor.epoch());
        for _ in 0..turns {
            drop(black_box(writer.write(&mut self.buffer, black_box(&self.counter), b"cached!!")));
        }
    }

    fn decode(&mut self, turns: usize) {
        for _ in 0..turns {
            drop(black_box(FrameView::new_checked(black_box(&self.decoded), 0, MAX_FRAME)));
        }
    }

    fn call(&mut self, turns: usize) {
        let Some(main) = self.counter.main() else { return };
        let count: *mut u64 = &mut *self.count;
        for _ in 0..turns {
            // SAFETY: `counter` adds one to the u64 at its third argument and uses no other.
            unsafe { black_box(main)(std::ptr::null_mut(), 0, count.cast()) };
        }
    }

    /// Sends without a reply, and runs the calls.
    fn send(&mut self, turns: usize) {
        for _ in 0..turns {
            drop(black_box(self.link.send(&self.counter, b"cached!!")));
            drop(black_box(self.target.poll()));
        }
    }

    /// Injects, runs and takes the reply.
    fn round_trip(&mut self, turns: usize, mode: Mode) {
        self.link.set_mode(mode);
        for _ in 0..turns {
            let Ok(pending) = self.link.inject(&self.counter, b"cached!!") else { return };
            drop(black_box(self.target.poll()));
            drop(black_box(pending.wait(PATIENCE)));
        }
        self.link.set_mode(Mode::Cached);
    }

    fn write_and_run(&mut self, turns: usize) {
        for _ in 0..turns {
            let written = self.writer.write(&mut self.buffer, &self.counter, b"cached!!");
            // SAFETY: `self.writer` wrote the frame.
            let ran = unsafe { self.runner.run(&mut self.executor, &mut self.buffer) };
            assert!(matches!((written, ran), (Ok(_), Ok(RunOutcome::Done { .. }))), "the frame did not run");
        }
    }
}

/// Returns a target and a link to it that has sent `counter` once.
fn linked(address: &str, counter: &Library) -> Result<(Target<'static>, Link), Failure> {
    let spin = WaitPolicy::spin_only();
    let count: &'static mut u64 = Box::leak(Box::new(0));
    let mut target = Target::listen(address)
        .args(count)
        .modes([Mode::Cached, Mode::Always, Mode::Local])
        .local(counter)
        .wait_policy(spin)
        .build()?;
    let address = address.to_owned();
    let source = std::thread::spawn({
        let counter = counter.clone();
        move || {
            let link = Link::builder(&address).wait_policy(spin).connect()?;
            link.inject(&counter, b"first")?.wait(PATIENCE)?;
            Ok::<_, farjump::Error>(link)
        }
    });
    while !source.is_finished() {
        target.poll()?;
    }
    let link = source.join().map_err(|_| "the source's thread panicked")??;
    Ok((target, link))
}

/// Builds the sample `counter` in `folder`.
fn counter(folder: &Path) -> Result<Library, Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("embedded/samples/counter.c");
    let output = folder.join("libcounter.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() })?;
    // SAFETY: `output` was built above, from a sample whose routines are those of FARJUMP_COPY_ARGS.
    Ok(unsafe { Library::load(output) }?)
}

pub(crate) fn run() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let counter = counter(folder.path())?;
    let mut layers = Layers::new(&counter)?;
    println!("\nlayers of one cached call, in one process; median of {ROUNDS} rounds of {TURNS}");
    for (name, what, run) in LAYERS {
        let times = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            run(&mut layers, TURNS);
            start.elapsed().as_nanos() as f64 / TURNS as f64
        });
        let time = Spread::of(times).median;
        println!("{name:<12} {time:>7.2} ns {} {what}", instructions(name)?);
    }
    Ok(())
}

/// The word before a layer on the command line of the process whose instructions are counted.
pub(crate) const COUNTED: &str = "counted";

/// Returns the instructions of a layer, counted in a process of their own.
#[cfg(target_arch = "x86_64")]
fn instructions(layer: &str) -> Result<String, Failure> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let instructions = stepper::instructions(command.args([COUNTED, layer]))?;
    Ok(format!("{instructions:>7.1} instructions  "))
}

/// Returns nothing: instructions are read on x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
fn instructions(_layer: &str) -> Result<String, Failure> {
    Ok(String::new())
}

/// Runs a layer in the process whose instructions are counted.
#[cfg(target_arch = "x86_64")]
pub(crate) fn run_counted(layer: &str) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut layers = Layers::new(&counter(folder.path())?)?;
    let (.., run) = LAYERS.iter().find(|(name, ..)| *name == layer).ok_or("there is no such layer")?;
    stepper::counted(|turns| run(&mut layers, turns));
    Ok(())
}
