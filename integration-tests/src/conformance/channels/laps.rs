//! Frames of every size through the ring, lap after lap, each byte compared.

use std::thread;

use farjump_core::channel::Channel;

use super::connect::{ChannelPair, judge};
use super::stream::{Company, Patience, Receiver, Sender, Style, both};
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::Subject;

/// Lengths of payloads around every boundary: nothing, words, a payload in the header's line with and without a
/// trailer, lines, pages.
pub(super) const SIZES: [usize; 37] = [
    0, 1, 7, 8, 9, 16, 23, 24, 31, 32, 33, 39, 40, 41, 47, 48, 55, 56, 57, 63, 64, 65, 95, 96, 97, 119, 120,
    121, 127, 128, 129, 255, 1000, 2047, 4095, 4096, 4097,
];
/// Number of those in [`SIZES`] of which many fit in a small ring.
const SMALL: usize = 32;
/// Length of a small ring, and of a large one, in bytes.
const RING: usize = 16 << 10;
/// See [`RING`].
const LARGE_RING: usize = 256 << 10;
/// Lengths of payloads for a large ring.
const LARGE: [usize; 10] =
    [5000, 8191, 8192, 16384, 65535, 65536, 65537, 100_000, LARGE_RING / 2, LARGE_RING - 8192];
/// Bytes of the longest frame besides its payload, rounded up to lines. A payload that is shorter than the limit by
/// this makes a frame of exactly the limit, with or without a trailer.
pub(super) const OVERHEAD: usize = 72;

/// Sends every size class, with code, alignments and shrunken payloads in between, and frames as long as the ring or
/// the path.
pub(super) fn sizes(subject: &Subject) -> Counted {
    let mut counted = 0;
    let mut ends = ChannelPair::connect(subject, LARGE_RING, LARGE_RING)?;
    let longest = ends.left.max_frame() - OVERHEAD;
    let style = Style { seed: 1, sizes: &SIZES, varied: true };
    counted += exchange_frames(&mut ends, style, subject.frames(2, 500))?;
    ends.close(0)?;

    let fitting: Vec<usize> = LARGE.into_iter().filter(|size| *size <= longest).chain([longest]).collect();
    let mut ends = ChannelPair::connect(subject, LARGE_RING, LARGE_RING)?;
    counted += exchange_frames(&mut ends, Style { seed: 2, sizes: &fitting, varied: false }, 60)?;
    ends.close(0)?;

    // The longest frames, from positions all over the ring.
    let mut ends = ChannelPair::connect(subject, LARGE_RING, LARGE_RING)?;
    let sizes = [longest, 0, 41, 3000];
    counted += exchange_frames(&mut ends, Style { seed: 3, sizes: &sizes, varied: false }, 60)?;
    ends.close(counted)
}

/// Sends many laps of a small ring in both directions at once. The two channels take turns by a seed.
pub(super) fn laps(subject: &Subject) -> Counted {
    let mut ends = ChannelPair::connect(subject, RING, RING / 2)?;
    let style = Style { seed: 4, sizes: &SIZES[..SMALL], varied: true };
    let counted = exchange_frames(&mut ends, style, subject.frames(10, 10_000))?;
    ends.close(counted)
}

/// Does the same with a thread for each channel.
pub(super) fn threads(subject: &Subject) -> Counted {
    let (mut left, mut right, keep) = ChannelPair::connect(subject, RING, RING / 2)?.split();
    let frames = subject.frames(20, 10_000);
    let [to_right, to_left] = [5, 6].map(|seed| Style { seed, sizes: &SIZES[..SMALL], varied: false });
    let company = Company::default();
    let taken = thread::scope(|scope| {
        let other = scope.spawn(|| {
            company.work(&mut right, |channel| exchange_streams(channel, to_left, to_right, frames, &company))
        });
        let here =
            company.work(&mut left, |channel| exchange_streams(channel, to_right, to_left, frames, &company));
        let other = other.join().unwrap_or_else(|_| Err(Failure::new("the other end's thread panicked")));
        both(here, other)
    })?;
    drop((left, right));
    judge(&keep)?;
    Ok(taken)
}

/// Sends one stream and takes the other until both are done.
fn exchange_streams(
    channel: &mut Channel,
    out: Style<'_>,
    back: Style<'_>,
    frames: u64,
    company: &Company,
) -> Result<u64, Failure> {
    let (mut sender, mut receiver) = (Sender::new(out), Receiver::new(back));
    let mut patience = Patience::new();
    while sender.sent() < frames || receiver.taken() < frames {
        let sent = sender.sent() < frames && sender.send(channel)?;
        let took = receiver.take(channel)?;
        channel.progress(!sent && !took)?;
        if sent || took {
            patience.moved();
        } else {
            patience.stuck(|| format!("{} sent, {} taken", sender.sent(), receiver.taken()))?;
            company.check()?;
        }
    }
    Ok(receiver.taken())
}

/// Sends `frames` frames in each direction, compares and takes them. The channels take turns by the seed.
pub(super) fn exchange_frames(ends: &mut ChannelPair, style: Style<'_>, frames: u64) -> Counted {
    let back = Style { seed: !style.seed, ..style };
    let mut streams = [(Sender::new(style), Receiver::new(style)), (Sender::new(back), Receiver::new(back))];
    let mut rng = fastrand::Rng::with_seed(style.seed);
    let mut patience = Patience::new();
    while streams.iter().any(|(_, receiver)| receiver.taken() < frames) {
        let (one, other) = (&mut ends.left, &mut ends.right);
        let forward = rng.bool();
        let (from, to) = if forward { (one, other) } else { (other, one) };
        let (sender, receiver) = &mut streams[usize::from(!forward)];
        let mut moved = false;
        for _ in 0..rng.u8(0..12) {
            if sender.sent() == frames || !sender.send(from)? {
                break;
            }
            moved = true;
        }
        for _ in 0..rng.u8(0..12) {
            if !receiver.take(to)? {
                break;
            }
            moved = true;
        }
        if rng.u8(0..4) == 0 {
            ends.progress()?;
        }
        if moved {
            patience.moved();
        } else {
            ends.progress()?;
            let counts = streams.each_ref().map(|(sender, receiver)| (sender.sent(), receiver.taken()));
            patience.stuck(|| format!("of {frames} frames each way sent and taken: {counts:?}"))?;
        }
    }
    // One more poll: no unsent frame may arrive.
    for _ in 0..100 {
        ends.progress()?;
        for (channel, (_, receiver)) in [&mut ends.right, &mut ends.left].into_iter().zip(&mut streams) {
            ensure!(!receiver.take(channel)?, "a frame came that nobody sent");
        }
    }
    Ok(streams.iter().map(|(_, receiver)| receiver.taken()).sum())
}
