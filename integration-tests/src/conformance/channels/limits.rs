//! Capabilities: each verifiable claim, and values on both sides of each limit.

use farjump_core::channel::{Polled, SendError};
use farjump_core::frame::{DELIVERED_HEADER_LEN, INLINE_PAYLOAD, Kind, LINE, Plan};
use farjump_core::transport::{
    ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalMemory, Messages, RemoteMemory, Transport,
    TransportError,
};

use super::connect::{ChannelPair, Raw, judge};
use super::laps::{OVERHEAD, exchange_frames};
use super::stream::{Patience, Style};
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::Subject;

const RING: usize = 64 << 10;
/// Longest path on which a whole frame is tried, in bytes.
const LONGEST_TRIED: usize = 16 << 20;

/// Checks name and capabilities against the contract's text and against the endpoints.
pub(super) fn claims(subject: &Subject) -> Counted {
    let mut pair = subject.make();
    let mut claims = 0;
    for transport in [&mut pair.source, &mut pair.target] {
        claims += of_transport(&mut **transport, subject.rule())?;
    }
    let Raw { mut left, mut right, keep, capabilities, request, .. } = Raw::connect(subject, RING, RING)?;
    for (end, capabilities) in [&mut left, &mut right].into_iter().zip(&capabilities) {
        claims += check_endpoint(end, capabilities, request.region_len, subject.wakes())?;
    }
    drop((left, right));
    judge(&keep)?;
    Ok(claims)
}

fn of_transport(transport: &mut dyn Transport, rule: ArrivalRules) -> Counted {
    let capabilities = transport.capabilities();
    let name = transport.name();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!((1..=32).contains(&name.len()) && name.chars().all(plain), "{name:?} is no name of a transport");
    ensure!(capabilities == transport.capabilities(), "its capabilities change");
    ensure!(capabilities.arrival.contains(rule), "it does not offer {}", rule.describe());
    let delivers = capabilities.arrival.contains(ArrivalRules::DELIVERED);
    ensure!(
        delivers == (capabilities.inbox == InboxKind::TwoSided)
            && !(delivers && capabilities.arrival != ArrivalRules::DELIVERED),
        "{} does not go with a {:?} inbox",
        capabilities.arrival.describe(),
        capabilities.inbox
    );
    if capabilities.arrival.contains(ArrivalRules::STORES) {
        let also = ArrivalRules::FENCED | ArrivalRules::CHECKED;
        ensure!(capabilities.arrival.contains(also), "who offers stores offers fenced and checked too");
    }
    ensure!(capabilities.max_frame >= LINE, "its longest frame is {} bytes", capabilities.max_frame);
    Ok(5)
}

/// Checks the executable alias of the region, if the endpoint claims to support one: it is the same at each call, and
/// shows the same bytes.
fn executable(local: &mut dyn LocalMemory, in_place: bool) -> Result<(), Failure> {
    if !in_place {
        let refused =
            matches!(local.executable(), Err(error) if matches!(error.cause(), Cause::Unsupported(_)));
        ensure!(refused, "it says that its region cannot be executed, and maps it so");
        return Ok(());
    }
    let alias = local.executable()?;
    ensure!(local.executable()? == alias, "the executable mapping moves");
    ensure!(alias != local.base(), "the region is writable and executable at one address");
    ensure!(alias.addr().get().is_multiple_of(4096), "the executable mapping is not aligned to 4096");
    for at in [0, local.len() - 1] {
        // SAFETY: `LocalMemory` guarantees both mappings over the whole length, and nothing else uses them
        // now.
        let seen = unsafe {
            local.base().add(at).write_volatile(0xa5);
            let seen = alias.add(at).read_volatile();
            local.base().add(at).write_volatile(0);
            seen
        };
        ensure!(seen == 0xa5, "byte {at} of the executable mapping is another one");
    }
    Ok(())
}

fn check_endpoint(end: &mut Endpoint, capabilities: &Capabilities, asked: usize, wakes: bool) -> Counted {
    match end {
        Endpoint::OneSided { local, remote } => {
            ensure!(capabilities.inbox == InboxKind::OneSided, "the end is one-sided, its inbox is not");
            ensure!(
                local.len() >= asked && local.len().is_multiple_of(4096),
                "{} bytes of region",
                local.len()
            );
            ensure!(remote.len() >= asked, "the peer's region has {} bytes of {asked}", remote.len());
            ensure!(local.base().addr().get().is_multiple_of(4096), "the region is not aligned to 4096");
            // SAFETY: `LocalMemory` guarantees these bytes, and nothing has written any of them.
            let bytes = unsafe { std::slice::from_raw_parts(local.base().as_ptr(), local.len()) };
            ensure!(bytes.iter().all(|byte| *byte == 0), "the region is not zero at first");
            let stores = capabilities.arrival.contains(ArrivalRules::STORES);
            ensure!(!stores || remote.mapped().is_some(), "it offers stores and maps nothing");
            let aligned = remote.mapped().is_none_or(|at| at.addr().get().is_multiple_of(4096));
            ensure!(aligned, "the mapping is not aligned to 4096");
            executable(&mut **local, capabilities.in_place)?;
            ensure!(!wakes || local.descriptor().is_some(), "it has no descriptor to sleep on");
            Ok(9)
        }
        Endpoint::TwoSided(messages) => {
            ensure!(capabilities.inbox == InboxKind::TwoSided, "the end is two-sided, its inbox is not");
            ensure!(!wakes || messages.descriptor().is_some(), "it has no descriptor to sleep on");
            Ok(2)
        }
    }
}

