//! Any number of frames in one direction, of every size that a packet can have and more. Each byte is compared the
//! moment the frame counts as arrived. This also runs under a rule that the path does not honour, to check that the
//! receiver can see a torn frame.

use std::thread;

use farjump_core::transport::ArrivalRules;

use super::connect::{ChannelPair, judge};
use super::stream::{Company, Patience, Receiver, Sender, Style};
use crate::conformance::failure::Failure;
use crate::conformance::subject::Subject;

/// Lengths of payloads: around powers of two from 8 B to 8 KiB, all equally often.
const SIZES: [usize; 26] = [
    8, 16, 24, 32, 33, 40, 48, 64, 65, 96, 100, 128, 129, 200, 255, 256, 300, 512, 1000, 1024, 2000, 2048,
    4095, 4096, 8191, 8192,
];
/// Length of the ring, in bytes.
const RING: usize = 64 << 10;

/// The observations of a stream of frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Frames with all bytes right.
    pub whole: u64,
    /// Polls that found a frame without its end, for which the rule makes the receiver wait.
    pub partial: u64,
    /// The first frame that was wrong when it counted as arrived, and right a moment later. The stream ends there.
    pub torn: Option<String>,
}

/// Sends `frames` frames of 8 B to 8 KiB from one thread to another over the subject's path, under `rule`, which need
/// not be the subject's own.
///
/// # Errors
/// Any fault except a torn frame.
pub fn stream(subject: &Subject, rule: ArrivalRules, frames: u64) -> Result<Stream, Failure> {
    let (mut left, mut right, keep) = ChannelPair::connect_under(subject, rule, RING, RING / 2)?.split();
    let style = Style { seed: 60, sizes: &SIZES, varied: false };
    let (mut sender, mut receiver) = (Sender::new(style), Receiver::new(style));
    let company = Company::default();
    let (sent, taken) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            company.work(&mut left, |channel| {
                let mut patience = Patience::new();
                while sender.sent() < frames {
                    if sender.send(channel)? {
                        patience.moved();
                    } else {
                        channel.progress(true)?;
                        company.check()?;
                        patience.stuck(|| format!("{} sent", sender.sent()))?;
                    }
                }
                Ok(sender.sent())
            })
        });
        let taken = company.work(&mut right, |channel| {
            let mut patience = Patience::new();
            while receiver.taken() < frames {
                if receiver.take(channel)? {
                    patience.moved();
                } else {
                    channel.progress(true)?;
                    company.check()?;
                    patience.stuck(|| format!("{} taken", receiver.taken()))?;
                }
            }
            Ok(receiver.taken())
        });
        let sent = sending.join().unwrap_or_else(|_| Err(Failure::new("the sender's thread panicked")));
        (sent, taken)
    });
    drop((left, right));
    judge(&keep)?;
    let mut seen = Stream { whole: receiver.taken(), partial: receiver.partial(), torn: None };
    match taken {
        Err(failure) if receiver.found_torn() => seen.torn = Some(failure.to_string()),
        taken => _ = super::stream::both(sent, taken)?,
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Pair;
    use crate::fakes::{FakeOneSided, Rule};

    /// The fake that honours exactly `rule`.
    fn fake(rule: Rule, arrival: ArrivalRules) -> Subject {
        Subject::new("fake", arrival, move || {
            Pair::new(Box::new(FakeOneSided::new(rule, 1)), Box::new(FakeOneSided::new(rule, 2)))
        })
    }

    #[test]
    fn a_path_that_keeps_its_rule_tears_no_frame() {
        for (rule, arrival) in [(Rule::Fenced, ArrivalRules::FENCED), (Rule::InOrder, ArrivalRules::IN_ORDER)]
        {
            let seen = stream(&fake(rule, arrival), arrival, 500).unwrap();
            assert_eq!((seen.whole, seen.torn), (500, None));
        }
    }

    #[test]
    fn frames_torn_by_an_unordered_path_are_detected() {
        let seen =
            stream(&fake(Rule::Fenced, ArrivalRules::FENCED), ArrivalRules::IN_ORDER, 100_000).unwrap();
        let torn = seen.torn.unwrap();
        assert!(torn.contains("torn: "), "{torn}");
        assert!(seen.whole < 100_000);
    }
}
