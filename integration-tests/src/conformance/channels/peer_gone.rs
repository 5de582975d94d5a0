//! The peer ends: the remaining endpoint gets an error, or receives nothing, and frames that had arrived are still
//! there.

use farjump_core::channel::{Channel, Polled, SendError};
use farjump_core::frame::{Kind, Plan};
use farjump_core::transport::{Cause, TransportError};

use super::connect::{ChannelPair, judge};
use super::stream::{Patience, Receiver, Sender, Style};
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::subject::Subject;

const RING: usize = 16 << 10;
/// Attempts of an endpoint that is alone.
const TRIES: u32 = 2_000;
/// Frames that had arrived when the peer ended.
const FRAMES: u64 = 5;

/// Drops one endpoint with frames on their way, and uses the other in every way.
pub(super) fn peer_gone(subject: &Subject) -> Counted {
    let mut counted = 0;
    for round in 0..10 {
        let mut ends = ChannelPair::connect(subject, RING, RING / 2)?;
        let style = Style { seed: 40 + round, sizes: &[0, 40, 41, 900], varied: false };
        let (mut sender, mut receiver) = (Sender::new(style), Receiver::new(style));
        let mut patience = Patience::new();
        while receiver.taken() < FRAMES {
            let sent = sender.sent() < FRAMES + round && sender.send(&mut ends.left)?;
            let took = receiver.take(&mut ends.right)?;
            ends.progress()?;
            match sent || took {
                true => patience.moved(),
                false => patience.stuck(|| format!("{} frames taken", receiver.taken()))?,
            }
        }
        let (left, mut right, keep) = ends.split();
        let notices = right.has_end();
        drop(left);
        let error = alone(&mut right, &mut receiver)?;
        ensure!(receiver.taken() <= sender.sent(), "more frames came than were sent");
        match error {
            Some(error) => {
                let is_gone = matches!(error.cause(), Cause::PeerGone | Cause::Unreachable(_));
                ensure!(is_gone, "the end of the peer shows as: {error}");
                ensure!(error.to_string().contains(error.transport()), "an error without a name: {error}");
            }
            None => ensure!(!notices, "it says that it notices the peer's end, and did not"),
        }
        drop(right);
        judge(&keep)?;
        counted += 1;
    }
    Ok(counted)
}

/// Takes remaining frames, sends, sleeps and makes progress, until an error.
fn alone(
    channel: &mut Channel,
    receiver: &mut Receiver<'_>,
) -> Result<Option<TransportError>, crate::conformance::Failure> {
    let plan = Plan::of(Kind::Call);
    for _ in 0..TRIES {
        match channel.poll() {
            Ok(Polled::Frame(_)) => {
                receiver.take(channel)?;
            }
            Ok(Polled::Nothing | Polled::Partial) => {}
            Err(error) => return Ok(Some(error)),
        }
        match channel.send_bytes(&plan, &[1; 100]) {
            Ok(()) | Err(SendError::Full) => {}
            Err(SendError::Failed(error)) => return Ok(Some(error)),
            Err(error @ SendError::TooLarge { .. }) => return Err(error.into()),
        }
        let end = channel.progress(true).and_then(|_| channel.arm()).and_then(|_| channel.disarm());
        if let Err(error) = end {
            return Ok(Some(error));
        }
    }
    Ok(None)
}
