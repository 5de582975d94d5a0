//! One-way time, message rate and throughput over shared memory.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::{Library, Link, Mode, Target, WaitPolicy};

use crate::Failure;
use crate::first_call;
use crate::floor::{Command, Floor};
use crate::in_place;
use crate::report::Series;

pub(crate) const ROUND_TRIPS: u64 = 100_000;
const WARM_UP: u64 = 1_000;
const MESSAGES: u64 = 4_000_000;
const MEBIBYTE: usize = 1 << 20;
/// Bytes of large payloads in a round, all together.
const LARGE: usize = 512 * MEBIBYTE;
/// Lengths of large payloads, with the length of the ring that they travel through: the mailbox's, or that of the bigger one
/// that the target makes for them.
const LARGE_SIZES: [(&str, usize, usize); 4] = [
    ("64 KiB", MEBIBYTE / 16, 4 * MEBIBYTE),
    ("1 MiB", MEBIBYTE, 4 * MEBIBYTE),
    ("16 MiB", 16 * MEBIBYTE, 64 * MEBIBYTE),
    ("64 MiB", 64 * MEBIBYTE, 128 * MEBIBYTE),
];
/// How many first calls are measured.
const HELLOS: usize = 48;
/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// File name of the library of `hello`.
pub(crate) const HELLO: &str = "libhello.so";

/// File name of the library of `counter`.
const COUNTER: &str = "libcounter.so";

/// File name of the library with the services that the reference needs.
pub(crate) const SERVICES: &str = "libservices.so";

/// The libraries that the benchmarks inject.
pub(crate) struct Libraries {
    pub(crate) counter: Library,
    /// `counter` in images of several lengths, by length.
    pub(crate) counters: Vec<(usize, Library)>,
    /// `hello` with another answer each: code that a target has never seen, again and again.
    pub(crate) hellos: Vec<Library>,
}

impl Libraries {
    /// Builds them from the samples.
    pub(crate) fn build(folder: &Path) -> Result<Libraries, Failure> {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifuncs/samples/c");
        build_services(folder)?;
        let hello = std::fs::read_to_string(samples.join("hello.c"))?;
        let mut hellos = Vec::new();
        for variant in 0..HELLOS {
            let folder = folder.join(variant.to_string());
            std::fs::create_dir(&folder)?;
            let source = folder.join("hello.c");
            std::fs::write(&source, hello.replace("= 42;", &format!("= {variant};")))?;
            hellos.push(open_built(&source, &folder.join(HELLO))?);
        }
        std::fs::copy(folder.join("0").join(HELLO), folder.join(HELLO))?;
        let counter = open_built(&samples.join("counter.c"), &folder.join(COUNTER))?;
        Ok(Libraries { counter, counters: in_place::build(&samples, folder)?, hellos })
    }
}

pub(crate) fn open_built(source: &Path, output: &Path) -> Result<Library, Failure> {
    build(&Options { inputs: vec![source.to_owned()], output: output.to_owned(), ..Options::default() })?;
    Ok(Library::open(output)?)
}

/// What `hello` calls besides `printf`, for the reference, which has no target to offer it.
fn build_services(folder: &Path) -> Result<(), Failure> {
    let source = folder.join("services.c");
    std::fs::write(
        &source,
        "int farjump_reply(const void *b, unsigned long n) { (void)b; return n == 0; }\n",
    )?;
    let status = std::process::Command::new("cc")
        .args(["-O2", "-fPIC", "-shared", "-o"])
        .arg(folder.join(SERVICES))
        .arg(&source)
        .status()?;
    if status.success() { Ok(()) } else { Err("the compiler failed on the services of the reference".into()) }
}

