//! Metrics, and the baselines that each can be compared with.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::perf) enum Metric {
    Latency,
    Rate,
    Bandwidth,
    FirstCall,
    Work,
    Scaling,
    WakeUp,
    Idle,
    Tsi,
    Chase,
}

impl Metric {
    pub(in crate::perf) fn name(self) -> &'static str {
        match self {
            Metric::Latency => "latency",
            Metric::Rate => "rate",
            Metric::Bandwidth => "bandwidth",
            Metric::FirstCall => "first-call",
            Metric::Work => "work",
            Metric::Scaling => "scaling",
            Metric::WakeUp => "wake-up",
            Metric::Idle => "idle",
            Metric::Tsi => "tsi",
            Metric::Chase => "chase",
        }
    }

    pub(in crate::perf) fn unit(self) -> &'static str {
        match self {
            Metric::Latency | Metric::FirstCall | Metric::WakeUp | Metric::Work | Metric::Chase => "us",
            Metric::Scaling | Metric::Tsi => "us and million/s",
            Metric::Idle => "ms/s",
            Metric::Rate => "million/s",
            Metric::Bandwidth => "MB/s",
        }
    }

    /// Returns whether messages follow each other without waiting for replies.
    pub(in crate::perf) fn streams(self) -> bool {
        matches!(self, Metric::Rate | Metric::Bandwidth)
    }

    /// Returns whether it is about messages, one by one or in a stream.
    pub(in crate::perf) fn is_of_messages(self) -> bool {
        matches!(self, Metric::Latency | Metric::Rate | Metric::Bandwidth)
    }

    /// Returns the default baseline.
    pub(in crate::perf) fn usual(self) -> Against {
        match self {
            Metric::Latency | Metric::Rate => Against::Raw,
            Metric::Bandwidth => Against::Memcpy,
            Metric::FirstCall => Against::Dlopen,
            Metric::Work | Metric::Tsi | Metric::Chase => Against::UcxAm,
            Metric::Scaling => Against::Alone,
            Metric::WakeUp | Metric::Idle => Against::Futex,
        }
    }
}

/// A baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::perf) enum Against {
    Raw,
    Memcpy,
    Stream,
    StreamSealed,
    UcxAm,
    UcxAmTcp,
    UcxStores,
    UcxPut,
    UcxGet,
    Load,
    Perftest,
    Dlopen,
    Cached,
    Clear,
    Single,
    Fetch,
    FetchAm,
    RawFetch,
    Alone,
    Futex,
    UcxWait,
    Iceoryx2,
    // Named like the programs.
    #[value(name = "ib_write_lat")]
    #[serde(rename = "ib_write_lat")]
    IbWriteLat,
    #[value(name = "ib_send_lat")]
    #[serde(rename = "ib_send_lat")]
    IbSendLat,
    #[value(name = "ib_write_bw")]
    #[serde(rename = "ib_write_bw")]
    IbWriteBw,
}

impl Against {
    pub(in crate::perf) fn name(self) -> &'static str {
        match self {
            Against::Raw => "raw",
            Against::Memcpy => "memcpy",
            Against::Stream => "stream",
            Against::StreamSealed => "stream-sealed",
            Against::UcxAm => "ucx-am",
            Against::UcxAmTcp => "ucx-am-tcp",
            Against::UcxStores => "ucx-stores",
            Against::UcxPut => "ucx-put",
            Against::UcxGet => "ucx-get",
            Against::Load => "load",
            Against::Perftest => "perftest",
            Against::Dlopen => "dlopen",
            Against::Cached => "cached",
            Against::Clear => "clear",
            Against::Single => "single",
            Against::Fetch => "fetch",
            Against::FetchAm => "fetch-am",
            Against::RawFetch => "raw-fetch",
            Against::Alone => "alone",
            Against::Futex => "futex",
            Against::UcxWait => "ucx-wait",
            Against::Iceoryx2 => "iceoryx2",
            Against::IbWriteLat => "ib_write_lat",
            Against::IbSendLat => "ib_send_lat",
            Against::IbWriteBw => "ib_write_bw",
        }
    }

    /// Returns the metrics that it is a baseline for.
    pub(in crate::perf) fn metrics(self) -> &'static [Metric] {
        const MOST: [Metric; 3] = [Metric::Latency, Metric::Rate, Metric::Bandwidth];
        match self {
            Against::Raw
            | Against::Memcpy
            | Against::Stream
            | Against::StreamSealed
            | Against::UcxAmTcp
            | Against::UcxStores
            | Against::UcxPut
            | Against::Perftest
            | Against::Clear
            | Against::Iceoryx2 => &MOST,
            Against::UcxAm => {
                &[Metric::Latency, Metric::Rate, Metric::Bandwidth, Metric::Work, Metric::Tsi, Metric::Chase]
            }
            Against::Cached => &[Metric::Latency, Metric::Rate, Metric::Bandwidth, Metric::Work],
            Against::UcxGet | Against::Load => &[Metric::Chase],
            Against::Single => &[Metric::Rate, Metric::Bandwidth],
            Against::IbWriteLat | Against::IbSendLat => &[Metric::Latency],
            Against::IbWriteBw => &[Metric::Bandwidth, Metric::Rate],
            Against::Fetch | Against::FetchAm | Against::RawFetch => &[Metric::Work],
            Against::Dlopen => &[Metric::FirstCall],
            Against::Alone => &[Metric::Scaling],
            Against::Futex | Against::UcxWait => &[Metric::WakeUp, Metric::Idle],
        }
    }

    /// Returns whether it is a program of perftest.
    pub(in crate::perf) fn is_of_perftest(self) -> bool {
        matches!(self, Against::IbWriteLat | Against::IbSendLat | Against::IbWriteBw)
    }

    /// Returns whether it is farjump itself.
    pub(in crate::perf) fn is_farjump(self) -> bool {
        matches!(self, Against::Cached | Against::Clear | Against::Single)
    }

    /// Returns whether it has an endpoint in each process.
    pub(in crate::perf) fn has_endpoints(self) -> bool {
        self.has_slots()
            || matches!(
                self,
                Against::UcxAm
                    | Against::UcxAmTcp
                    | Against::Stream
                    | Against::StreamSealed
                    | Against::Iceoryx2
            )
    }

    /// Returns whether its messages lie in a ring that may have slots of one length.
    pub(in crate::perf) fn has_slots(self) -> bool {
        matches!(self, Against::Raw | Against::UcxStores | Against::UcxPut)
    }
}
