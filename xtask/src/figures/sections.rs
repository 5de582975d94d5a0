//! The sections of the results: one run of `farjump perf` each.

use std::time::Duration;

/// A run, and its presentation.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its name, used by `--only` and for its files.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Its subject, in a sentence or two.
    pub(crate) about: &'static str,
    /// Arguments of `farjump perf`.
    pub(crate) args: &'static [&'static str],
    /// Whether it has a picture.
    pub(crate) picture: bool,
    /// The kernel of the virtual machine that it is measured in, by series; none for this machine itself.
    pub(crate) kernel: Option<&'static str>,
    /// Features of farjump's that are off by default.
    pub(crate) features: Option<&'static str>,
    /// Time limit.
    pub(crate) limit: Duration,
    /// Least number of rounds, where the figures need more than others.
    pub(crate) rounds: u32,
    /// Delay of packets from source to target, which are then in network namespaces of their own.
    pub(crate) delay: Option<Duration>,
    /// Whether it is measured with the newest UCX that farjump was tested with, and not with the system's.
    pub(crate) newest_ucx: bool,
}

const MINUTES: u64 = 60;

impl Section {
    const fn new(
        name: &'static str,
        title: &'static str,
        about: &'static str,
        args: &'static [&'static str],
    ) -> Section {
        let limit = Duration::from_secs(3 * MINUTES);
        let (picture, kernel, features, rounds, delay) = (false, None, None, 1, None);
        let newest_ucx = false;
        Section { name, title, about, args, picture, kernel, features, limit, rounds, delay, newest_ucx }
    }

    const fn drawn(self) -> Section {
        Section { picture: true, ..self }
    }

    const fn with(self, features: &'static str) -> Section {
        Section { features: Some(features), ..self }
    }

    const fn by_newest_ucx(self) -> Section {
        Section { newest_ucx: true, ..self }
    }

    /// Measured in a virtual machine, which has an RDMA device.
    const fn inside(self, kernel: &'static str) -> Section {
        Section { kernel: Some(kernel), limit: Duration::from_secs(10 * MINUTES), ..self }
    }

    /// Measured in so many pairs that a ratio close to 1 can be distinguished from 1.
    const fn paired(self, rounds: u32) -> Section {
        Section { rounds, ..self }
    }

    const fn delayed(self, milliseconds: u64) -> Section {
        Section { delay: Some(Duration::from_millis(milliseconds)), ..self }
    }

    const fn up_to(self, minutes: u64) -> Section {
        Section { limit: Duration::from_secs(minutes * MINUTES), ..self }
    }
}

