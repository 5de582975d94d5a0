//! The choice between calling a function at its data and fetching the data, for functions whose cost is learnt.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farjump::placement::{Choice, Chooser, Cost, Hop, Place, Sample, Traffic, Wire};

/// Number of outcomes of a function at one place that are kept.
const REMEMBERED: usize = 16;
/// Number of choices after which to try the other place again, if its expected time is at most [`AGAIN`] times the
/// better one.
const TRY_EVERY: u64 = 32;
const AGAIN: f64 = 1.5;
/// An unknown place is tried if its expected time is at most this many times the better one.
const FIRST: f64 = 3.0;

/// A piece of work: a function on an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Identifies the function.
    pub function: u128,
    /// Length of the object in bytes.
    pub len: u64,
    /// Length of the arguments in bytes.
    pub args: u64,
}

/// Chooses between the object's owner and this process for pieces of work, and learns from the times that they took. It
/// is the chooser of [`farjump::placement`], for functions of unknown cost.
#[derive(Debug)]
pub struct Placement {
    owners: HashMap<String, Owner>,
    begun: Instant,
}

#[derive(Debug)]
struct Owner {
    chooser: Chooser,
    functions: HashMap<u128, Learnt>,
}

/// The samples of a function, by bytes of its object.
#[derive(Debug, Default)]
struct Learnt {
    /// Calls at the owner: their whole time except for the wire's.
    there: VecDeque<Sample>,
    /// Work here, without the fetch.
    here: VecDeque<Sample>,
    /// Fetches of its objects.
    fetch: VecDeque<Sample>,
    choices: u64,
}

fn remember(samples: &mut VecDeque<Sample>, units: u64, time: Duration) {
    if samples.len() == REMEMBERED {
        samples.pop_front();
    }
    samples.push_back(Sample { calls: 1.0, units: units as f64, us: time.as_secs_f64() * 1e6 });
}

/// Returns the expected time of a piece of `units` bytes, in microseconds. Pieces of a similar length predict it better
/// than a line through all: caches make the line bend.
fn expected(samples: &VecDeque<Sample>, units: u64) -> Option<f64> {
    let is_near = |sample: &&Sample| {
        let ratio = (sample.units + 1.0) / (units as f64 + 1.0);
        (0.5..=2.0).contains(&ratio)
    };
    let mut near: Vec<f64> = samples.iter().rev().filter(is_near).take(5).map(|sample| sample.us).collect();
    if near.is_empty() {
        return Cost::fit(samples.iter().copied()).map(|cost| cost.of(units as f64));
    }
    near.sort_by(f64::total_cmp);
    Some(near[near.len() / 2])
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::new()
    }
}

impl Placement {
    /// Makes a placement that knows nothing yet.
    pub fn new() -> Placement {
        Placement { owners: HashMap::new(), begun: Instant::now() }
    }

    /// The wire to the owner at `address`, if it was set.
    pub fn wire(&self, address: &str) -> Option<Wire> {
        Some(self.owners.get(address)?.chooser.wire())
    }

    /// Sets the wire to the owner at `address`.
    pub fn set_wire(&mut self, address: &str, wire: Wire) {
        let owner = Owner { chooser: Chooser::new(wire, 1, 1), functions: HashMap::new() };
        self.owners.insert(address.to_owned(), owner);
    }

    /// Forgets the wire to the owner at `address`, and the times of its functions, for an owner that has ended.
    pub fn drop_owner(&mut self, address: &str) {
        self.owners.remove(address);
    }

    fn now_us(&self) -> f64 {
        self.begun.elapsed().as_secs_f64() * 1e6
    }

    /// Chooses, for an owner whose wire was set. For any other owner all work is done at the data. Report the outcome
    /// by [`Placement::ended_there`] or [`Placement::ended_here`].
    pub fn choose(&mut self, address: &str, work: &Work) -> Choice {
        let now_us = self.now_us();
        let Some(owner) = self.owners.get_mut(address) else {
            return Choice { place: Place::AtData, here_us: f64::INFINITY, there_us: 0.0 };
        };
        let learnt = owner.functions.entry(work.function).or_default();
        learnt.choices += 1;
        let hop = hop(learnt, work);
        let mut choice = owner.chooser.estimate(now_us, &hop);
        // An unknown place is tried now and then, unless it surely costs much more.
        let other_is_known = match choice.place {
            Place::Here => learnt.there.len() >= 2,
            Place::AtData => learnt.here.len() >= 2,
        };
        let (better, other) = match choice.place {
            Place::Here => (choice.here_us, choice.there_us),
            Place::AtData => (choice.there_us, choice.here_us),
        };
        let is_tried = match other_is_known {
            false => other <= better * FIRST,
            true => learnt.choices.is_multiple_of(TRY_EVERY) && other <= better * AGAIN,
        };
        if is_tried {
            choice.place = if choice.place == Place::Here { Place::AtData } else { Place::Here };
        }
        choice
    }

