//! The bounds on figures.

use std::ops::RangeInclusive;

use super::goals::Side::{AtLeast, AtMost};
use super::goals::{Bound, Of, Side};

const ANY: RangeInclusive<u64> = 0..=u64::MAX;

const fn bound(
    (what, against): (&'static str, &'static str),
    (section, metric): (&'static str, &'static str),
    (transport, reference): (&'static str, &'static str),
    sizes: RangeInclusive<u64>,
    side: Side,
    (near, far): (f64, f64),
) -> Bound {
    let (of, sources) = (Of::Ratio, None);
    Bound { what, against, section, metric, of, transport, reference, sizes, sources, side, near, far }
}

/// A bound on a message's cost in a machine with an RDMA device, apart from time.
const fn count(
    what: &'static str,
    of: Of,
    section: &'static str,
    transport: &'static str,
    most: f64,
) -> Bound {
    let what = (what, "");
    let bound = bound(what, (section, "rate"), (transport, "raw"), ANY, AtMost, (most, most));
    Bound { of, ..bound }
}

/// A bound on latency in such a machine: up to 220 bytes travel inside a request.
const fn inside(
    what: &'static str,
    section: &'static str,
    transport: &'static str,
    reference: &'static str,
    most: f64,
) -> Bound {
    let what = (what, reference);
    bound(what, (section, "latency"), (transport, reference), 0..=220, AtMost, (most, most))
}

/// A bound over TCP, where a line's transfer between processors is a small part of any time.
const fn over_tcp(
    what: (&'static str, &'static str),
    section: (&'static str, &'static str),
    between: (&'static str, &'static str),
    side: Side,
    limit: f64,
) -> Bound {
    bound(what, section, between, ANY, side, (limit, limit))
}

