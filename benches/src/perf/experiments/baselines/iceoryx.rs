//! iceoryx2: publish and subscribe between the two processes, by samples written in place for the subscriber.
//!
//! The setup is that of its benchmark `publish-subscribe`: a service in each direction, one publisher and one
//! subscriber each, polled, a sample loaned ahead. For single messages the buffer holds one sample, the
//! newest. For streams it holds many and never overflows, as an empty sample comes back after each quarter of
//! it. (By default a publisher sleeps when the buffer is full, which costs more than a hundred messages.)
//! Files and shared memory bear the name of the run's folder, and go with it
//! ([`Stage`](crate::program::workspace::Stage)).

use std::mem::MaybeUninit;
use std::path::Path;

use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::backpressure_strategy::BackpressureStrategy;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{
    Config, FileName, LogLevel, Path as FolderPath, SemanticString, ServiceName, SignalHandlingMode, ipc,
    set_log_level,
};
use iceoryx2::sample_mut_uninit::SampleMutUninit;

use super::ring::Layout;
use crate::perf::experiments::role::Peer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Most samples in a stream's buffer.
const STREAMING: usize = 256;
/// Most bytes of these samples, unless a single one is longer.
const STREAMING_BYTES: usize = 16 << 20;

type Loan = SampleMutUninit<ipc::Service, [MaybeUninit<u8>], ()>;

/// An endpoint of the baseline.
pub(crate) struct Samples {
    // Dropped in this order: ports before their parents.
    calls: Direction,
    stream: Direction,
    _node: Node<ipc::Service>,
    source: bool,
    streams: bool,
    sent: usize,
    /// Samples that fit a stream's buffer.
    capacity: u64,
    /// Samples among these that the peer has not acknowledged.
    in_flight: u64,
    /// Messages received.
    count: u64,
    /// The same at the start of the present measurement.
    before: u64,
    payload: Vec<u8>,
}

/// A service in each direction.
struct Direction {
    // The loan is dropped before its publisher.
    loan: Option<Loan>,
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
}

impl Samples {
    /// Opens this process's endpoint, with its files in `folder`; `source` gives its role.
    pub(crate) fn open(folder: &Path, source: bool, layout: &Layout) -> Result<Samples, Failure> {
        // Failures are reported as errors.
        set_log_level(LogLevel::Fatal);
        let config = config(folder)?;
        let node = NodeBuilder::new()
            .config(&config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .map_err(|error| failed("has no node", error))?;
        let longest = layout.longest;
        let capacity = (STREAMING_BYTES / longest.max(1)).clamp(2, STREAMING);
        let calls = Direction::open(&node, "call", source, 1, longest)?;
        let stream = Direction::open(&node, "stream", source, capacity, longest)?;
        let payload = vec![7; longest];
        Ok(Samples {
            calls,
            stream,
            _node: node,
            source,
            streams: false,
            sent: 0,
            capacity: capacity as u64,
            in_flight: 0,
            count: 0,
            before: 0,
            payload,
        })
    }

    /// Returns the number of samples after which the receiver of a stream acknowledges.
    #[inline]
    fn quarter(&self) -> u64 {
        (self.capacity / 4).max(1)
    }

    #[cold]
    fn wait_for_capacity(&mut self, watch: &Watch) -> Result<(), Failure> {
        watch.until(|| {
            Peer::look(self)?;
            Ok(self.in_flight < self.capacity)
        })
    }
}

/// Puts all files in the folder, and names those that cannot be there after it.
fn config(folder: &Path) -> Result<Config, Failure> {
    let unfit = |what: &dyn std::fmt::Debug| {
        Failure::new(format!("iceoryx2 cannot keep its files in `{}`: {what:?}", folder.display()))
    };
    let name = folder.file_name().unwrap_or_default().as_encoded_bytes();
    let mut config = Config::default();
    config.global.prefix = FileName::new(name).map_err(|error| unfit(&error))?;
    let root = FolderPath::new(folder.as_os_str().as_encoded_bytes()).map_err(|error| unfit(&error))?;
    config.global.set_root_path(&root);
    Ok(config)
}

impl Direction {
    fn open(
        node: &Node<ipc::Service>,
        what: &str,
        source: bool,
        buffer: usize,
        longest: usize,
    ) -> Result<Direction, Failure> {
        let service = |direction: &str| {
            let name = ServiceName::new(&format!("{what} {direction}"))
                .map_err(|error| failed("has no name", error))?;
            node.service_builder(&name)
                .publish_subscribe::<[u8]>()
                .max_publishers(1)
                .max_subscribers(1)
                .history_size(0)
                .subscriber_max_buffer_size(buffer)
                .enable_safe_overflow(buffer == 1)
                .open_or_create()
                .map_err(|error| failed("has no service", error))
        };
        let (there, back) = (service("there")?, service("back")?);
        let (own, theirs) = if source { (there, back) } else { (back, there) };
        let publisher = own
            .publisher_builder()
            .initial_max_slice_len(longest.max(1))
            .max_loaned_samples(2)
            // This never happens; discarded samples would be missed.
            .backpressure_strategy(BackpressureStrategy::DiscardData)
            .create()
            .map_err(|error| failed("has no publisher", error))?;
        let subscriber =
            theirs.subscriber_builder().create().map_err(|error| failed("has no subscriber", error))?;
        Ok(Direction { loan: None, publisher, subscriber })
    }

