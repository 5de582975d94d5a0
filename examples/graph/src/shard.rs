//! The shards: a target for each, all polled by one thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farjump::{Link, Target, export};

use crate::Failed;
use crate::graph::Graph;
use crate::processors::pin;
use crate::wire::{graph_latency, graph_now, graph_wait};

/// Most words of lists in a call, besides one list more.
pub(crate) const BATCH: usize = 4096;
const TRANSPORT: &str = "shm";
/// Bytes of a link's mailbox for calls, and for replies, of which all that are under way fit.
const MAILBOX: usize = 256 << 10;
const REPLIES: usize = 1 << 20;
/// Bytes for placed code.
const ARENA: usize = 1 << 20;
/// Bytes of lists that may wait for one shard.
const WAITING: usize = 64 << 20;
const CONNECTING: Duration = Duration::from_secs(10);

/// The target_args of a shard. `graph_shard.h` has the same.
#[repr(C)]
struct Args {
    all_offsets: *const u32,
    all: *const u32,
    later_offsets: *const u32,
    later: *const u32,
    seen: *mut u64,
    marks: *mut u64,
    out: *mut u32,
    space: u32,
    vertices: u32,
    shard: u32,
    shards: u32,
    run: u32,
}

/// A shard's `Args` with the memory that they point to, besides the graph.
struct Held {
    args: Box<Args>,
    _bits: [Vec<u64>; 2],
    _out: Vec<u64>,
}

impl Held {
    fn new(graph: &Graph, number: usize) -> Held {
        let longest = graph.sizes.iter().map(|sizes| sizes.later).max().unwrap_or_default() as usize;
        // The head of a message, batches, one list more, and the count of words; whole words of 64 bits.
        let space = (16 + 2 * BATCH + longest).next_multiple_of(2);
        let mut bits = [0, 1].map(|_| vec![0_u64; graph.vertices().div_ceil(64)]);
        let mut out = vec![0_u64; space * graph.shards.len() / 2];
        let shard = &graph.shards[number];
        let args = Args {
            all_offsets: shard.all.offsets.as_ptr(),
            all: shard.all.neighbours.as_ptr(),
            later_offsets: shard.later.offsets.as_ptr(),
            later: shard.later.neighbours.as_ptr(),
            seen: bits[0].as_mut_ptr(),
            marks: bits[1].as_mut_ptr(),
            out: out.as_mut_ptr().cast(),
            space: space as u32,
            vertices: graph.vertices() as u32,
            shard: number as u32,
            shards: graph.shards.len() as u32,
            run: 0,
        };
        Held { args: Box::new(args), _bits: bits, _out: out }
    }
}

/// The thread with the shards. Stops when dropped.
pub struct Shards {
    /// Addresses of the shards are this and a number.
    prefix: String,
    count: usize,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    failed: mpsc::Receiver<String>,
}

impl Shards {
    /// Starts it on this processor.
    ///
    /// # Errors
    /// When a target cannot be made.
    pub fn start(graph: &Arc<Graph>, cpu: Option<usize>) -> Result<Shards, Failed> {
        static SHARDS: AtomicUsize = AtomicUsize::new(0);
        let number = SHARDS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("unix:@farjump-graph-{}-{number}-", std::process::id());
        let (sender, failed) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let serve = {
            let (graph, stop) = (Arc::clone(graph), Arc::clone(&stop));
            let prefix = prefix.clone();
            move || {
                if let Err(error) = serve(&graph, &prefix, cpu, &stop, &started) {
                    // The source may have ended already.
                    let _ = sender.send(error.to_string());
                }
            }
        };
        let thread = thread::Builder::new().name("shards".into()).spawn(serve)?;
        let shards = Shards { prefix, count: graph.shards.len(), stop, thread: Some(thread), failed };
        match is_started.recv() {
            Ok(()) => Ok(shards),
            Err(_) => Err(shards.failed.recv().unwrap_or_else(|_| "it ended".into()).into()),
        }
    }

    /// Connects to each shard.
    ///
    /// # Errors
    /// When a shard does not listen.
    pub fn connect(&self) -> Result<Vec<Link>, Failed> {
        let connect = |shard| {
            let link = Link::builder(&address(&self.prefix, shard)).transport(TRANSPORT);
            link.reply_mailbox_size(REPLIES).connect_timeout(CONNECTING).connect().map_err(Failed::from)
        };
        (0..self.count).map(connect).collect()
    }

    /// # Errors
    /// When the thread has failed.
    pub fn check(&self) -> Result<(), Failed> {
        match self.failed.try_recv() {
            Ok(why) => Err(format!("the shards have failed: {why}").into()),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has printed its message.
            let _ = thread.join();
        }
    }
}

/// Abstract names leave no file behind, whatever ends the program.
fn address(prefix: &str, shard: usize) -> String {
    format!("{prefix}{shard:02}")
}

fn serve(
    graph: &Graph,
    prefix: &str,
    cpu: Option<usize>,
    stop: &AtomicBool,
    started: &mpsc::Sender<()>,
) -> Result<(), Failed> {
    pin(cpu)?;
    let count = graph.shards.len();
    let mut held: Vec<_> = (0..count).map(|number| Held::new(graph, number)).collect();
    let target = |(number, held): (usize, &mut Held)| {
        let mut builder = Target::listen(&address(prefix, number))
            .transport(TRANSPORT)
            .mailbox_size(MAILBOX)
            .arena_size(ARENA)
            .handshake_timeout(CONNECTING)
            .max_forward_bytes(WAITING)
            .exports([export!(graph_now()), export!(graph_wait(_)), export!(graph_latency())]);
        for other in (0..count).filter(|other| *other != number) {
            builder = builder.destination(&format!("{other:02}"), &address(prefix, other));
        }
        // SAFETY: the functions of this program read the graph and write what `Held` owns, on this thread, which polls the
        // targets and drops them before both.
        unsafe { builder.args_raw((&raw mut *held.args).cast()) }.build()
    };
    let mut targets = held.iter_mut().enumerate().map(target).collect::<Result<Vec<_>, _>>()?;
    // The source waits for it, or has ended.
    let _ = started.send(());
    while !stop.load(Ordering::Relaxed) {
        for target in &mut targets {
            target.poll()?;
        }
        if cpu.is_none() {
            thread::yield_now();
        }
    }
    Ok(())
}
