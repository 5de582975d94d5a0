//! More at once than a target takes in a turn of it: whoever is beside that keeps its turns.

use std::time::Duration;

use farjump::Target;
use farjump_control::Message;
use farjump_core::frame::{Kind, Plan, PlanCode};

use crate::functions::functions;
use crate::hostile::Hostile;
use crate::step::Signal;

/// Most messages of one source that a target takes each time that it is polled, and each time that it waits.
const MESSAGES: u64 = 8;
/// Most bytes that a look at a mailbox computes a checksum of.
const SUMMED: u64 = 16 << 10;
/// Messages that come at once.
const SENT: u64 = 100;
/// How often the target is polled.
const POLLS: u64 = 12;

impl Hostile<'_> {
    /// Sends a hundred messages, each of which has an answer, and leaves a frame behind that is torn; `false` without a link.
    fn burst(&mut self, seed: u64) -> bool {
        let (Some(control), Some(link)) = (&mut self.control, &mut self.link) else { return false };
        let function = &functions()[0];
        let code = PlanCode { image: &[], id: function.id(), epoch: link.epoch, name: function.name };
        let plan = Plan {
            kind: Kind::Call,
            wants_reply: false,
            alone: false,
            index: 0,
            token: 0,
            align_log2: 0,
            code: Some(code).filter(|_| Kind::Call.names_code()),
        };
        let payload = vec![0x41; link.wire.ring() / 8 * 7];
        link.wire.send(&plan, &payload, Some((seed, false)), Signal::Due);
        for _ in 0..SENT {
            // No target has such a mailbox.
            if control.wants_write()
                || control.send(&Message::Enlarge { frame: u64::MAX, payload: 1 }, &[]).is_err()
            {
                break;
            }
        }
        link.wire.channel().call_attention().is_ok()
    }

    /// How many of the messages of a burst have been answered since this was asked last.
    fn answers(&mut self) -> u64 {
        let Some(control) = &mut self.control else { return 0 };
        let mut answers = 0;
        while let Ok(Some((message, _))) = control.recv() {
            answers += u64::from(matches!(message, Message::Decline { .. }));
        }
        answers
    }
}

/// Lets a burst come over a link that was just made, and polls the target. Returns how many of its messages were taken, and how many
/// bytes checksums were computed of.
///
/// # Panics
/// When the target does more in a turn than it says.
pub fn bounded(target: &mut Target<'_>, hostile: &mut Hostile<'_>, seed: u64) -> (u64, u64) {
    if !hostile.burst(seed) {
        return (0, 0);
    }
    let (mut taken, mut summed) = (0, 0);
    for polls in 1..=POLLS {
        let (before, sources) = (target.stats(), target.sources() as u64);
        target.poll().expect("the target works");
        let after = target.stats();
        // A look at each mailbox, and one more behind each frame that it held.
        let (done, frames) = (after.summed - before.summed, after.frames - before.frames);
        let most = SUMMED * (sources + 2 * frames);
        assert!(
            done <= most,
            "a poll of {sources} sources that took {frames} frames computed checksums of {done} bytes, and may of {most}"
        );
        target.wait(Duration::ZERO).expect("the target waits");
        (taken, summed) = (taken + hostile.answers(), summed + done);
        // Over TCP answers may come late.
        let most = 2 * MESSAGES * polls;
        assert!(
            taken <= most,
            "after {polls} polls and waits {taken} messages of a source were taken, of {most} that may be"
        );
    }
    (taken, summed)
}