/// The target's side of all benchmarks.
pub(crate) fn serve(floor: &Floor, address: &str, folder: &Path) -> Result<(), Failure> {
    let mut count = 0_u64;
    let mut target = Target::listen(address)
        .args(&mut count)
        .process_symbols(true)
        .modes(&Mode::ALL)
        .local(&Library::open(folder.join(COUNTER))?)
        .wait_policy(WaitPolicy::spin_only())
        .build()?;
    floor.done();
    loop {
        match floor.commanded() {
            (Command::Idle, _) => {
                target.poll()?;
                continue;
            }
            (Command::PingPong, turns) => floor.pong(turns),
            (Command::Ring, lines) => floor.consume(lines),
            (Command::Serve, _) => {
                while floor.commanded().0 == Command::Serve {
                    for _ in 0..64 {
                        target.poll()?;
                    }
                }
                floor.set_values(*target.args_mut::<u64>().ok_or("the target lost its counter")?, 0);
            }
            (Command::ServeFirst, _) => first_call::serve(floor, &mut target, folder)?,
            (Command::Exit, _) => return Ok(()),
        }
        floor.done();
    }
}

/// Runs the source's side and prints the rows.
pub(crate) fn run(rounds: usize, floor: &Floor, address: &str, libraries: &Libraries) -> Result<(), Failure> {
    let link = connect(address)?;
    let bench = Bench { floor, link: &link, counter: &libraries.counter };
    let mut sent = 0;
    for payload in [8, 40] {
        let mut series = Series::default();
        for _ in 0..rounds {
            let reference = bench.raw_one_way();
            series.add(bench.one_way(payload)?, reference);
            sent += ROUND_TRIPS;
        }
        bench.check_count(sent)?;
        series.print(&format!("one way, cached counter, {payload} B"), "ns", "<= 1.15 x raw ping-pong");
    }
    for (mode, payload, bound) in [
        (Mode::Always, 8, "<= 2 x cached"),
        (Mode::Always, 4096, "<= 1.2 x cached"),
        (Mode::Local, 8, "cached"),
        (Mode::Local, 4096, "cached"),
    ] {
        let mut series = Series::default();
        for _ in 0..rounds {
            let reference = bench.one_way(payload)?;
            link.set_mode(mode);
            series.add(bench.one_way(payload)?, reference);
            link.set_mode(Mode::Cached);
            sent += 2 * ROUND_TRIPS;
        }
        bench.check_count(sent)?;
        series.print(&format!("one way, {mode} counter, {payload} B"), "ns", bound);
    }
    for links in [16, 64] {
        let mut series = Series::default();
        for _ in 0..rounds {
            let reference = bench.one_way(8)?;
            let idle: Vec<Link> = (1..links).map(|_| connect(address)).collect::<Result<_, _>>()?;
            series.add(bench.one_way(8)?, reference);
            drop(idle);
            sent += 2 * ROUND_TRIPS;
        }
        bench.check_count(sent)?;
        series.print(&format!("one way, 8 B, {links} links of which one is active"), "ns", "one link");
    }
    sent += in_place::run(rounds, &bench, &libraries.counters)?;
    bench.check_count(sent)?;
    for payload in [8, 32] {
        let mut series = Series::default();
        for _ in 0..rounds {
            let reference = bench.raw_rate();
            series.add(bench.rate(payload, MESSAGES)?, reference);
            sent += MESSAGES;
        }
        bench.check_count(sent)?;
        series.print(&format!("messages, cached counter, {payload} B"), "M/s", ">= 0.7 x raw ring of lines");
    }
    for (size, len, ring) in LARGE_SIZES {
        let mut series = Series::default();
        let mut copy = Copy::new(len, ring)?;
        for _ in 0..rounds {
            let reference = copy.throughput();
            series.add(bench.throughput(&copy.source)?, reference);
        }
        series.print(&format!("throughput, cached counter, {size}"), "GB/s", ">= 0.8 x memcpy");
    }
    Ok(())
}

/// A link that never sleeps.
pub(crate) fn connect(address: &str) -> Result<Link, Failure> {
    Ok(Link::builder(address).wait_policy(WaitPolicy::spin_only()).connect()?)
}

/// A link, its target, and what is called.
#[derive(Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) floor: &'a Floor,
    pub(crate) link: &'a Link,
    pub(crate) counter: &'a Library,
}