/// All sections, in the order of running and showing.
pub(crate) const SECTIONS: [Section; 32] = [
    Section::new(
        "latency",
        "One-way latency: the paper's figure 3",
        "Mode cached over every transport that is usable here, beside UCX's active messages, with a handler that counts.",
        &["latency", "--sizes", "1..1M", "--transports", "all", "--against", "ucx-am"],
    )
    .drawn()
    .up_to(5),
    Section::new(
        "rate",
        "Message rate: the paper's figure 4",
        "The same as a stream of one-way calls.",
        &["rate", "--sizes", "1..1M", "--transports", "all", "--against", "ucx-am"],
    )
    .drawn()
    .up_to(5),
    Section::new(
        "latency-newest-ucx",
        "One-way latency with the newest UCX",
        "Transports over UCX beside its active messages, by the newest UCX that farjump was tried with (a wheel of PyPI).",
        &["latency", "--sizes", "1..64K", "--transports", "ucx-put,ucx-am", "--against", "ucx-am"],
    )
    .by_newest_ucx(),
    Section::new(
        "rate-newest-ucx",
        "Message rate with the newest UCX",
        "The same as a stream of one-way calls.",
        &["rate", "--sizes", "1..64K", "--transports", "ucx-put,ucx-am", "--against", "ucx-am"],
    )
    .by_newest_ucx(),
    Section::new(
        "floor",
        "One-way latency beside the floor",
        "Against a line of 64 bytes each way through memory of both processes, and nothing else.",
        &["latency", "--sizes", "1..32,40", "--transports", "shm", "--against", "raw"],
    ),
    Section::new(
        "rate-floor",
        "Message rate beside the floor",
        "Against a ring of one line a message, which is stored and polled, and nothing else.",
        &["rate", "--sizes", "1..32", "--transports", "shm", "--against", "raw"],
    ),
    Section::new(
        "rate-batch",
        "Message rate, 64 messages given at a time",
        "farjump puts small calls into one frame (`Link::batch`). Neither baseline has such a thing: a program \
         would send each call.",
        &["rate", "--sizes", "1..1K", "--batch", "64", "--transports", "shm", "--against", "raw,ucx-am"],
    )
    .drawn(),
    Section::new(
        "bandwidth",
        "Bandwidth",
        "Against one process that copies as many bytes into the same kind of memory.",
        &["bandwidth", "--sizes", "64K,1M", "--transports", "all", "--against", "memcpy"],
    ),
    Section::new(
        "always",
        "Code in every message",
        "Mode always, the paper's: the code travels with each call. UCX's active messages have it at the target \
         already.",
        &["latency", "--sizes", "1,8,64,512,1K,8K,64K,1M", "--mode", "always", "--transports", "shm", "--against", "ucx-am"],
    ),
    Section::new(
        "image",
        "Length of the code",
        "Calls of 8 bytes, with code of increasing length of which two instructions run. The code is sent each time \
         and run from the store (always), or sent each time and run where it lies (in place), beside code that \
         travelled once (cached).",
        &[
            "latency", "--image", "64..64K", "--mode", "always,in-place", "--transports", "shm", "--against", "cached",
        ],
    )
    .drawn(),
    Section::new(
        "first-call",
        "First calls",
        "Code that the target has never seen, from its arrival to its reply, against loading a library with the \
         same code and calling it.",
        &["first-call", "--transports", "shm", "--against", "dlopen"],
    ),
    Section::new(
        "work",
        "Useful work",
        "Functions that do something with their payload: as an ifunc, as an active message of UCX, and by fetching the data to \
         the source.",
        &["work", "--functions", "all", "--sizes", "64..1M", "--against", "ucx-am,fetch"],
    )
    .drawn()
    .up_to(4),
    Section::new(
        "ring-1g",
        "The paper's ring",
        "Slots of 1 KiB in half of a heap of 2 GiB, as the paper's prototype has them.",
        &[
            "rate", "--sizes", "1", "--transports", "shm", "--against", "ucx-am,ucx-put,raw", "--ring", "1G", "--slot",
            "1K", "--iterations", "1100000",
        ],
    ),
    Section::new(
        "ring-1m",
        "The same in a ring that fits the cache",
        "Slots of 1 KiB in 1 MiB.",
        &[
            "rate", "--sizes", "1", "--transports", "shm", "--against", "ucx-am,ucx-put,raw", "--ring", "1M", "--slot",
            "1K", "--iterations", "1100000",
        ],
    ),
    Section::new(
        "scaling",
        "Many sources",
        "Several sources are connected to one target. A ratio is of their number to one source alone, in the same \
         round.",
        &["scaling", "--sources", "1..256"],
    )
    .drawn()
    .up_to(4),
    Section::new(
        "wake-up",
        "Waking a target that sleeps",
        "From injecting into a target that was idle and sleeps, to the end of the function.",
        &["wake-up", "--against", "futex,ucx-wait"],
    ),
    Section::new(
        "idle",
        "Processor time of an idle target",
        "Processor time for each second.",
        &["idle"],
    ),
    Section::new(
        "iceoryx2",
        "Beside iceoryx2",
        "Its publish and subscribe between two processes, polled, with samples written in place.",
        &["latency", "--sizes", "8,64,512,4K,32K", "--transports", "shm", "--against", "iceoryx2"],
    )
    .with("iceoryx2"),
    Section::new(
        "perftest",
        "Latency of UCX by its own tool",
        "A check of the baseline against UCX's own tool: `ucx_perftest` on the same processors, in the same rounds.",
        &["latency", "--sizes", "8,1K,64K", "--transports", "shm", "--against", "perftest"],
    ),
    Section::new(
        "perftest-rate",
        "Message rate of UCX by its own tool",
        "The same as a stream.",
        &["rate", "--sizes", "8,1K", "--transports", "shm", "--against", "perftest"],
    ),
    Section::new(
        "tcp-latency",
        "TCP: latency",
        "Over loopback, sealed (`tcp`) and clear (`tcp-clear`), beside as many bytes over a stream by the same \
         system calls, and UCX's active messages over TCP.",
        &[
            "latency", "--sizes", "8", "--transports", "tcp,tcp-clear", "--against", "stream,stream-sealed,clear,ucx-am-tcp",
            "--iterations", "256", "--warmup", "64",
        ],
    )
    .paired(301),
    Section::new(
        "tcp-rate",
        "TCP: 64 messages given at a time",
        "Over loopback, beside the same calls that are each a record, and a write.",
        &[
            "rate", "--sizes", "8", "--batch", "64", "--transports", "tcp,tcp-clear", "--against", "single,clear",
            "--iterations", "16384",
        ],
    )
    .paired(51),
    Section::new(
        "tcp-bandwidth",
        "TCP: bandwidth",
        "Over loopback, beside a loop of the same writes; if sealed, with the same records and the same AEAD.",
        &[
            "bandwidth", "--sizes", "1M", "--transports", "tcp,tcp-clear", "--against", "stream,stream-sealed,clear",
            "--iterations", "16", "--warmup", "4",
        ],
    )
    .paired(151),
    Section::new("tcp-delay-5", "TCP: bandwidth where packets take 5 ms", TCP_DELAY, &DELAY).delayed(5).paired(15).up_to(6),
    Section::new("tcp-delay-20", "TCP: bandwidth where packets take 20 ms", TCP_DELAY, &DELAY).delayed(20).paired(15).up_to(10),
    Section::new(
        "tcp-scaling",
        "TCP: many sources",
        "256 sources connected over loopback, of which one is active.",
        &["scaling", "--sources", "256", "--active", "1", "--transports", "tcp"],
    )
    .up_to(4),
    Section::new("verbs-latency", "Raw verbs: latency (Soft-RoCE, virtual machine, Linux 6.12)", VERBS_LATENCY, &LATENCY)
        .inside("6.12"),
    Section::new("verbs-latency-6.1", "Raw verbs: latency (Soft-RoCE, virtual machine, Linux 6.1)", VERBS_LATENCY, &LATENCY)
        .inside("6.1"),
    Section::new("verbs-bandwidth", "Raw verbs: bandwidth (Soft-RoCE, virtual machine, Linux 6.12)", VERBS_BANDWIDTH, &BANDWIDTH)
        .inside("6.12"),
    Section::new("verbs-bandwidth-6.1", "Raw verbs: bandwidth (Soft-RoCE, virtual machine, Linux 6.1)", VERBS_BANDWIDTH, &BANDWIDTH)
        .inside("6.1"),
    Section::new("verbs-batch", "Raw verbs: 16 messages given at a time (Soft-RoCE, virtual machine, Linux 6.12)", VERBS_BATCH, &BATCH)
        .inside("6.12"),
    Section::new("verbs-batch-6.1", "Raw verbs: 16 messages given at a time (Soft-RoCE, virtual machine, Linux 6.1)", VERBS_BATCH, &BATCH)
        .inside("6.1"),
];

