//! More messages at once than a target takes in one of its turns: it still serves other peers in each turn.

use std::time::Duration;

use farjump::Target;
use farjump_control::Message;
use farjump_core::frame::{Kind, Plan};

use crate::hostile::Hostile;
use crate::step::Signal;

/// Most messages of one source that a target takes in each poll, and in each wait.
const MESSAGES: u64 = 8;
/// Most bytes that one poll of a mailbox checksums.
const SUMMED: u64 = 16 << 10;
/// Messages that arrive at once.
const SENT: u64 = 100;
/// Number of polls of the target.
const POLLS: u64 = 12;

impl Hostile<'_> {
    /// Sends a hundred messages, each of which gets a response, and leaves a torn frame behind. Returns `false`
    /// without a link.
    fn burst(&mut self, seed: u64) -> bool {
        let (Some(control), Some(link)) = (&mut self.control, &mut self.link) else { return false };
        let payload = vec![0x41; link.wire.ring() / 8 * 7];
        link.wire.send(&Plan::of(Kind::Call), &payload, Some((seed, false)), Signal::Due);
        for _ in 0..SENT {
            // No target makes such a mailbox.
            if control.wants_write()
                || control.send(&Message::LargeRequest { frame: u64::MAX, payload: 1 }, &[]).is_err()
            {
                break;
            }
        }
        link.wire.channel().notify().is_ok()
    }

    /// Number of messages of a burst that got a response since the last call.
    fn replies(&mut self) -> u64 {
        let Some(control) = &mut self.control else { return 0 };
        let mut replies = 0;
        while let Ok(Some((message, _))) = control.recv() {
            replies += u64::from(matches!(message, Message::LargeDecline { .. }));
        }
        replies
    }
}

/// Sends a burst over a new link, and polls the target. Returns the number of its messages that the target took, and
/// the number of bytes that it checksummed.
///
/// # Panics
/// When the target does more in a turn than its limits allow.
pub fn bounded(target: &mut Target<'_>, hostile: &mut Hostile<'_>, seed: u64) -> (u64, u64) {
    if !hostile.burst(seed) {
        return (0, 0);
    }
    let (mut taken, mut summed) = (0, 0);
    for polls in 1..=POLLS {
        let (before, sources) = (target.stats(), target.sources() as u64);
        target.poll().expect("the target works");
        let after = target.stats();
        // One poll of each mailbox, and one more behind each frame in it.
        let (done, frames) = (after.summed - before.summed, after.frames - before.frames);
        let most = SUMMED * (sources + 2 * frames);
        assert!(
            done <= most,
            "a poll of {sources} sources that took {frames} frames computed checksums of {done} bytes, and may of {most}"
        );
        target.wait(Duration::ZERO).expect("the target waits");
        (taken, summed) = (taken + hostile.replies(), summed + done);
        // A poll may check for events of the system, and a wait does, besides reading at a notice. Over TCP responses
        // may come late.
        let most = 3 * MESSAGES * polls;
        assert!(
            taken <= most,
            "after {polls} polls and waits {taken} messages of a source were taken, of {most} that may be"
        );
    }
    (taken, summed)
}