/// All bounds.
pub(crate) const BOUNDS: [Bound; 36] = [
    bound(
        ("one-way, cached, `shm`, up to 40 B", "raw ping-pong, one line each way"),
        ("floor", "latency"),
        ("shm", "raw"),
        0..=40,
        AtMost,
        (1.05, 1.05),
    ),
    bound(
        ("one-way, cached, `shm`, up to 1 KiB", "UCX active message"),
        ("latency", "latency"),
        ("shm", "ucx-am"),
        0..=1024,
        AtMost,
        (0.4, 0.6),
    ),
    bound(
        ("one-way, cached, `shm`", "iceoryx2, same payload, polling"),
        ("iceoryx2", "latency"),
        ("shm", "iceoryx2"),
        ANY,
        AtMost,
        (0.4, 0.4),
    ),
    bound(
        ("one-way, cached, `ucx-put`, every size", "UCX active message"),
        ("latency", "latency"),
        ("ucx-put", "ucx-am"),
        ANY,
        AtMost,
        (0.5, 0.6),
    ),
    bound(
        ("message rate, cached, `shm`, up to 32 B, 64 given at a time", "UCX active message"),
        ("rate-batch", "rate"),
        ("shm", "ucx-am"),
        0..=32,
        AtLeast,
        (4.0, 3.0),
    ),
    bound(
        ("message rate, cached, `shm`, up to 32 B, 64 given at a time", "one 64-byte line a message, raw"),
        ("rate-batch", "rate"),
        ("shm", "raw"),
        0..=32,
        AtLeast,
        (1.2, 1.2),
    ),
    bound(
        ("message rate, cached, `shm`, 64 B to 1 KiB", "UCX active message"),
        ("rate", "rate"),
        ("shm", "ucx-am"),
        64..=1024,
        AtLeast,
        (1.5, 1.5),
    ),
    bound(
        ("bandwidth, 1 MiB, `shm`", "memcpy into the same memory"),
        ("bandwidth", "bandwidth"),
        ("shm", "memcpy"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    bound(
        ("one-way, code in every message, `shm`, below 1 KiB", "the same function as UCX active message"),
        ("always", "latency"),
        ("shm", "ucx-am"),
        0..=1023,
        AtMost,
        (1.0, 1.0),
    ),
    bound(
        ("one-way, code in every message, `shm`, from 1 KiB", "the same function as UCX active message"),
        ("always", "latency"),
        ("shm", "ucx-am"),
        1024..=u64::MAX,
        AtMost,
        (0.8, 0.8),
    ),
    bound(
        ("first call of never-seen code, arrival to return", "dlopen, dlsym and call of the same library"),
        ("first-call", "first-call"),
        ("shm", "dlopen"),
        ANY,
        AtMost,
        (0.05, 0.05),
    ),
    Bound {
        sources: Some(256),
        ..bound(
            ("one-way, 256 connected sources of which one is active", "one connected source"),
            ("scaling", "scaling-latency"),
            ("shm", "alone"),
            ANY,
            AtMost,
            (1.2, 1.2),
        )
    },
    bound(
        ("wake-up after idle, `shm`", "a bare futex wake"),
        ("wake-up", "wake-up"),
        ("shm", "futex"),
        ANY,
        AtMost,
        (1.3, 1.3),
    ),
    inside(
        "one-way, cached, `verbs-write`, up to 220 B, Linux 6.12",
        "verbs-latency",
        "verbs-write",
        "ib_write_lat",
        1.3,
    ),
    inside(
        "one-way, cached, `verbs-write`, up to 220 B, Linux 6.1",
        "verbs-latency-6.1",
        "verbs-write",
        "ib_write_lat",
        1.3,
    ),
    inside(
        "one-way, cached, `verbs-send`, up to 220 B, Linux 6.12",
        "verbs-latency",
        "verbs-send",
        "ib_send_lat",
        1.2,
    ),
    inside(
        "one-way, cached, `verbs-send`, up to 220 B, Linux 6.1",
        "verbs-latency-6.1",
        "verbs-send",
        "ib_send_lat",
        1.2,
    ),
    bound(
        ("bandwidth, 1 MiB, `verbs-write`, Linux 6.12", "ib_write_bw"),
        ("verbs-bandwidth", "bandwidth"),
        ("verbs-write", "ib_write_bw"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    bound(
        ("bandwidth, 1 MiB, `verbs-write`, Linux 6.1", "ib_write_bw"),
        ("verbs-bandwidth-6.1", "bandwidth"),
        ("verbs-write", "ib_write_bw"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    count(
        "work requests for a message, `verbs-write`, 16 given at a time",
        Of::Requests,
        "verbs-batch",
        "verbs-write",
        0.125,
    ),
    count(
        "work requests for a message, `verbs-send`, 16 given at a time",
        Of::Requests,
        "verbs-batch",
        "verbs-send",
        0.125,
    ),
    count(
        "completions for a message, `verbs-write`, at the sender",
        Of::Completions,
        "verbs-batch",
        "verbs-write",
        0.03125,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp-clear`", "as many bytes over a stream"),
        ("tcp-latency", "latency"),
        ("tcp-clear", "stream"),
        AtMost,
        1.05,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp-clear`", "UCX active message over TCP"),
        ("tcp-latency", "latency"),
        ("tcp-clear", "ucx-am-tcp"),
        AtMost,
        0.9,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp`, processors with AES", "`tcp-clear`"),
        ("tcp-latency", "latency"),
        ("tcp", "clear"),
        AtMost,
        1.08,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp-clear`", "64 calls that are each a record"),
        ("tcp-rate", "rate"),
        ("tcp-clear", "single"),
        AtLeast,
        12.0,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp`", "64 calls that are each a record"),
        ("tcp-rate", "rate"),
        ("tcp", "single"),
        AtLeast,
        12.0,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp`", "`tcp-clear`"),
        ("tcp-rate", "rate"),
        ("tcp", "clear"),
        AtLeast,
        0.75,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`", "a loop of the same writes"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.95,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`", "a loop of the same writes, records and AEAD"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.95,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`", "`tcp-clear`"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp", "clear"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`, packets take 5 ms", "a loop of the same writes"),
        ("tcp-delay-5", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`, packets take 5 ms", "a loop of the same writes, records and AEAD"),
        ("tcp-delay-5", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`, packets take 20 ms", "a loop of the same writes"),
        ("tcp-delay-20", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`, packets take 20 ms", "a loop of the same writes, records and AEAD"),
        ("tcp-delay-20", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.8,
    ),
    Bound {
        sources: Some(256),
        ..over_tcp(
            ("one-way, 256 connected sources of which one is active, `tcp`", "one connected source"),
            ("tcp-scaling", "scaling-latency"),
            ("tcp", "alone"),
            AtMost,
            1.15,
        )
    },
];
