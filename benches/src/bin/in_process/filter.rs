//! An expression over a mebibyte of rows, interpreted and as code that the function has made of it (the sample `filter`),
//! in turn in each round. `cargo build --release -p farjump-cli` builds the program that compiles, and belongs beside this one.

use std::time::{Duration, Instant};

use farjump::build::{self, Options};
use farjump::{BitcodeUse, CompilerOptions, Data, Library, Link, Target};

use crate::Failure;

/// The sample.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/c/filter.c");
/// Bytes of the rows.
const BYTES: usize = 1 << 20;
const EXPRESSIONS: [&str; 4] = [
    "1",
    "a > 100",
    "a > 100 && (b + c) * 2 <= d",
    "(a < b) + (b < c) + (c < d) == 2 || a * a + b * b < 10000",
];
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the optimised image to replace the first one.
const SETTLE: Duration = Duration::from_millis(300);

/// Measures this many rounds.
///
/// # Errors
/// There is no compiler of C or of bitcode, or the two ways count differently.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("libfilter.so");
    let options = Options { inputs: vec![SOURCE.into()], output: library.clone(), ..Options::default() };
    build::build(&options)?;
    // SAFETY: it was built from the sample, whose routines are those of farjump_ifunc.h.
    let library = unsafe { Library::load(&library) }?;
    let address = format!("unix:{}", folder.path().join("s").display());
    let rows = Data::from_bytes(numbers().take(BYTES / 4).flat_map(i32::to_le_bytes).collect());
    let target = Target::listen(&address)
        .args_owned(rows)
        .allow_making(true)
        .compiler(CompilerOptions::default(), BitcodeUse::Fallback)
        .build()?
        .spawn()?;
    let link = Link::connect(&address)?;
    for expression in EXPRESSIONS {
        let call = |how: &str| -> Result<(Vec<u8>, Duration), Failure> {
            let args = format!("{how}4 {expression}");
            let start = Instant::now();
            let reply = link.inject(&library, args.as_bytes())?.wait(PATIENCE)?;
            Ok((reply.to_vec(), start.elapsed()))
        };
        let (counted, first) = call("c")?;
        std::thread::sleep(SETTLE);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (how, times) in ["i", "c"].iter().zip(&mut times) {
                let (found, time) = call(how)?;
                if found != counted {
                    return Err(format!("`{expression}`: the two ways count otherwise").into());
                }
                times.push(time);
            }
        }
        let mut ratios: Vec<f64> = times[0]
            .iter()
            .zip(&times[1])
            .map(|(one, other)| one.as_secs_f64() / other.as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        let [interpreted, made] = times.each_mut().map(median);
        println!(
            "`{expression}`: interpreted {interpreted:.1?}, made code {made:.1?}, {:.1}x sooner ({:.1} to {:.1}; bound 3), \
             first call {first:.1?}",
            ratios[rounds / 2],
            ratios[0],
            ratios[rounds - 1]
        );
    }
    drop(link);
    target.stop()?;
    Ok(())
}

/// Numbers from -1000 to 1000.
fn numbers() -> impl Iterator<Item = i32> {
    let mut state = 7_u32;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as i32 % 2001 - 1000
    })
}
