//! The process that is counted: both sides of a link in one thread, so that each poll finds what was just sent.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Library, Link, Mode, Target, WaitPolicy};

use super::case::{BATCH, Counted, Operation, has_batches};
use super::marker::Mark;
use crate::Failure;

/// File name of the library whose function is called, in the folder that this process runs in.
pub(crate) const LIBRARY: &str = "libcounter.so";
/// Calls before those that count: whatever is set up once has been by then.
const WARM_UP: u32 = 300;
/// A multiple of the numbers of polls after which a target does what is due now and then.
const ALL_IS_DUE: u32 = 1 << 12;
/// Polls in which what was sent has to arrive.
const POLLS: usize = 1000;
/// Longer than anything here takes, stepped through as it is.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is asked of the system now and then is asked by the clock, which goes on while this process is stepped through.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds the library in `folder`.
///
/// # Errors
/// No C compiler, mostly.
pub(crate) fn prepare(folder: &Path) -> Result<(), Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifuncs/samples/c/counter.c");
    build(&Options { inputs: vec![source], output: folder.join(LIBRARY), ..Options::default() })?;
    Ok(())
}

/// Makes a link, warms it up and makes the calls that are counted.
///
/// # Errors
/// What the calls say; a call that was lost.
pub(crate) fn run(counted: &Counted) -> Result<(), Failure> {
    let library = Library::open(Path::new(".").join(LIBRARY))?;
    let (target, link) = linked(&counted.transport, &library)?;
    link.set_mode(counted.mode);
    let args = vec![7; counted.size];
    // Not on the stack, where it would lie in as many lines as the stack's start says.
    let batches = has_batches(counted.mode, counted.size);
    let mut calls = Box::new(Calls { target, link, library, args, batches, burden: counted.burden });
    calls.run(WARM_UP)?;
    Mark::Counting.here();
    calls.run(counted.turns)?;
    let made_in = |turns: u32| {
        let batches = if batches { batches_in(turns) } else { 0 };
        2 * u64::from(turns) + u64::from(BATCH * batches)
    };
    let made = 1 + made_in(WARM_UP) + made_in(counted.turns);
    match calls.target.args_mut::<u64>() {
        Some(count) if *count == made => Ok(()),
        count => Err(format!("{made} calls were made and the target counted {count:?}").into()),
    }
}

/// A target and a link to it that has sent the library once.
fn linked(transport: &str, library: &Library) -> Result<(Target<'static>, Link), Failure> {
    const ADDRESS: &str = "unix:guard.sock";
    let spin = WaitPolicy::spin_only();
    let mut target = Target::listen(ADDRESS)
        .transport(transport)
        .args(Box::leak(Box::new(0_u64)))
        .modes(&[Mode::Cached, Mode::Always])
        .wait_policy(spin)
        .control_interval(Duration::ZERO)
        .build()?;
    let source = std::thread::spawn({
        let (transport, library) = (transport.to_owned(), library.clone());
        move || {
            let builder = Link::builder(ADDRESS).transport(&transport).wait_policy(spin);
            let link = builder.control_interval(NEVER).connect()?;
            link.inject(&library, b"first")?.wait(PATIENCE)?;
            Ok::<_, farjump::Error>(link)
        }
    });
    let mut polls = 0_u32;
    // How long the meeting takes does not decide in which of the calls that are counted something is due.
    while !source.is_finished() || !polls.is_multiple_of(ALL_IS_DUE) {
        target.poll()?;
        polls = polls.wrapping_add(1);
    }
    let link = source.join().map_err(|_| "the source's thread panicked")??;
    Ok((target, link))
}

/// Both sides, and what is called.
struct Calls {
    target: Target<'static>,
    link: Link,
    library: Library,
    args: Vec<u8>,
    batches: bool,
    burden: u32,
}

/// How many batches there are for so many calls: each is of many.
fn batches_in(turns: u32) -> u32 {
    turns.div_ceil(4)
}

/// As long as a line, and aligned to one.
#[repr(align(64))]
struct Line([u8; 64]);

impl Calls {
    /// `turns` calls without a reply, then as many with one, then batches.
    #[inline(never)]
    fn run(&mut self, turns: u32) -> Result<(), Failure> {
        // How many lines a frame of the stack lies in depends on where it starts, which depends on the environment and on the
        // program's path: not below a frame that is aligned to a line.
        let anchor = Line([0; 64]);
        black_box(&anchor.0);
        let Calls { target, link, library, args, batches, burden } = self;
        for _ in 0..turns {
            Mark::Of(Operation::Send).here();
            idle(*burden);
            link.send(library, args)?;
            Mark::Of(Operation::Poll).here();
            idle(*burden);
            poll(target)?;
            Mark::Outside.here();
        }
        for _ in 0..turns {
            Mark::Of(Operation::RoundTrip).here();
            idle(*burden);
            let pending = link.inject(library, args)?;
            poll(target)?;
            drop(black_box(pending.wait(PATIENCE)?));
            Mark::Outside.here();
        }
        for _ in 0..if *batches { batches_in(turns) } else { 0 } {
            Mark::Of(Operation::Batch).here();
            idle(*burden);
            let mut batch = link.batch();
            for _ in 0..BATCH {
                batch.send(library, args)?;
            }
            batch.finish()?;
            Mark::Of(Operation::PollBatch).here();
            idle(*burden);
            let mut ran = 0;
            while ran < BATCH as usize {
                ran += poll(target)?;
            }
            Mark::Outside.here();
        }
        Ok(())
    }
}

/// Polls until something has run, and says how many calls that were.
#[inline(always)]
fn poll(target: &mut Target<'_>) -> Result<usize, Failure> {
    for _ in 0..POLLS {
        match target.poll()? {
            0 => {}
            ran => return Ok(ran),
        }
    }
    Err(format!("what was sent did not arrive within {POLLS} polls").into())
}

#[inline(always)]
fn idle(burden: u32) {
    for turn in 0..burden {
        black_box(turn);
    }
}
