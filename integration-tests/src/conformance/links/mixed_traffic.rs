//! Everything at once, by a seed: calls of all kinds in flight, one-way calls, flushes, lost code, refusals.

use farjump::{CallError, Error, Link, Pending};

use super::calls::{fill_args, same};
use super::one_way_streams::witness_args;
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::host::{Args, Fixture, Host, PATIENCE};
use crate::conformance::libraries::Libraries;
use crate::conformance::pattern;

/// Most calls in flight.
const IN_FLIGHT: usize = 40;
const SEED: u64 = 51;

/// The expected outcome of a call.
#[derive(Debug)]
enum Due {
    Bytes(Vec<u8>),
    Panic(String),
    Refusal,
}

pub(in crate::conformance) fn mix(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let mut mix = Mix {
        link: &link,
        libraries: fixture.libraries,
        rng: fastrand::Rng::with_seed(SEED),
        in_flight: Vec::new(),
        longest: fixture.fitting(40_000),
        witnessed: 0,
        step: 0,
        ended: 0,
    };
    for _ in 0..fixture.frames(5, 600) {
        mix.step(&mut host)?;
    }
    while !mix.in_flight.is_empty() {
        mix.take()?;
    }
    let (ended, witnessed) = (mix.ended, mix.witnessed);
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == witnessed, "{witnessed} calls were to be witnessed, {word} were");
    Ok(ended + witnessed)
}

struct Mix<'l> {
    link: &'l Link,
    libraries: &'static Libraries,
    rng: fastrand::Rng,
    in_flight: Vec<(Pending<'l>, Due)>,
    /// Length of the longest payload.
    longest: usize,
    witnessed: u64,
    step: u64,
    ended: u64,
}

impl<'l> Mix<'l> {
    fn step(&mut self, host: &mut Host<'_>) -> Result<(), Failure> {
        self.step += 1;
        let Libraries { echo, fill, witness, missing, panics, .. } = self.libraries;
        match self.rng.u8(0..100) {
            0..30 => {
                let len = self.len();
                let bytes = pattern::bytes(len, SEED, self.step);
                let call = self.link.inject(echo, &bytes)?;
                self.add(call, Due::Bytes(bytes))
            }
            30..50 => {
                let len = self.len();
                let call = self.link.inject(fill, &fill_args(len, SEED, self.step))?;
                self.add(call, Due::Bytes(pattern::bytes(len, SEED, self.step)))
            }
            50..65 => {
                let len = 16 + self.len() / 2;
                self.link.send(witness, &witness_args(SEED, self.witnessed, len))?;
                self.witnessed += 1;
                Ok(())
            }
            65..75 => {
                // Some messages share a frame; some are too long for that or of another length.
                let mut batch = self.link.batch();
                let len = 16 + self.rng.usize(0..300);
                for number in 0..self.rng.usize(1..60) {
                    let len = if number % 20 == 19 { len + 1 } else { len };
                    batch.send(witness, &witness_args(SEED, self.witnessed, len))?;
                    self.witnessed += 1;
                }
                Ok(batch.finish()?)
            }
            75..79 => {
                let message = format!("step {}", self.step);
                let call = self.link.inject(panics, message.as_bytes())?;
                self.add(call, Due::Panic(message))
            }
            79..82 => {
                let call = self.link.inject(missing, b"")?;
                self.add(call, Due::Refusal)
            }
            82..84 => Ok(self.link.flush(PATIENCE)?),
            84..86 => {
                let lost = [echo, fill, witness, panics][self.rng.usize(0..4)];
                host.drop_code(lost).map(|_| ())
            }
            86..88 if !self.in_flight.is_empty() => {
                let index = self.rng.usize(0..self.in_flight.len());
                self.in_flight.swap_remove(index).0.cancel();
                Ok(())
            }
            _ => self.take(),
        }
    }

    /// Draws a length, mostly small, now and then large.
    fn len(&mut self) -> usize {
        match self.rng.u8(0..10) {
            0..7 => self.rng.usize(0..200),
            7..9 => self.rng.usize(0..5000),
            _ => self.rng.usize(0..self.longest),
        }
    }

    fn add(&mut self, call: Pending<'l>, due: Due) -> Result<(), Failure> {
        self.in_flight.push((call, due));
        if self.in_flight.len() > IN_FLIGHT { self.take() } else { Ok(()) }
    }

    /// Takes the outcome of any call.
    fn take(&mut self) -> Result<(), Failure> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let index = self.rng.usize(0..self.in_flight.len());
        let (call, due) = self.in_flight.swap_remove(index);
        self.ended += 1;
        match (call.wait(PATIENCE), due) {
            (Ok(reply), Due::Bytes(bytes)) => same(&reply, &bytes),
            (Err(Error::Call(CallError::Panicked { message, .. })), Due::Panic(due)) if message == due => {
                Ok(())
            }
            (Err(Error::Call(CallError::Refused { .. })), Due::Refusal) => Ok(()),
            (ended, due) => {
                // Long replies add nothing to their lengths.
                let ended = ended.map(|reply| reply.len());
                Err(Failure::new(format!("in step {} {due:.60?} was due: {ended:?}", self.step)))
            }
        }
    }
}
