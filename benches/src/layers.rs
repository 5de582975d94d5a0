//! What the layers of one cached call cost, in one process with everything in the nearest cache: decoding a frame, looking
//! its code up and calling it.
//!
//! `layers NAME COUNT` repeats one layer that often, for tools that count instructions.

use std::hint::black_box;
use std::time::Instant;

use farjump::buffer::{AlignedBuffer, FrameRunner, FrameWriter, Ran};
use farjump::core::frame::{FrameView, MAX_FRAME};
use farjump::core::signal::LinkKey;
use farjump::{Executor, Library};

use crate::Failure;
use crate::report::median;
use crate::shm::Libraries;

const TURNS: usize = 200_000;
const ROUNDS: usize = 11;

/// One layer: its name, and what repeats it.
type Layer = (&'static str, fn(&mut Layers, usize));

const LAYERS: [Layer; 4] = [
    ("write", |layers, turns| layers.write(turns)),
    ("decode", |layers, turns| layers.decode(turns)),
    ("call", |layers, turns| layers.call(turns)),
    ("write+run", |layers, turns| layers.write_and_run(turns)),
];

struct Layers {
    counter: Library,
    executor: Executor,
    writer: FrameWriter,
    runner: FrameRunner,
    buffer: AlignedBuffer,
    /// A frame of its own, decoded again and again.
    decoded: AlignedBuffer,
    count: Box<u64>,
}

impl Layers {
    fn new(counter: &Library) -> Result<Layers, Failure> {
        let key = LinkKey::from_bytes([5; 16]);
        let mut executor = Executor::builder().build()?;
        let mut count = Box::new(0_u64);
        // SAFETY: `counter` adds one to a u64, which lives in a box that is dropped after the executor ran last.
        unsafe { executor.set_target_args((&raw mut *count).cast()) };
        let mut writer = FrameWriter::new(key, executor.epoch());
        let mut runner = FrameRunner::new(key);
        let mut buffer = AlignedBuffer::new(4096);
        writer.write(&mut buffer, counter, b"first")?;
        runner.run(&mut executor, &mut buffer)?;
        let mut decoded = AlignedBuffer::new(64);
        FrameWriter::new(key, 0).write(&mut buffer, counter, b"first")?;
        let mut again = FrameWriter::new(key, executor.epoch());
        again.write(&mut buffer, counter, b"first")?;
        let len = again.write(&mut buffer, counter, b"cached")?;
        decoded.copy_from_slice(&buffer[..len]);
        Ok(Layers { counter: counter.clone(), executor, writer, runner, buffer, decoded, count })
    }

    fn write(&mut self, turns: usize) {
        let mut writer = FrameWriter::new(LinkKey::from_bytes([5; 16]), self.executor.epoch());
        for _ in 0..turns {
            drop(black_box(writer.write(&mut self.buffer, black_box(&self.counter), b"cached")));
        }
    }

    fn decode(&mut self, turns: usize) {
        for _ in 0..turns {
            drop(black_box(FrameView::new_checked(black_box(&self.decoded), 0, MAX_FRAME)));
        }
    }

    fn call(&mut self, turns: usize) {
        let main = self.counter.main();
        let count: *mut u64 = &mut *self.count;
        for _ in 0..turns {
            // SAFETY: `counter` adds one to the u64 at its third argument and uses no other.
            unsafe { black_box(main)(std::ptr::null_mut(), 0, count.cast()) };
        }
    }

    fn write_and_run(&mut self, turns: usize) {
        for _ in 0..turns {
            let written = self.writer.write(&mut self.buffer, &self.counter, b"cached");
            let ran = self.runner.run(&mut self.executor, &mut self.buffer);
            assert!(matches!((written, ran), (Ok(_), Ok(Ran::Done { .. }))), "the frame did not run");
        }
    }
}

/// Prints each layer's time.
pub(crate) fn summary(libraries: &Libraries) -> Result<(), Failure> {
    let mut layers = Layers::new(&libraries.counter)?;
    println!("\nlayers of one cached call, in one process, median of {ROUNDS} rounds of {TURNS}");
    for (name, run) in LAYERS {
        let times = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            run(&mut layers, TURNS);
            start.elapsed().as_nanos() as f64 / TURNS as f64
        });
        println!("{name:<12} {:>7.2} ns", median(times.collect()));
    }
    Ok(())
}

/// `layers NAME COUNT`: for tools that count instructions.
pub(crate) fn run(name: Option<&str>) -> Result<(), Failure> {
    let names = LAYERS.map(|(name, _)| name).join(", ");
    let Some((_, run)) = LAYERS.into_iter().find(|(layer, _)| Some(*layer) == name) else {
        return Err(format!("`layers` takes one of {names}, and a count").into());
    };
    let turns = std::env::args().nth(3).and_then(|count| count.parse().ok()).unwrap_or(TURNS);
    let folder = tempfile::tempdir()?;
    let libraries = Libraries::build(folder.path())?;
    run(&mut Layers::new(&libraries.counter)?, turns);
    Ok(())
}
