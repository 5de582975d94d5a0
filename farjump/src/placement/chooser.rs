//! The choice itself: the place at which a piece of work is done sooner.

use std::fmt;

use super::{Traffic, Wire};

/// Microseconds of work after which half of the estimate of a processor's speed is new.
const MEMORY_US: f64 = 100.0;
/// Microseconds of work that suffice to measure a speed.
const MIN_MEASURED_US: f64 = 20.0;
/// Less work than that counts as none: sums of estimates leave a remainder.
const NOTHING_US: f64 = 0.01;
/// The range of accepted speeds, as real times divided by estimated times.
const SPEEDS: [f64; 2] = [0.02, 50.0];

/// A piece of work that can be done at either place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hop {
    /// Number of the processor that runs functions at the data, from 0. Targets that share a processor have one number.
    pub owner: usize,
    /// The traffic of fetching the data.
    pub fetch: Traffic,
    /// The requests of that fetch.
    pub requests: usize,
    /// The traffic of a call at the data.
    pub call: Traffic,
    /// Estimated time of the work here on fetched data, in microseconds.
    pub here_us: f64,
    /// Estimated time that this process needs to send the call and to take its reply, in microseconds.
    pub call_us: f64,
    /// Estimated time of the work at the data, in microseconds.
    pub there_us: f64,
}

/// A place for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Here, on data that are fetched.
    Here,
    /// At the data, by a call.
    AtData,
}

/// A choice, and its reason. Its text says both: "at the data, where it is expected to take 12.0 us; here it would take 340.5 us".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// The place at which the work is done sooner.
    pub place: Place,
    /// Microseconds from now until the work would be done here, after all earlier work here.
    pub here_us: f64,
    /// Microseconds from now until the work would be done at the data, and its reply here.
    pub there_us: f64,
}

impl Choice {
    /// Returns whether the place is the one expected to take longer, tried to measure its time.
    pub fn is_trial(&self) -> bool {
        match self.place {
            Place::Here => self.here_us > self.there_us,
            Place::AtData => self.there_us > self.here_us,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { place, here_us, there_us } = *self;
        match (place, self.is_trial()) {
            (Place::AtData, _) if here_us == f64::INFINITY => {
                write!(out, "at the data, because the way there was not measured")
            }
            (Place::AtData, false) => {
                write!(
                    out,
                    "at the data, where it is expected to take {there_us:.1} us; here it would take {here_us:.1} us"
                )
            }
            (Place::Here, false) => {
                write!(
                    out,
                    "here, where it is expected to take {here_us:.1} us; at the data it would take {there_us:.1} us"
                )
            }
            (Place::AtData, true) => {
                write!(
                    out,
                    "at the data, to learn what it takes there: {there_us:.1} us are expected, and {here_us:.1} us here"
                )
            }
            (Place::Here, true) => {
                write!(
                    out,
                    "here, to learn what it takes here: {here_us:.1} us are expected, and {there_us:.1} us at the data"
                )
            }
        }
    }
}

/// Chooses for each of many pieces of work the place at which it is done sooner, by its size, the wire, and the load:
/// the remaining work at either place, and the speed measured there.
///
/// The rule is that of minimum completion time for machines that differ (Ibarra and Kim 1977): the next piece goes to
/// the place where it ends first. Times are microseconds of any clock that the program keeps to.
#[derive(Clone, Debug)]
pub struct Chooser {
    wire: Wire,
    /// Microseconds for a byte: a division for each hop would show.
    byte_us: f64,
    /// Time between two requests of fetches while the maximum of them is under way.
    pace_us: f64,
    /// Time at which the next request can be made.
    request_at: f64,
    here: Processor,
    owners: Vec<Processor>,
}

/// A processor with work.
#[derive(Clone, Copy, Debug)]
struct Processor {
    /// Estimated time of its remaining work.
    backlog_us: f64,
    /// The part of it that is not sent yet.
    unsent_us: f64,
    /// Real time divided by estimated time.
    speed: f64,
    /// Time since which it has surely been busy, and the estimated time of its work since then.
    busy: Option<(f64, f64)>,
}

impl Processor {
    const IDLE: Processor = Processor { backlog_us: 0.0, unsent_us: 0.0, speed: 1.0, busy: None };

