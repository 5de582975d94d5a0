//! Sums floats that are at rest in this process, as data in a target are: by the images of one library for
//! the baseline, for the CPU's level and for exactly this CPU. Each is compared with the function of the loaded
//! library, which is the same source compiled by the same compiler for the baseline.

use std::ffi::c_void;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use farjump::build::{Options, build};
use farjump::core::image::{Level, Machine};
use farjump::{Library, Platform};
use farjump_loader::{Arena, Exports, LinkedImage, Resolver, Store};
use farjump_os::cpu::detected;

use crate::Failure;
use crate::report::{self, Series};

const SOURCE: &str = "\
#include <farjump_ifunc.h>
struct data { const float *values; size_t count; float sum; };
FARJUMP_COPY_ARGS(sum)
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    struct data *data = args;
    float sum = 0;
    (void)payload;
    (void)size;
    for (size_t i = 0; i < data->count; i++)
        sum += data->values[i];
    data->sum = sum;
}
";
const COMPILER: &str = "clang";
/// Additions may change their order: without that no compiler uses vectors here.
const FLAGS: [&str; 2] = ["-O2", "-ffast-math"];
/// Bytes of floats, and the largest part of the reference's time that the v3 and the exact image may take.
const SIZES: [(usize, &str, &str); 4] = [
    (4 << 10, "", ""),
    (16 << 10, "<= 0.33 x reference", "<= 0.25 x with 512-bit vectors"),
    (64 << 10, "<= 0.40 x reference", "<= 0.40 x reference"),
    (1 << 20, "", ""),
];
/// Bytes that a measurement of one function sums at least.
const WORK: usize = 32 << 20;

/// Floats of one line of the cache: data that a target maps starts on one, too.
#[derive(Clone)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// `struct data` of the source.
#[repr(C)]
struct Data {
    values: *const f32,
    count: usize,
    sum: f32,
}

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Returns the nanoseconds of one call.
fn time(main: Main, lines: &[Line]) -> Result<f64, Failure> {
    let mut data = Data { values: lines.as_ptr().cast(), count: lines.len() * 16, sum: 0.0 };
    let calls = (WORK / size_of_val(lines)).max(1);
    let start = Instant::now();
    for _ in 0..calls {
        // SAFETY: the code was built from SOURCE, which takes `Data` and reads `count` floats at `values`.
        unsafe { main(std::ptr::null_mut(), 0, black_box(&raw mut data).cast()) };
    }
    let time = start.elapsed().as_nanos() as f64 / calls as f64;
    // All are whole numbers, whose sum is exact in any order.
    if data.sum != lines.iter().flat_map(|line| line.0).sum::<f32>() {
        return Err(format!("the sum is {}, which is wrong", data.sum).into());
    }
    Ok(time)
}

/// The first line of what the compiler says of itself.
fn version() -> Result<String, Failure> {
    let said = Command::new(COMPILER).arg("--version").output();
    let said = said.map_err(|error| format!("cannot run `{COMPILER}`, which this needs: {error}"))?;
    Ok(String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned())
}

pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let compiler = version()?;
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("sum.c");
    std::fs::write(&source, SOURCE)?;
    let cpu = detected();
    let own = Platform::baseline(cpu.machine());
    // On machines without levels there are two images.
    let level = Level::new(Machine::X86_64, 3).filter(|level| *level <= cpu.level());
    let v3 = level.filter(|_| cpu.machine() == Machine::X86_64);
    let v3 = v3.map(|level| Platform { level, ..own });
    let report = build(&Options {
        inputs: vec![source],
        output: folder.path().join("libsum.so"),
        targets: [own].into_iter().chain(v3).collect(),
        cpu: Some((*cpu).clone()),
        cc: Some(COMPILER.to_owned()),
        cflags: FLAGS.map(str::to_owned).to_vec(),
        ..Options::default()
    })?;
    // SAFETY: the library was built from SOURCE, whose routines are those of farjump_ifunc.h.
    let library = unsafe { Library::load(&report.library) }?;
    let reference = library.main().ok_or("the library was loaded without its function")?;
    let mut store = Store::new(Arena::new(1 << 20)?);
    let resolver = Resolver::new(Exports::new());
    let mut images = Vec::new();
    for image in &report.images {
        let name = match (image.features.is_empty(), image.target == own) {
            (false, _) => "exact",
            (true, true) => "baseline",
            (true, false) => "v3",
        };
        images.push((name, store.insert(&image.bytes, image.id, "sum", &resolver)?));
    }
    println!("{compiler}, {}; {cpu}, {} features", FLAGS.join(" "), cpu.features().len());
    report::heads();
    for (bytes, v3_bound, exact_bound) in SIZES {
        measure(bytes, reference, &images, rounds, &|name| match name {
            "v3" => v3_bound,
            "exact" => exact_bound,
            _ => "",
        })?;
    }
    Ok(())
}

/// Measures all functions on this many bytes, in turn in each round.
fn measure(
    bytes: usize,
    reference: Main,
    images: &[(&str, std::sync::Arc<LinkedImage>)],
    rounds: usize,
    bound: &dyn Fn(&str) -> &'static str,
) -> Result<(), Failure> {
    let line = Line(std::array::from_fn(|number| (number % 8) as f32));
    let lines = vec![line; bytes / size_of::<Line>()];
    let mut series: Vec<Series> = images.iter().map(|_| Series::default()).collect();
    for _ in 0..rounds {
        let baseline = time(reference, &lines)?;
        for ((_, image), series) in images.iter().zip(&mut series) {
            series.add(time(image.main(), &lines)?, baseline);
        }
    }
    for ((name, _), series) in images.iter().zip(&series) {
        series.print(&format!("sum of {} KiB of floats, {name}", bytes >> 10), "ns", bound(name));
    }
    Ok(())
}
