//! An expression over a mebibyte of rows, interpreted and as code that the function has made of it (the sample `filter`),
//! in turn in each round. `cargo build --release -p farjump-cli` builds the program that compiles, and belongs beside this one.

use std::time::{Duration, Instant};

use farjump::build::{self, Options};
use farjump::{Data, Library, Link, Target};
use farjump_benches::rounds::{Group, Limit};

use crate::{Failure, report};

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
        .bitcode(farjump::config::BitcodeUse::Fallback)
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
        let measure = |how: &str| -> Result<f64, Failure> {
            match call(how)? {
                (found, time) if found == counted => Ok(time.as_nanos() as f64),
                _ => Err(format!("`{expression}`: the two ways count otherwise").into()),
            }
        };
        let mut group = Group::new();
        group.subject("made code", || measure("c"));
        group.case("interpreted", || measure("i"));
        group.bound("interpreted", Limit::Sooner(3.0));
        group.note(move || format!("first call {first:.1?}"));
        report::run(group, format!("`{expression}`"), rounds)?;
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
