//! Compares a thousand calls in flight that one task awaits with the same calls waited for, in one run:
//!
//! ```text
//! in-flight LIBSUM.SO [ROUNDS]
//! ```
//!
//! The target has a thread of its own. Rounds of each way take turns, so the machine is the same for both. Prints the
//! median time of a call for each way, and the median and the quartiles of its ratio to waiting.

use std::rc::Rc;
use std::time::{Duration, Instant};

use farjump::{Error, Library, Link, Pending, SharedLink, Target, export};
use tokio::task::{JoinSet, LocalSet};

type Failed = Box<dyn std::error::Error>;

/// Calls in flight at a time.
const CALLS: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(60);
const KEY: [u8; 8] = 1_u64.to_ne_bytes();
const VARIANTS: [&str; 5] = [
    "waited for",
    "awaited in one task",
    "awaited in a task each",
    "awaited on a shared link",
    "tasks that call nothing",
];

extern "C" fn store_get(_: *const (), key: u64) -> u64 {
    key
}

/// Returns the nanoseconds of a call since `start`.
fn each(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn injected<'l>(link: &'l Link, sum: &Library) -> Result<Vec<Pending<'l>>, Error> {
    (0..CALLS).map(|_| link.inject(sum, &KEY)).collect()
}

fn waited(link: &Link, sum: &Library) -> Result<f64, Failed> {
    let start = Instant::now();
    for call in injected(link, sum)? {
        call.wait(PATIENCE)?;
    }
    Ok(each(start))
}

async fn in_turn(link: &Link, sum: &Library) -> Result<f64, Failed> {
    let start = Instant::now();
    for call in injected(link, sum)? {
        call.await?;
    }
    Ok(each(start))
}

/// Makes each call in a local task.
async fn by_tasks(link: &Rc<Link>, sum: &Library) -> Result<f64, Failed> {
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..CALLS {
        let (link, sum) = (Rc::clone(link), sum.clone());
        tasks.spawn_local(async move { link.inject(&sum, &KEY)?.await.map(drop) });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(each(start))
}

/// Measures tokio's time for a local task that yields once, as one that awaits a call does.
async fn tasks_alone() -> Result<f64, Failed> {
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..CALLS {
        tasks.spawn_local(tokio::task::yield_now());
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(each(start))
}

async fn shared(link: &SharedLink, sum: &Library) -> Result<f64, Failed> {
    let (start, mut calls) = (Instant::now(), Vec::with_capacity(CALLS));
    for _ in 0..CALLS {
        calls.push(link.inject(sum, &KEY).await?);
    }
    for call in calls {
        call.await?;
    }
    Ok(each(start))
}

/// Returns the value at this part of sorted values.
fn at(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}

async fn measure(address: &str, library: &str, rounds: usize) -> Result<(), Failed> {
    let sum = Library::open(library)?;
    let link = Rc::new(Link::connect_async(address).await?);
    let other = Link::builder(address).connect_shared().await?;
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..=rounds {
        let one = [
            waited(&link, &sum)?,
            in_turn(&link, &sum).await?,
            by_tasks(&link, &sum).await?,
            shared(&other, &sum).await?,
            tasks_alone().await?,
        ];
        // The first brings the code.
        if round != 0 {
            times.iter_mut().zip(one).for_each(|(times, time)| times.push(time));
        }
    }
    for (way, own) in VARIANTS.iter().zip(&times) {
        let ratios: Vec<f64> = own.iter().zip(&times[0]).map(|(time, waited)| time / waited).collect();
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| at(ratios.clone(), part));
        println!("{way:<26} {:>8.1} ns {middle:>7.3}x  {low:.3}..{high:.3}", at(own.clone(), 0.5));
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (library, rounds) = match &args[..] {
        [library] => (library, 101),
        [library, rounds] => (library, rounds.parse()?),
        _ => return Err("usage: in-flight LIBSUM.SO [ROUNDS]".into()),
    };
    if rounds == 0 {
        return Err("measure at least 1 round".into());
    }
    let address = format!("unix:@farjump-in-flight-{}", std::process::id());
    let served = Target::listen(&address).exports([export!(store_get(_, _))]).build()?.spawn()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = LocalSet::new().block_on(&runtime, measure(&address, library, rounds));
    drop(served.stop()?);
    measured
}
