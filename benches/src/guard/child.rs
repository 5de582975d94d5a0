//! The counted process: both endpoints of a link in one thread, so that each poll finds the last frame sent.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Library, Link, Mode, Target, TargetBuilder, WaitPolicy};
use farjump_handles::{Client, Handle, Store};

use super::case::{BATCH, Counted, MeasuredOperation, gets, has_batches, is_by_device};
use super::marker::Mark;
use crate::Failure;

/// File name of the library with the called function, in the working folder of this process.
pub(crate) const LIBRARY: &str = "libcounter.so";
/// Calls before the counted ones, to finish all one-time setup.
const WARM_UP: u32 = 300;
/// A multiple of all numbers of polls after which a target does periodic work.
const ALL_IS_DUE: u32 = 1 << 12;
/// Number of polls within which a frame has to arrive: a minute or two, also of an emulated device on a busy machine. A
/// look at the clock would be counted too.
const POLLS: usize = 500_000_000;
/// Longer than any step here takes, even single-stepped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Periodic system calls follow the clock, which advances while this process is single-stepped.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds the library in `folder`.
///
/// # Errors
/// Mostly the lack of a C compiler.
pub(crate) fn prepare(folder: &Path) -> Result<(), Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("embedded/samples/counter.c");
    build(&Options { inputs: vec![source], output: folder.join(LIBRARY), ..Options::default() })?;
    Ok(())
}

/// Polls before each first call: a multiple of the number after which an idle target allocates ahead.
const IDLE: u32 = 1 << 9;
/// First calls before the counted ones.
const FIRST_WARM_UP: u32 = 4;

/// Returns the file name of the library with the function that is called once as number `number`.
fn first_library(number: u32) -> String {
    format!("libfirst{number}.so")
}

/// Builds libraries with `count` functions that differ in the number that they add, and those of the warm-up.
///
/// # Errors
/// Those of [`prepare`].
pub(crate) fn prepare_first(folder: &Path, count: u32) -> Result<u32, Failure> {
    let count = count + FIRST_WARM_UP;
    for number in 0..count {
        let name = format!("first{number}");
        let source = folder.join(format!("{name}.c"));
        let text = format!(
            "#include <farjump_ifunc.h>\n\
             FARJUMP_COPY_ARGS({name})\n\
             FARJUMP_IFUNC void {name}_main(void *payload, size_t payload_size, void *target_args)\n\
             {{\n\
                 (void)payload;\n\
                 (void)payload_size;\n\
                 *(uint64_t *)target_args += {};\n\
             }}\n",
            number + 2
        );
        fs::write(&source, text)?;
        let output = folder.join(first_library(number));
        build(&Options { inputs: vec![source], output, ..Options::default() })?;
    }
    Ok(count)
}

/// Calls each of `count` functions once.
fn run_first(target: &mut Target<'_>, link: &Link, count: u32) -> Result<(), Failure> {
    for number in 0..count {
        if number == FIRST_WARM_UP {
            Mark::Counting.here();
        }
        let library = Library::open(Path::new(".").join(first_library(number)))?;
        // A target that has nothing to do allocates for the next code.
        for _ in 0..IDLE {
            target.poll()?;
        }
        link.send(&library, &[7; 8])?;
        Mark::Of(MeasuredOperation::FirstCall).here();
        poll(target)?;
        Mark::Outside.here();
    }
    Ok(())
}

/// Part of a frame that starts at a page. Frames below it lie as they do in any other build, whatever lies above it.
#[repr(align(4096))]
struct PageOfStack([u8; 4096]);

/// Makes a link, warms it up and makes the counted calls.
///
/// # Errors
/// An error of a call; a lost call.
pub(crate) fn run(counted: &Counted) -> Result<(), Failure> {
    let page = black_box(PageOfStack([0; 4096]));
    let made = make_calls(counted);
    black_box(&page.0);
    made
}

#[inline(never)]
fn make_calls(counted: &Counted) -> Result<(), Failure> {
    if gets(counted.mode) {
        return run_gets(counted);
    }
    let library = Library::open(Path::new(".").join(LIBRARY))?;
    let (target, link) = linked(&counted.transport, &library)?;
    link.set_mode(counted.mode);
    if counted.first != 0 {
        let mut target = target;
        return run_first(&mut target, &link, counted.first);
    }
    let args = vec![7; counted.size];
    // Boxed: on the stack its number of lines would depend on the start of the stack.
    let batches = has_batches(&counted.transport, counted.mode, counted.size);
    let round_trips = !is_by_device(&counted.transport);
    let burden = counted.burden;
    let mut calls = Box::new(Calls { target, link, library, args, batches, round_trips, burden });
    calls.run(WARM_UP)?;
    Mark::Counting.here();
    calls.run(counted.turns)?;
    let made_in = |turns: u32| {
        let batches = if batches { batches_in(turns) } else { 0 };
        let round_trips = if round_trips { turns } else { 0 };
        u64::from(turns + round_trips + BATCH * batches)
    };
    let made = 1 + made_in(WARM_UP) + made_in(counted.turns);
    match calls.target.args_mut::<u64>() {
        Some(count) if *count == made => Ok(()),
        count => Err(format!("{made} calls were made and the target counted {count:?}").into()),
    }
}