    /// Records that the function ran at the owner: `took` in all, with a reply of `reply` bytes.
    pub fn ended_there(&mut self, address: &str, work: &Work, reply: u64, took: Duration) {
        let Some(owner) = self.owners.get_mut(address) else { return };
        let traffic = Traffic::of_call(usize_of(work.args), usize_of(reply));
        let wire =
            Duration::try_from_secs_f64(owner.chooser.wire().time_us(traffic) / 1e6).unwrap_or_default();
        let learnt = owner.functions.entry(work.function).or_default();
        remember(&mut learnt.there, work.len, took.saturating_sub(wire));
    }

    /// Records that the function ran here: the fetch of the object took `fetched`, and the function `took`.
    pub fn ended_here(&mut self, address: &str, work: &Work, fetched: Duration, took: Duration) {
        let Some(owner) = self.owners.get_mut(address) else { return };
        let learnt = owner.functions.entry(work.function).or_default();
        remember(&mut learnt.here, work.len, took);
        remember(&mut learnt.fetch, work.len, fetched);
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the work as the chooser sees it. The time at a place that was not tried is taken from the other place: the
/// processors count as alike until they show otherwise.
fn hop(learnt: &Learnt, work: &Work) -> Hop {
    let here = expected(&learnt.here, work.len);
    let there = expected(&learnt.there, work.len);
    let (here_us, there_us) = match (here, there) {
        (Some(here), Some(there)) => (here, there),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (None, None) => (0.0, 0.0),
    };
    let call = Traffic::of_call(usize_of(work.args), 0);
    // An earlier fetch predicts the time better than the wire: mapped bytes that were touched cost nothing.
    let hop = Hop {
        owner: 0,
        fetch: Traffic::of_fetch(usize_of(work.len)),
        requests: 0,
        call,
        here_us,
        call_us: 0.0,
        there_us,
    };
    match expected(&learnt.fetch, work.len) {
        Some(fetch_us) => Hop { fetch: Traffic::default(), here_us: here_us + fetch_us, ..hop },
        None => hop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "unix:owner";

    fn of(len: u64) -> Work {
        Work { function: 1, len, args: 16 }
    }

    fn us(time: f64) -> Duration {
        Duration::from_secs_f64(time / 1e6)
    }

    /// Simulates a world in which a byte takes these times to fetch, and to process here and there. Returns the
    /// choices.
    fn settle(placement: &mut Placement, len: u64, fetch: f64, here: f64, there: f64) -> Vec<Place> {
        let choose = |_| {
            let place = placement.choose(OWNER, &of(len)).place;
            match place {
                Place::Here => {
                    placement.ended_here(
                        OWNER,
                        &of(len),
                        us(1.0 + fetch * len as f64),
                        us(here * len as f64),
                    );
                }
                Place::AtData => placement.ended_there(OWNER, &of(len), 8, us(2.0 + there * len as f64)),
            }
            place
        };
        (0..200).map(choose).collect()
    }

    fn mostly(places: &[Place], wanted: Place) -> bool {
        places.iter().filter(|place| **place == wanted).count() >= places.len() * 9 / 10
    }

    #[test]
    fn work_goes_where_it_turned_out_to_be_sooner() {
        let wire = Wire { latency_us: 0.4, bytes_per_us: 8000.0 };
        for (len, fetch, here, there, better) in [
            (100 << 20, 1e-4, 1e-4, 1e-4, Place::AtData),
            (100 << 20, 0.0, 1e-4, 1e-3, Place::Here),
            (64, 0.0, 1e-4, 1e-1, Place::Here),
        ] {
            let mut placement = Placement::new();
            placement.set_wire(OWNER, wire);
            let places = settle(&mut placement, len, fetch, here, there);
            assert!(mostly(&places, better), "{len} bytes, {better:?}: {places:?}");
        }
    }

    #[test]
    fn a_certainly_much_slower_place_is_never_tried() {
        let mut placement = Placement::new();
        placement.set_wire(OWNER, Wire { latency_us: 5.0, bytes_per_us: 100.0 });
        let places = settle(&mut placement, 100 << 20, 1e-2, 1e-4, 1e-4);
        assert!(places.iter().all(|place| *place == Place::AtData), "{places:?}");
    }

    #[test]
    fn without_a_wire_all_is_done_at_the_data() {
        let mut placement = Placement::new();
        assert_eq!(placement.choose(OWNER, &of(64)).place, Place::AtData);
        placement.ended_there(OWNER, &of(64), 8, us(1.0));
        assert_eq!(placement.wire(OWNER), None);
        placement.set_wire(OWNER, Wire { latency_us: 5.0, bytes_per_us: 100.0 });
        placement.drop_owner(OWNER);
        assert_eq!(placement.wire(OWNER), None);
    }
}