    /// Returns whether a sample has come, and releases it at once.
    #[inline]
    fn receive(&self) -> Result<bool, Failure> {
        let received = self.subscriber.receive().map_err(|error| failed("receives nothing", error))?;
        Ok(received.is_some())
    }

    #[inline]
    fn loan(&self, len: usize) -> Result<Loan, Failure> {
        self.publisher.loan_slice_uninit(len).map_err(|error| failed("lends no memory", error))
    }
}

impl Peer for Samples {
    fn prepare(&mut self, sent: usize, _taken: usize, streams: bool) {
        for direction in [&mut self.calls, &mut self.stream] {
            // The loan may have another length.
            direction.loan = None;
        }
        // Acknowledgements from the end of the last measurement, which were not awaited.
        while self.source && self.stream.receive().unwrap_or(false) {}
        self.in_flight = 0;
        (self.sent, self.streams, self.before) = (sent, streams, self.count);
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        if self.streams {
            if self.in_flight == self.capacity {
                self.wait_for_capacity(watch)?;
            }
            self.in_flight += 1;
        }
        let direction = if self.streams { &mut self.stream } else { &mut self.calls };
        let loan = match direction.loan.take() {
            Some(loan) => loan,
            None => direction.loan(self.sent)?,
        };
        let sample = loan.write_from_slice(&self.payload[..self.sent]);
        sample.send().map_err(|error| failed("sends nothing", error))?;
        // Loans the next sample while the peer works on this one.
        direction.loan = Some(direction.loan(self.sent)?);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        let direction = if self.streams { &self.stream } else { &self.calls };
        if !direction.receive()? {
            return Ok(self.came());
        }
        if self.streams && self.source {
            self.in_flight = self.in_flight.saturating_sub(self.quarter());
            return Ok(self.came());
        }
        self.count += 1;
        if self.streams && self.came().is_multiple_of(self.quarter()) {
            let acknowledged = direction.loan(0)?.write_from_slice(&[]).send();
            acknowledged.map_err(|error| failed("sends nothing", error))?;
        }
        Ok(self.came())
    }

    #[inline]
    fn came(&self) -> u64 {
        self.count - self.before
    }

    fn settle(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}

fn failed(what: &str, error: impl std::fmt::Debug) -> Failure {
    Failure::new(format!("iceoryx2 {what}: {error:?}"))
}