/// Makes a store and a client of it, warms them up and gets an object.
fn run_gets(counted: &Counted) -> Result<(), Failure> {
    let store = Store::options().capacity(1 << 20).build()?;
    let mut target = target(&counted.transport).objects(store.service()).build()?;
    let handle = store.put(&vec![7; counted.size])?;
    let transport = counted.transport.clone();
    let client = polled_for(&mut target, move || {
        let client = Client::builder(ADDRESS).transport(&transport).connect()?;
        client.mapping()?;
        Ok(client)
    })?;
    let mut gets = Box::new(Gets { target, client, handle, burden: counted.burden });
    gets.run(WARM_UP)?;
    Mark::Counting.here();
    gets.run(counted.turns)
}

/// A store's target, and a client of it that gets an object.
struct Gets {
    target: Target<'static>,
    client: Client,
    handle: Handle,
    burden: u32,
}

impl Gets {
    #[inline(never)]
    fn run(&mut self, turns: u32) -> Result<(), Failure> {
        // As in `Calls::run`.
        let anchor = Line([0; 64]);
        black_box(&anchor.0);
        let Gets { target, client, handle, burden } = self;
        for _ in 0..turns {
            Mark::Of(MeasuredOperation::Get).here();
            idle(*burden);
            let view = client.get_driving(handle, || poll(target).is_ok())?;
            let is_mapped = view.is_mapped();
            drop(black_box(view));
            Mark::Outside.here();
            if !is_mapped {
                return Err("the store's memory is not mapped".into());
            }
        }
        Ok(())
    }
}

/// The address of the target, in the working folder of this process.
const ADDRESS: &str = "unix:guard.sock";

/// Returns a target that does little besides running calls.
fn target(transport: &str) -> TargetBuilder<'static> {
    let builder = Target::listen(ADDRESS).transport(transport).wait_policy(WaitPolicy::spin_only());
    builder.control_interval(Duration::ZERO)
}

/// Polls a target while `connect` runs on another thread.
fn polled_for<T: Send + 'static>(
    target: &mut Target<'_>,
    connect: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
) -> Result<T, Failure> {
    let source = std::thread::spawn(connect);
    let mut polls = 0_u32;
    // The duration of the handshake must not decide which counted call includes periodic work.
    while !source.is_finished() || !polls.is_multiple_of(ALL_IS_DUE) {
        target.poll()?;
        polls = polls.wrapping_add(1);
    }
    let connected = source.join().map_err(|_| "the source's thread panicked")?;
    connected.map_err(|error| -> Failure { error })
}

/// Returns a target and a link to it that has sent the library once.
fn linked(transport: &str, library: &Library) -> Result<(Target<'static>, Link), Failure> {
    let builder = target(transport).args(Box::leak(Box::new(0_u64)));
    let mut target = builder.modes([Mode::Cached, Mode::Always]).build()?;
    let (transport, library) = (transport.to_owned(), library.clone());
    let link = polled_for(&mut target, move || {
        let builder = Link::builder(ADDRESS).transport(&transport).wait_policy(WaitPolicy::spin_only());
        let link = builder.control_interval(NEVER).connect()?;
        link.inject(&library, b"first")?.wait(PATIENCE)?;
        Ok(link)
    })?;
    Ok((target, link))
}

/// Both endpoints, and the called function.
struct Calls {
    target: Target<'static>,
    link: Link,
    library: Library,
    args: Vec<u8>,
    batches: bool,
    round_trips: bool,
    burden: u32,
}

/// Returns the number of batches for so many calls: each has many.
fn batches_in(turns: u32) -> u32 {
    turns.div_ceil(4)
}

/// A line in length and alignment.
#[repr(align(64))]
struct Line([u8; 64]);

impl Calls {
    /// Makes `turns` calls without a reply, then as many with one, then batches.
    #[inline(never)]
    fn run(&mut self, turns: u32) -> Result<(), Failure> {
        // The number of lines of a stack frame depends on its start, which depends on the environment and the
        // program's path. Below a frame that is aligned to a line it does not.
        let anchor = Line([0; 64]);
        black_box(&anchor.0);
        let round_trips = if self.round_trips { turns } else { 0 };
        let Calls { target, link, library, args, batches, burden, .. } = self;
        for _ in 0..turns {
            Mark::Of(MeasuredOperation::Send).here();
            idle(*burden);
            link.send(library, args)?;
            Mark::Of(MeasuredOperation::Poll).here();
            idle(*burden);
            poll(target)?;
            Mark::Outside.here();
        }
        for _ in 0..round_trips {
            Mark::Of(MeasuredOperation::RoundTrip).here();
            idle(*burden);
            let pending = link.inject(library, args)?;
            poll(target)?;
            drop(black_box(pending.wait(PATIENCE)?));
            Mark::Outside.here();
        }
        for _ in 0..if *batches { batches_in(turns) } else { 0 } {
            Mark::Of(MeasuredOperation::Batch).here();
            idle(*burden);
            let mut batch = link.batch();
            for _ in 0..BATCH {
                batch.send(library, args)?;
            }
            batch.finish()?;
            Mark::Of(MeasuredOperation::PollBatch).here();
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

/// Polls until calls have run, and returns their number.
#[inline(always)]
fn poll(target: &mut Target<'_>) -> Result<usize, Failure> {
    for _ in 0..POLLS {
        match target.poll()? {
            0 => {}
            ran => return Ok(ran),
        }
    }
    Err(format!("a frame did not arrive within {POLLS} polls").into())
}

#[inline(always)]
fn idle(burden: u32) {
    for turn in 0..burden {
        black_box(turn);
    }
}