    fn left_us(&self) -> f64 {
        self.backlog_us * self.speed
    }

    fn takes(&self, us: f64) -> f64 {
        us * self.speed
    }

    fn did(&mut self, us: f64) {
        self.backlog_us = (self.backlog_us - us).max(0.0);
    }

    /// Updates the speed: work of this estimated time took this time.
    fn learn(&mut self, estimated: f64, took: f64) {
        let weight = estimated / (estimated + MEMORY_US);
        let speed = (took / estimated).clamp(SPEEDS[0], SPEEDS[1]);
        self.speed += weight * (speed - self.speed);
    }
}

impl Chooser {
    /// A chooser for work over `wire`, with at most `window` requests of fetches under way (at least 1), and `owners`
    /// processors at the data.
    pub fn new(wire: Wire, window: usize, owners: usize) -> Chooser {
        Chooser {
            wire,
            byte_us: wire.bytes_per_us.recip(),
            pace_us: 2.0 * wire.latency_us / window.max(1) as f64,
            request_at: 0.0,
            here: Processor::IDLE,
            owners: vec![Processor::IDLE; owners],
        }
    }

    /// The wire.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Returns the real time of the work here, and of that of each processor at the data, divided by its estimated
    /// time. It is 1 if the estimates were right, and 2 if everything takes twice the time, as it does where other
    /// programs use half of the processor.
    pub fn speeds(&self) -> (f64, Vec<f64>) {
        (self.here.speed, self.owners.iter().map(|owner| owner.speed).collect())
    }

    /// Returns the times at which the work would be done at either place, in microseconds from `now_us`.
    ///
    /// # Panics
    /// When the chooser has no owner of the hop's number.
    #[inline]
    pub fn estimate(&self, now_us: f64, hop: &Hop) -> Choice {
        let latency_us = self.wire.latency_us;
        let time_us = |traffic: Traffic| {
            traffic.round_trips as f64 * 2.0 * latency_us + traffic.bytes as f64 * self.byte_us
        };
        let (here, owner) = (&self.here, &self.owners[hop.owner]);
        let busy_us = here.left_us();
        let waits_us = (self.request_at - now_us).max(0.0) + hop.requests as f64 * self.pace_us;
        let fetched_us = waits_us + time_us(hop.fetch);
        let here_us = fetched_us.max(busy_us) + here.takes(hop.here_us);
        // Its work of the last latency is not known yet, and the call is as long on its way.
        let begins_us = latency_us.max(owner.left_us() - latency_us);
        let replied_us = begins_us - latency_us + owner.takes(hop.there_us) + time_us(hop.call);
        let there_us = replied_us.max(busy_us) + here.takes(hop.call_us);
        let place = if here_us <= there_us { Place::Here } else { Place::AtData };
        Choice { place, here_us, there_us }
    }

    /// Chooses a place for the work, and counts the work there until [`Chooser::ended_here`] or
    /// [`Chooser::ended_there`]. Report a call by [`Chooser::sent`] when it goes out.
    ///
    /// # Panics
    /// As [`Chooser::estimate`].
    #[inline]
    pub fn choose(&mut self, now_us: f64, hop: &Hop) -> Choice {
        let choice = self.estimate(now_us, hop);
        match choice.place {
            Place::Here => {
                self.request_at = self.request_at.max(now_us) + hop.requests as f64 * self.pace_us;
                self.here.backlog_us += hop.here_us;
            }
            Place::AtData => {
                self.here.backlog_us += hop.call_us;
                let owner = &mut self.owners[hop.owner];
                owner.backlog_us += hop.there_us;
                owner.unsent_us += hop.there_us;
            }
        }
        choice
    }