const TCP_DELAY: &str = "Two network namespaces with a tun device each, and threads that delay packets. Both \
                         streams have the same options.";
const DELAY: [&str; 11] = [
    "bandwidth",
    "--sizes",
    "1M",
    "--transports",
    "tcp,tcp-clear",
    "--against",
    "stream,stream-sealed",
    "--iterations",
    "64",
    "--warmup",
    "64",
];
const VERBS_LATENCY: &str = "Mode cached, beside perftest's programs over the same device, port and GID. The machine is emulated and has two \
                             processors, which it shares with its own device; the two processes are pinned to one each and spin, \
                             farjump's and perftest's alike. Only ratios are meaningful there.";
const VERBS_BANDWIDTH: &str = "As above, a stream of one-way calls. perftest's receiver sleeps in a read meanwhile, \
                               and farjump's target sleeps while nothing comes; a target that polls all the time \
                               takes the processor of the device.";
const VERBS_BATCH: &str = "The work of the device for the sender's process, for each message: lists of work \
                           requests, requests in them, and completions. It includes the words that return credit, \
                           and two flushes.";
const LATENCY: [&str; 9] = [
    "latency",
    "--sizes",
    "8,40,200",
    "--transports",
    "verbs-write,verbs-send",
    "--against",
    "ib_write_lat,ib_send_lat",
    "--iterations",
    "2000",
];
const BANDWIDTH: [&str; 12] = [
    "bandwidth",
    "--sizes",
    "1M",
    "--transports",
    "verbs-write,verbs-send",
    "--against",
    "ib_write_bw",
    "--target-sleeps",
    "--iterations",
    "30",
    "--warmup",
    "3",
];
const BATCH: [&str; 11] = [
    "rate",
    "--sizes",
    "8,32",
    "--batch",
    "16",
    "--transports",
    "verbs-write,verbs-send",
    "--against",
    "raw",
    "--iterations",
    "4800",
];

/// The name of all sections that are measured in virtual machines.
const VERBS: &str = "verbs";

/// The section of this name, or those in virtual machines.
pub(crate) fn named(name: &str) -> Result<Vec<&'static Section>, String> {
    let is_meant = |section: &&Section| section.name == name || (name == VERBS && section.kernel.is_some());
    let found: Vec<_> = SECTIONS.iter().filter(is_meant).collect();
    if found.is_empty() {
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        return Err(format!(
            "there is no section `{name}`: there are {}; and {VERBS} for those in virtual machines",
            names.join(", ")
        ));
    }
    Ok(found)
}
