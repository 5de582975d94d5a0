//! Back-pressure: a sender without credit gets an error, and nothing is lost.

use farjump_core::transport::InboxKind;

use super::connect::ChannelPair;
use super::stream::{Patience, Receiver, Sender, Style};
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::subject::Subject;

const RING: usize = 16 << 10;
/// Attempts in a row after which the path counts as full.
const FULL: u32 = 500;
/// Bytes after which filling a two-sided path stops: its own limit applies.
const ENOUGH: u64 = 8 << 20;
/// Length of a payload, in bytes.
const SIZE: usize = 1000;
/// Number of times that the path is filled and emptied.
const ROUNDS: u32 = 30;

/// Fills the path, then takes everything, over and over.
pub(super) fn full(subject: &Subject) -> Counted {
    let one_sided = subject.make().source.capabilities().inbox == InboxKind::OneSided;
    let mut ends = ChannelPair::connect(subject, RING, RING / 2)?;
    let style = Style { seed: 7, sizes: &[SIZE], varied: false };
    let (mut sender, mut receiver) = (Sender::new(style), Receiver::new(style));
    let mut filled = 0;
    for _ in 0..ROUNDS {
        let before = sender.sent();
        let mut refused = 0;
        while refused < FULL && (sender.sent() - before) * (SIZE as u64) < ENOUGH {
            if sender.send(&mut ends.left)? {
                refused = 0;
            } else {
                refused += 1;
                ends.left.progress(true)?;
            }
        }
        if one_sided {
            ensure!(refused == FULL, "a ring of {RING} bytes took {} frames", sender.sent() - before);
            let in_flight = ends.left.in_flight();
            ensure!(
                in_flight.is_some_and(|bytes| bytes <= RING as u64),
                "{in_flight:?} bytes are in flight to a ring of {RING}"
            );
        }
        filled += u64::from(refused == FULL);
        let mut patience = Patience::new();
        while receiver.taken() < sender.sent() {
            if receiver.take(&mut ends.right)? {
                patience.moved();
            } else {
                ends.progress()?;
                patience.stuck(|| format!("{} frames sent, {} taken", sender.sent(), receiver.taken()))?;
            }
        }
    }
    ensure!(filled > 0 || !one_sided, "the ring was never full");
    ends.close(receiver.taken())
}
