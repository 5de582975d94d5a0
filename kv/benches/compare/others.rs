//! The effects of functions and links on other clients.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Library, Link};
use farjump_benches::rounds::{Group, Limit, Result, quantile};
use farjump_fixtures::process::PATIENCE;
use rustix::thread::set_current_timer_slack;

use crate::client::{Client, request};
use crate::data::FIRST;
use crate::server::until;
use crate::setup::{Fixture, Rig};

/// Number of GETs of one measurement.
const GETS: usize = 3000;
/// Length of a function, and time from one to the next.
const WORK: Duration = Duration::from_micros(10);
const PERIOD: Duration = Duration::from_micros(20);
/// Maximum number of calls that a late source sends together.
const MOST_LATE: u32 = 4;

/// The 99th percentile of GETs, in nanoseconds.
fn tail_of_gets(client: &mut Client) -> Result<f64> {
    let get = request(&[b"GET", FIRST]);
    let mut times = Vec::with_capacity(GETS);
    for _ in 0..GETS {
        let start = Instant::now();
        client.run(&get)?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(quantile(&times, 0.99))
}

/// A source beside the client. It wakes for each period, and sends a function if `sends` is set.
struct Load<'l> {
    address: String,
    library: &'l std::path::Path,
    sends: bool,
    is_ready: AtomicBool,
    is_over: AtomicBool,
}

impl Load<'_> {
    /// Runs until the load is over. Returns the share of time that functions took, as they were sent.
    ///
    /// # Errors
    /// The error as text, because it is another thread's.
    fn run(&self) -> std::result::Result<f64, String> {
        self.send().map_err(|error| error.to_string())
    }

    fn send(&self) -> Result<f64> {
        let library = Library::open(self.library)?;
        let link = Link::builder(&self.address).transport("shm").connect()?;
        let count = iterations(&link, &library)?.to_le_bytes();
        set_current_timer_slack(NonZeroU64::new(1))?;
        let (start, mut due, mut sent) = (Instant::now(), Instant::now(), 0_u32);
        self.is_ready.store(true, Ordering::Release);
        while !self.is_over.load(Ordering::Acquire) {
            due += PERIOD;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let late = due.elapsed().as_nanos() / PERIOD.as_nanos();
            let missed = u32::try_from(late).unwrap_or(u32::MAX);
            due += PERIOD * missed;
            // Periods missed beyond this are left out: a burst would be another load.
            for _ in 0..missed.saturating_add(1).min(MOST_LATE) {
                if self.sends {
                    link.send(&library, &count)?;
                }
                sent += 1;
            }
        }
        let share = f64::from(sent) * WORK.as_secs_f64() / start.elapsed().as_secs_f64();
        link.flush(PATIENCE)?;
        Ok(share)
    }
}

/// Returns the count with which the function `work` takes 10 us.
fn iterations(link: &Link, library: &Library) -> Result<u64> {
    let long = 400_000_u64;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        link.inject(library, &long.to_le_bytes())?.wait(PATIENCE)?;
        best = best.min(start.elapsed());
    }
    Ok((long as f64 * WORK.as_secs_f64() / best.as_secs_f64()) as u64)
}

/// GETs of a client, while a source sends functions of 10 us that take half of the server's time.
///
/// # Errors
/// None so far.
pub(crate) fn tail<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let mut group = Group::new();
    let least = Rc::new(Cell::new(f64::INFINITY));
    let library = rig.fixture.built.library_file("work");
    let shared = least.clone();
    let measure = move |sends: bool| -> Result<f64> {
        let load = Load {
            address: rig.fixture.address(),
            library: &library,
            sends,
            is_ready: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        };
        let (tail, share) = thread::scope(|scope| {
            let source = scope.spawn(|| load.run());
            while !load.is_ready.load(Ordering::Acquire) && !source.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            let tail = tail_of_gets(&mut rig.client.borrow_mut());
            load.is_over.store(true, Ordering::Release);
            (tail, source.join().map_err(|_| "the source has panicked".to_owned()))
        });
        let share = share??;
        if sends {
            shared.set(shared.get().min(share));
        }
        tail
    };
    let measure = Rc::new(measure);
    let without = measure.clone();
    group.subject("with functions", move || measure(true));
    group.case("without", move || without(false));
    group.bound("without", Limit::Longer(30_000.0));
    group.note(move || {
        format!("Functions took at least {:.0} % of the server's time in each round.", 100.0 * least.get())
    });
    group.note(|| {
        "Three on two cores: the server, and on the other core the client and the source, which wakes every 20 us in both cases."
            .to_owned()
    });
    Ok(group)
}

/// Number of idle links.
const IDLE: usize = 80;

/// GETs of a client, with and without idle links.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn links<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let fixture = rig.fixture;
    let mut group = Group::new();
    let library = fixture.library("empty")?;
    let gets = move || -> Result<f64> {
        let get = request(&[b"GET", FIRST]);
        let client = &mut rig.client.borrow_mut();
        let start = Instant::now();
        (0..GETS).try_for_each(|_| client.run(&get).map(drop))?;
        Ok(start.elapsed().as_nanos() as f64 / GETS as f64)
    };
    group.subject("80 idle links", move || {
        let links = (0..IDLE).map(|_| connect(fixture)).collect::<Result<Vec<Link>>>()?;
        for link in &links {
            link.inject(&library, &[])?.wait(PATIENCE)?;
        }
        let figure = gets();
        drop(links);
        // One link is left, that of the group.
        until("the server to notice that links have ended", || {
            fixture.server.client().info("farjump", "farjump_links").as_deref() == Some("1")
        });
        figure
    });
    group.case("one idle link", gets);
    group.bound("one idle link", Limit::TimesAsLong(1.05));
    Ok(group)
}

fn connect(fixture: &Fixture<'_>) -> Result<Link> {
    Ok(Link::builder(&fixture.address()).transport("shm").connect()?)
}