/// Checks that frames of the limit pass, that frames over it are refused with both numbers, and that the link stays
/// usable.
pub(super) fn limits(subject: &Subject) -> Counted {
    let path = subject.max_frame()?;
    let mut tried = 0;
    for limit in [LINE, 4096, 10_048, path] {
        if limit <= path.min(LONGEST_TRIED) {
            tried += limit_of(subject, limit)?;
        }
    }
    ensure!(tried > 0, "no limit was tried");
    Ok(tried + past_the_end(subject)?)
}

fn limit_of(subject: &Subject, limit: usize) -> Counted {
    let ring = (2 * limit).next_power_of_two().max(8192);
    let mut ends = ChannelPair::connect(subject, ring, limit)?;
    let max = ends.left.max_frame();
    ensure!(max == limit, "frames of up to {limit} bytes were asked for, {max} are told");
    let longest = max.saturating_sub(OVERHEAD);
    let plan = Plan::of(Kind::Call);
    let style = Style { seed: limit as u64, sizes: &[longest, 0], varied: false };
    let mut counted = exchange_frames(&mut ends, style, 10)?;
    let least = match ends.left.has_mailbox() {
        true => (max - 63).max(INLINE_PAYLOAD + 1),
        false => max - DELIVERED_HEADER_LEN + 1,
    };
    for too_much in [least, max, max + 1, usize::MAX / 2, usize::MAX] {
        let refused = refused(&mut ends, &plan, too_much)?;
        ensure!(
            matches!(refused, Err(SendError::TooLarge { len, max: reported }) if len > reported && reported == max),
            "{too_much} bytes over a limit of {max} give {refused:?}"
        );
        counted += 1;
    }
    exchange_frames(&mut ends, Style { seed: !style.seed, ..style }, 2)?;
    ends.close(0)?;
    Ok(counted)
}

/// Reserves until the result is not "full".
fn refused(
    ends: &mut ChannelPair,
    plan: &Plan<'_>,
    payload: usize,
) -> Result<Result<(), SendError>, Failure> {
    let mut patience = Patience::new();
    loop {
        match ends.left.reserve(plan, payload) {
            Err(SendError::Full) => {}
            reply => return Ok(reply.map(drop)),
        }
        // The rest of the ring is skipped first, and the receiver has to see that.
        let seen = ends.right.poll()?;
        ensure!(matches!(seen, Polled::Nothing | Polled::Partial), "nothing was sent and {seen:?} came");
        ends.progress()?;
        patience.stuck(|| format!("there is never space for {payload} bytes"))?;
    }
}

/// Checks that the backend itself refuses writes past the region and messages over the limit, and writes nothing.
fn past_the_end(subject: &Subject) -> Counted {
    let raw = Raw::connect(subject, RING, RING)?;
    // The pair is not judged: core did not do this.
    match (raw.left, raw.right) {
        (Endpoint::OneSided { remote, .. }, Endpoint::OneSided { local, .. }) => {
            let name = subject.make().source.name().to_owned();
            outside(remote, &*local, &name)
        }
        (Endpoint::TwoSided(messages), Endpoint::TwoSided(_peer)) => {
            too_long(messages, raw.capabilities[0].max_frame)
        }
        _ => Err(Failure::new("its two ends are of different families")),
    }
}

fn outside(mut remote: Box<dyn RemoteMemory>, local: &dyn LocalMemory, name: &str) -> Counted {
    let region = remote.len();
    let bytes = [0xff; 128];
    // An empty put is allowed.
    remote.put(0, &[], 0)?;
    remote.put(region, &[], 0)?;
    let mut refused = 0;
    for (offset, len) in
        [(region - 64, 128), (region, 1), (region + 1, 1), (usize::MAX - 8, 64), (usize::MAX, 1)]
    {
        match remote.put(offset, &bytes[..len], 7) {
            Err(error) => refused += out_of_region(&error, name)?,
            Ok(()) => return Err(Failure::new(format!("{len} bytes at {offset} of {region} were taken"))),
        }
    }
    for offset in [region, region + 8, usize::MAX - 7] {
        match remote.put_word(offset, u64::MAX, 7) {
            Err(error) => refused += out_of_region(&error, name)?,
            Ok(()) => return Err(Failure::new(format!("a word at {offset} of {region} was taken"))),
        }
    }
    ensure!(remote.put_word(4097, 1, 7).is_err(), "a word at an odd offset was taken");
    // SAFETY: `LocalMemory` guarantees these bytes; no put could still be on its way.
    let inside = unsafe { std::slice::from_raw_parts(local.base().as_ptr(), local.len()) };
    ensure!(inside.iter().all(|byte| *byte == 0), "what was refused was written in part");
    Ok(refused + 1)
}

/// Checks the contents of the error.
fn out_of_region(error: &TransportError, name: &str) -> Counted {
    let text = error.to_string();
    ensure!(matches!(error.cause(), Cause::OutOfRegion { .. }), "a write outside the region gives: {text}");
    ensure!(text.contains(name) && error.frame() == Some(7), "an error without transport and frame: {text}");
    Ok(1)
}

fn too_long(mut messages: Box<dyn Messages>, max: usize) -> Counted {
    let mut refused = 0;
    for len in [max + 1, max + LINE, usize::MAX / 2] {
        match messages.reserve(len) {
            Err(error) if matches!(error.cause(), Cause::TooLarge { .. }) => refused += 1,
            other => return Err(Failure::new(format!("space for {len} bytes, over {max}: {other:?}"))),
        }
    }
    ensure!(messages.reserve(LINE).is_ok(), "a refusal of too much spoilt the end");
    Ok(refused)
}
