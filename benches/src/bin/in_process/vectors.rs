//! Sums floats that are at rest, as data in a target are. The sums are by images for the baseline, for level v3 and for
//! exactly this CPU, and by bitcode that is compiled here. Each is compared with the function of a library, which is
//! the same source compiled by the same compiler for the baseline. Both are called here, and by a link in a target of
//! another process, where the library's function is the target's own.

use std::cell::RefCell;
use std::ffi::c_void;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::core::image::{Level, Machine};
use farjump::{Cpu, Library, Link, Mode, Platform, Target};
use farjump_benches::rounds::{Group, Limit};
use farjump_compiler::protocol::Tier;
use farjump_compiler::{Compiler, Options as CompilerOptions};
use farjump_loader::{Arena, Compilation, Copied, Domain, Exports, LinkedImage, Resolver, Store};
use farjump_os::cpu::detected;

use crate::{Failure, report};

/// Sums the first floats of its third argument, several times.
const SOURCE: &str = "\
#include <farjump_ifunc.h>
struct work { uint64_t turns, count; };
FARJUMP_COPY_ARGS(sum)
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    struct work *work = payload;
    const float *values = args;
    volatile float kept;
    (void)size;
    for (uint64_t turn = 0; turn < work->turns; turn++) {
        float sum = 0;
        for (size_t i = 0; i < work->count; i++)
            sum += values[i];
        kept = sum;
        /* The values may have changed. */
        __asm__ volatile(\"\" : \"+r\"(values) : : \"memory\");
    }
    work->turns = (uint64_t)kept;
}
";
const COMPILER: &str = "clang";
/// Additions may change their order: without that no compiler uses vectors here.
const FLAGS: [&str; 4] = ["-O2", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"];
/// The largest part of the exact image's time that code compiled from bitcode may take.
const BITCODE_BOUND: f64 = 1.05;
/// Time limit for compiling bitcode.
const COMPILING: Duration = Duration::from_secs(20);
/// The largest part of the reference's time that an image may take, and whether that is so with 512-bit vectors alone.
type ImageBound = (&'static str, f64, bool);
/// Bytes of floats, and the bounds.
const SIZES: [(usize, &[ImageBound]); 4] = [
    (4 << 10, &[]),
    (16 << 10, &[("v3", 0.33, false), ("exact", 0.25, true)]),
    (64 << 10, &[("v3", 0.40, false), ("exact", 0.40, false)]),
    (LARGEST, &[]),
];
const LARGEST: usize = 1 << 20;
/// Bytes that a measurement of one function sums at least. A call through a link is a small part of the time that
/// takes.
const WORK: usize = 64 << 20;
/// Limit for a call.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The word before the arguments of the process that is the target.
pub(crate) const TARGET: &str = "vectors-target";

/// Floats of one line of the cache: data that a target maps starts on one, too.
#[derive(Clone)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// `struct work` of the source.
#[derive(Clone, Copy)]
#[repr(C)]
struct Work {
    turns: u64,
    count: u64,
}

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

impl Work {
    fn on(bytes: usize) -> Work {
        Work { turns: (WORK / bytes) as u64, count: (bytes / size_of::<f32>()) as u64 }
    }

    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.turns.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }
}

/// Returns the floats: whole numbers, whose sum is exact in any order.
fn lines() -> Vec<Line> {
    vec![Line(std::array::from_fn(|number| (number % 8) as f32)); LARGEST / size_of::<Line>()]
}

/// Returns the nanoseconds of one sum of so many bytes.
fn time(main: Main, lines: &mut [Line], bytes: usize) -> Result<f64, Failure> {
    let mut work = Work::on(bytes);
    let turns = work.turns;
    let start = Instant::now();
    // SAFETY: the code was built from SOURCE, which takes `Work` and reads `count` floats of its third argument.
    unsafe { main((&raw mut work).cast(), size_of::<Work>(), black_box(lines.as_mut_ptr()).cast()) };
    let time = start.elapsed().as_nanos() as f64 / turns as f64;
    let sum: f32 = lines[..bytes / size_of::<Line>()].iter().flat_map(|line| line.0).sum();
    if work.turns != sum as u64 {
        return Err(format!("the sum is {} and not {sum}", work.turns).into());
    }
    Ok(time)
}

/// Returns the first line of the compiler's text about itself.
fn version() -> Result<String, Failure> {
    let said = Command::new(COMPILER).arg("--version").output();
    let said = said.map_err(|error| format!("cannot run `{COMPILER}`, which this needs: {error}"))?;
    Ok(String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned())
}

/// An image of the function, in a library of its own: a link sends the best image of a library.
struct Contestant {
    name: &'static str,
    library: Library,
    image: Arc<LinkedImage>,
}

/// The libraries, and the store that places their images here.
struct Builder {
    folder: PathBuf,
    store: Store,
    resolver: Resolver,
}

impl Builder {
    fn library(
        &self,
        name: &str,
        targets: &[Platform],
        cpu: Option<Cpu>,
        bitcode: bool,
    ) -> Result<PathBuf, Failure> {
        let source = self.folder.join("sum.c");
        std::fs::write(&source, SOURCE)?;
        let output = self.folder.join(format!("{name}.so"));
        let report = build(&Options {
            inputs: vec![source],
            output,
            name: Some("sum".to_owned()),
            targets: targets.to_vec(),
            cpu,
            bitcode,
            cc: Some(COMPILER.to_owned()),
            cflags: FLAGS.map(str::to_owned).to_vec(),
            ..Options::default()
        })?;
        Ok(report.library)
    }

    fn contestant(
        &mut self,
        name: &'static str,
        target: Platform,
        cpu: Option<Cpu>,
    ) -> Result<Contestant, Failure> {
        let library = Library::open(self.library(name, &[target], cpu, false)?)?;
        let image = library.images().last().ok_or("a library has an image")?;
        let image = self.store.insert(image.bytes(), image.id(), "sum", &self.resolver)?;
        Ok(Contestant { name, library, image })
    }

    /// Returns the code that a target makes of bitcode, optimised.
    fn bitcode(&mut self, target: Platform) -> Result<Contestant, Failure> {
        let library = Library::open(self.library("bitcode", &[target], None, true)?)?;
        let bitcode = library.images().last().ok_or("a library has bitcode")?;
        let mut compiler = Compiler::new(CompilerOptions::default());
        compiler.submit(Tier::Optimised, bitcode.id(), self.store.cpu(), bitcode.bytes())?;
        let begun = Instant::now();
        let compiled = loop {
            if let Some(done) = compiler.poll().pop() {
                break done.result.map_err(|failed| failed.text)?;
            }
            if begun.elapsed() > COMPILING {
                return Err("the bitcode is not compiled in time".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let (_, llvm) = compiler.llvm().ok_or("the compiler has an LLVM")?;
        println!("bitcode is compiled by {llvm}");
        let compilation = Compilation {
            optimised: compiled.optimised,
            image_len: compiled.image.len(),
            time: compiled.times.total(),
        };
        let mut copied = Copied::new(bitcode.bytes(), b"sum");
        let image = self.store.insert_compiled(
            &mut copied,
            &compiled.image,
            compilation,
            Domain::default(),
            &self.resolver,
            None,
        )?;
        Ok(Contestant { name: "bitcode", library, image })
    }
}

/// The target's process, which ends with this value.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It ends with its standard input; a failure leaves nothing to do.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Serving {
    fn start(address: &str, library: &Path) -> Result<Serving, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(TARGET).arg(address).arg(library).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut serving = Serving(command.spawn()?);
        let ready = serving.0.stdout.take().map(|mut out| out.read(&mut [0; 8])).transpose()?;
        if ready != Some(6) {
            return Err("the target did not start".into());
        }
        Ok(serving)
    }
}

/// Runs the target whose own function is that of `library`.
pub(crate) fn serve(address: &str, library: &str) -> Result<(), Failure> {
    // SAFETY: this program built the library, from SOURCE.
    let library = unsafe { Library::load(library) }?;
    let mut lines = lines();
    let target = Target::listen(address).modes(Mode::ALL).local(&library);
    let target = target.bitcode(farjump::config::BitcodeUse::Preferred);
    // SAFETY: the functions read at most `LARGEST` bytes of `lines`, which outlives the target and is not used.
    let mut target = unsafe { target.args_raw(lines.as_mut_ptr().cast()) }.build()?;
    let stopper = target.stopper();
    std::thread::spawn(move || {
        // It ends with the process that started this one.
        let _ = std::io::stdin().read(&mut [0]);
        stopper.stop();
    });
    println!("ready");
    Ok(target.run()?)
}

pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let compiler = version()?;
    let folder = tempfile::tempdir()?;
    let cpu = detected();
    let own = Platform::baseline(cpu.machine());
    // On machines without levels there are two images.
    let level = Level::new(Machine::X86_64, 3).filter(|level| *level <= cpu.level());
    let v3 = level.filter(|_| cpu.machine() == Machine::X86_64);
    let store = Store::new(Arena::new(1 << 20)?);
    let resolver = Resolver::new(Exports::new());
    let mut builder = Builder { folder: folder.path().to_owned(), store, resolver };
    let reference = builder.library("reference", &[own], None, false)?;
    let mut all = vec![builder.contestant("baseline", own, None)?];
    if let Some(level) = v3 {
        all.push(builder.contestant("v3", Platform { level, ..own }, None)?);
    }
    all.push(builder.contestant("exact", own, Some((*cpu).clone()))?);
    all.push(builder.bitcode(own)?);
    let address = format!("unix:{}", folder.path().join("s").display());
    let _serving = Serving::start(&address, &reference)?;
    // SAFETY: it was built from SOURCE, whose routines are those of farjump_ifunc.h.
    let reference = unsafe { Library::load(&reference) }?;
    println!("{compiler}, {}; {cpu}, {} features", FLAGS.join(" "), cpu.features().len());
    let has_512_bits = cpu.features().iter().any(|feature| feature == "avx512f");
    let link = Link::connect(&address)?;
    for (bytes, bounds) in SIZES {
        let bounds: Vec<_> =
            bounds.iter().copied().filter(|(.., needs_512_bits)| has_512_bits || !needs_512_bits).collect();
        here(bytes, &reference, &all, rounds, &bounds)?;
        in_target(bytes, &reference, &all, rounds, &bounds, &link)?;
    }
    Ok(())
}

/// Measures all functions on this many bytes of this process, in turn in each round.
fn here(
    bytes: usize,
    reference: &Library,
    all: &[Contestant],
    rounds: usize,
    bounds: &[ImageBound],
) -> Result<(), Failure> {
    let mut lines = lines();
    let main = reference.main().ok_or("the library was loaded without its function")?;
    turns(&format!("sum of {} KiB of floats", bytes >> 10), all, rounds, bounds, |one| {
        time(one.map_or(main, |one| one.image.main()), &mut lines, bytes)
    })
}

/// Measures them on as many bytes of the target.
fn in_target(
    bytes: usize,
    reference: &Library,
    all: &[Contestant],
    rounds: usize,
    bounds: &[ImageBound],
    link: &Link,
) -> Result<(), Failure> {
    let work = Work::on(bytes);
    turns(&format!("sum of {} KiB of floats in a target", bytes >> 10), all, rounds, bounds, |one| {
        link.set_mode(if one.is_some() { Mode::Cached } else { Mode::Local });
        let library = one.map_or(reference, |one| &one.library);
        // The frame that brings the code, or names the function.
        link.inject(library, &Work { turns: 1, ..work }.to_bytes())?.wait(TIMEOUT)?;
        let start = Instant::now();
        link.inject(library, &work.to_bytes())?.wait(TIMEOUT)?;
        Ok(start.elapsed().as_nanos() as f64 / work.turns as f64)
    })
}

/// Measures in turn the reference and all others, in each round.
fn turns(
    what: &str,
    all: &[Contestant],
    rounds: usize,
    bounds: &[ImageBound],
    time: impl FnMut(Option<&Contestant>) -> Result<f64, Failure>,
) -> Result<(), Failure> {
    let time = &RefCell::new(time);
    let mut group = Group::new();
    group.subject("reference", || (time.borrow_mut())(None));
    for one in all {
        group.case(one.name, move || (time.borrow_mut())(Some(one)));
    }
    group.bound_of("bitcode", "exact", Limit::TimesAsLong(BITCODE_BOUND));
    // There is no v3 on other machines.
    for (name, most, _) in bounds.iter().filter(|(name, ..)| all.iter().any(|one| one.name == *name)) {
        group.bound_of(name, "reference", Limit::TimesAsLong(*most));
    }
    report::run(group, what.to_owned(), rounds)
}