    /// Notes that calls for work of these estimated times were sent. If several wait for each other to share a message,
    /// that is later than the choice, and the processor at the data may be idle before.
    ///
    /// # Panics
    /// When the chooser has no owner of this number.
    #[inline]
    pub fn sent(&mut self, owner: usize, estimated_us: f64) {
        let owner = &mut self.owners[owner];
        owner.unsent_us = (owner.unsent_us - estimated_us).max(0.0);
    }

    /// Notes that work of these estimated times has ended here: of hops that were chosen for this place, and of calls
    /// that were sent or whose reply was taken. `took_us` is the time that it took in all; `None` if that includes
    /// waits, for data or for replies.
    #[inline]
    pub fn ended_here(&mut self, estimated_us: f64, took_us: Option<f64>) {
        self.here.did(estimated_us);
        if let Some(took_us) = took_us
            && estimated_us > 0.0
        {
            self.here.learn(estimated_us, took_us);
        }
    }

    /// Notes that work of these estimated times has ended at the data: a reply has come, or its loss.
    ///
    /// # Panics
    /// When the chooser has no owner of this number.
    #[inline]
    pub fn ended_there(&mut self, now_us: f64, owner: usize, estimated_us: f64) {
        let unseen_us = 2.0 * self.wire.latency_us;
        let owner = &mut self.owners[owner];
        owner.did(estimated_us);
        if let Some((since, done)) = &mut owner.busy {
            *done += estimated_us;
            let (since, done) = (*since, *done);
            if done >= MIN_MEASURED_US {
                owner.learn(done, now_us - since);
                owner.busy = None;
            }
        }
        // With less work than fits the wire, the processor may have waited for a call.
        let was_busy = owner.left_us() - owner.unsent_us * owner.speed > unseen_us + NOTHING_US;
        owner.busy = if was_busy { owner.busy.or(Some((now_us, 0.0))) } else { None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(bytes: usize, us: f64) -> Hop {
        Hop {
            owner: 0,
            fetch: Traffic::of_fetch(bytes),
            requests: 1,
            call: Traffic::of_call(0, 0),
            here_us: us,
            call_us: 0.3,
            there_us: us,
        }
    }

    #[test]
    fn a_choice_says_its_place_and_both_times() {
        let said = |place, here_us, there_us| Choice { place, here_us, there_us }.to_string();
        let best = said(Place::AtData, 340.46, 12.0);
        assert_eq!(best, "at the data, where it is expected to take 12.0 us; here it would take 340.5 us");
        let tried = said(Place::Here, 340.0, 12.0);
        assert_eq!(
            tried,
            "here, to learn what it takes here: 340.0 us are expected, and 12.0 us at the data"
        );
        assert!(said(Place::Here, 1.0, 2.0).starts_with("here, where it is expected to take 1.0 us;"));
        assert!(said(Place::AtData, 1.0, 2.0).starts_with("at the data, to learn what it takes there: 2.0"));
        assert!(said(Place::AtData, f64::INFINITY, 0.0).contains("was not measured"));
        assert!(!Choice { place: Place::Here, here_us: 1.0, there_us: 1.0 }.is_trial());
    }

    #[test]
    fn a_single_hop_runs_at_its_data_above_the_modelled_length() {
        for wire in [0.0, 1.0, 5.0].map(Wire::with_latency) {
            let chooser = Chooser::new(wire, usize::MAX, 1);
            let from =
                wire.ahead_from(0.3, Traffic::of_call(0, 0), None).expect("it is ahead at some length");
            for (bytes, place) in [(from as usize - 8, Place::Here), (from as usize + 8, Place::AtData)] {
                assert_eq!(chooser.estimate(7.0, &hop(bytes, 2.0)).place, place, "{wire:?} {bytes}");
            }
        }
    }

    /// Simulates processors that follow the chooser, each hop at `speeds` times its estimate. Returns the time at which
    /// all is done, and the number of hops that ran at the data.
    fn simulate(wire: Wire, hops: &[Hop], speeds: [f64; 2], only: Option<Place>) -> (f64, usize) {
        let window = 16;
        let mut chooser = Chooser::new(wire, window, 1);
        let (mut here, mut there, mut now, mut request_at, mut last) =
            (0.0_f64, 0.0_f64, 0.0_f64, 0.0, 0.0_f64);
        // The time at which each hop under way ends, its place, and the hop.
        let mut ends: Vec<(f64, Place, Hop)> = Vec::new();
        let mut sent = 0;
        for hop in hops {
            // As a program does with so many hops under way.
            while ends.len() >= 32 {
                let next = (0..ends.len()).min_by(|a, b| ends[*a].0.total_cmp(&ends[*b].0)).expect("some");
                let (at, place, hop) = ends.swap_remove(next);
                now = now.max(at);
                match place {
                    Place::Here => chooser.ended_here(hop.here_us, Some(hop.here_us * speeds[0])),
                    Place::AtData => {
                        chooser.ended_here(hop.call_us, Some(hop.call_us * speeds[0]));
                        chooser.ended_there(at, hop.owner, hop.there_us);
                    }
                }
            }
            let place = only.unwrap_or_else(|| chooser.choose(now, hop).place);
            let end = match place {
                Place::Here => {
                    request_at = f64::max(request_at, now) + 2.0 * wire.latency_us / window as f64;
                    here = here.max(request_at + wire.time_us(hop.fetch)) + hop.here_us * speeds[0];
                    here
                }
                Place::AtData => {
                    sent += 1;
                    chooser.sent(hop.owner, hop.there_us);
                    here = here.max(now) + hop.call_us * speeds[0];
                    there = there.max(now + wire.latency_us) + hop.there_us * speeds[1];
                    there + wire.latency_us
                }
            };
            last = last.max(end);
            ends.push((end, place, *hop));
        }
        (last, sent)
    }

    #[test]
    fn work_is_shared_and_ends_sooner_than_at_either_place_alone() {
        let hops: Vec<_> =
            (0..4000).map(|number| hop(64 << (number % 8), 0.2 * f64::from(1 << (number % 6)))).collect();
        for (latency, speeds) in [(0.0, [1.0, 1.0]), (1.0, [1.0, 1.5]), (1.0, [2.0, 1.0]), (2.0, [1.0, 1.0])]
        {
            let wire = Wire::with_latency(latency);
            let (both, sent) = simulate(wire, &hops, speeds, None);
            let alone =
                [Place::Here, Place::AtData].map(|place| simulate(wire, &hops, speeds, Some(place)).0);
            let better = alone[0].min(alone[1]);
            assert!(both * 1.3 < better, "{latency} us, {speeds:?}: {both} and {alone:?}, {sent} sent");
        }
    }

    #[test]
    fn a_place_that_is_loaded_gets_less_work() {
        let hops: Vec<_> = (0..4000).map(|_| hop(4096, 2.0)).collect();
        let wire = Wire::with_latency(0.5);
        let sent = |speeds| simulate(wire, &hops, speeds, None).1;
        let (even, loaded, idle) = (sent([1.0, 1.0]), sent([1.0, 8.0]), sent([8.0, 1.0]));
        assert!(loaded * 2 < even && even * 3 / 2 < idle, "{loaded} {even} {idle}");
    }

    #[test]
    fn a_far_wire_with_few_requests_sends_what_it_can() {
        let hops: Vec<_> = (0..1000).map(|_| hop(256, 0.05)).collect();
        let (_, near) = simulate(Wire::with_latency(0.01), &hops, [1.0, 1.0], None);
        let (took, far) = simulate(Wire::with_latency(50.0), &hops, [1.0, 1.0], None);
        let alone = simulate(Wire::with_latency(50.0), &hops, [1.0, 1.0], Some(Place::AtData)).0;
        assert!(far > near && took < alone * 1.1, "{near} {far}: {took} and {alone}");
    }
}