impl Bench<'_> {
    /// Half a round trip of one word, in nanoseconds.
    fn raw_one_way(&self) -> f64 {
        self.floor.command(Command::PingPong, ROUND_TRIPS);
        self.floor.ping(1, WARM_UP);
        let start = Instant::now();
        self.floor.ping(WARM_UP, ROUND_TRIPS + 1);
        let time = start.elapsed();
        self.floor.wait_done();
        self.floor.end_ping();
        time.as_nanos() as f64 / 2.0 / (ROUND_TRIPS + 1 - WARM_UP) as f64
    }

    /// Half the time from injecting to having the answer, in nanoseconds.
    pub(crate) fn one_way(&self, payload: usize) -> Result<f64, Failure> {
        let args = [7_u8; 4096];
        self.floor.command(Command::Serve, 0);
        for _ in 0..WARM_UP {
            self.link.inject(self.counter, &args[..payload])?.wait(PATIENCE)?;
        }
        let start = Instant::now();
        for _ in WARM_UP..ROUND_TRIPS {
            self.link.inject(self.counter, &args[..payload])?.wait(PATIENCE)?;
        }
        let time = start.elapsed();
        self.stop();
        Ok(time.as_nanos() as f64 / 2.0 / (ROUND_TRIPS - WARM_UP) as f64)
    }

    /// Millions of lines a second through the raw ring.
    fn raw_rate(&self) -> f64 {
        self.floor.command(Command::Ring, MESSAGES);
        let start = Instant::now();
        self.floor.produce(MESSAGES);
        let time = start.elapsed();
        self.floor.wait_done();
        MESSAGES as f64 / time.as_micros() as f64
    }

    /// Millions of messages a second, from the first sent to the last run.
    fn rate(&self, payload: usize, messages: u64) -> Result<f64, Failure> {
        let args = [7_u8; 64];
        self.floor.command(Command::Serve, 0);
        self.link.flush(PATIENCE)?;
        let start = Instant::now();
        for _ in 0..messages {
            self.link.send(self.counter, &args[..payload])?;
        }
        self.link.flush(PATIENCE)?;
        let time = start.elapsed();
        self.stop();
        Ok(messages as f64 / time.as_micros() as f64)
    }

    /// Gigabytes a second of large payloads.
    fn throughput(&self, payload: &[u8]) -> Result<f64, Failure> {
        self.floor.command(Command::Serve, 0);
        // One before the rest has the target make what mailbox it needs.
        self.link.send(self.counter, payload)?;
        self.link.flush(PATIENCE)?;
        let start = Instant::now();
        for _ in 0..LARGE / payload.len() {
            self.link.send(self.counter, payload)?;
        }
        self.link.flush(PATIENCE)?;
        let time = start.elapsed();
        self.stop();
        Ok(LARGE as f64 / time.as_nanos() as f64)
    }

    fn stop(&self) {
        self.floor.command(Command::Idle, 0);
        self.floor.wait_done();
    }

    /// All that was sent has run, once.
    fn check_count(&self, sent: u64) -> Result<(), Failure> {
        match self.floor.values().0 {
            count if count == sent => Ok(()),
            count => Err(format!("{sent} calls were sent and the target counted {count}").into()),
        }
    }
}

/// The reference for throughput: copying into a mapping of the same kind and size as the mailbox.
struct Copy {
    source: Vec<u8>,
    mailbox: memmap2::MmapMut,
}

impl Copy {
    /// Copies of `len` bytes, into `ring` bytes.
    fn new(len: usize, ring: usize) -> Result<Copy, Failure> {
        let file =
            std::fs::File::from(rustix::fs::memfd_create("reference", rustix::fs::MemfdFlags::empty())?);
        file.set_len(ring as u64)?;
        // SAFETY: the file is ours alone and keeps its length.
        let mut mailbox = unsafe { memmap2::MmapMut::map_mut(&file)? };
        mailbox.fill(1);
        Ok(Copy { source: vec![3; len], mailbox })
    }

    fn throughput(&mut self) -> f64 {
        let len = self.source.len();
        // As the mailbox is used: as many frames of the payload and a little as there is room for, then from the start.
        let frame = len + 64;
        let fit = self.mailbox.len() / frame;
        let start = Instant::now();
        for turn in 0..LARGE / len {
            let at = turn % fit * frame;
            self.mailbox[at..at + len].copy_from_slice(black_box(&self.source));
            black_box(&mut self.mailbox);
        }
        LARGE as f64 / start.elapsed().as_nanos() as f64
    }
}
