//! The driver's view of an algorithm: hops that run at either place.

use farjump::Library;

use crate::Failed;
use crate::graph::Graph;
use crate::source::Source;

/// The place where hops run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// All here.
    Fetch,
    /// All at the data.
    Call,
    /// Each where it is done sooner.
    Choose,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Fetch, Strategy::Call, Strategy::Choose];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Fetch => "fetch",
            Strategy::Call => "call",
            Strategy::Choose => "choose",
        }
    }
}

/// A vertex, and a part of its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) vertex: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Fetches that depend on nothing but those before them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FetchStage {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// A reply's report on its call: the time at which it was sent, the number of messages on the way back, and the time of
/// the work.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stamp {
    pub(crate) sent: u64,
    pub(crate) hops: u64,
    pub(crate) took: u64,
}

/// An algorithm.
pub(crate) trait Work {
    /// Returns the function that runs at the data.
    fn library<'s>(&self, source: &'s Source) -> &'s Library;

    /// Returns the units of work of a hop.
    fn units(&self, graph: &Graph, item: Item) -> usize;

    /// Returns the fetches of a hop that runs here, one after another.
    fn fetch_stages(&self, graph: &Graph, item: Item) -> [FetchStage; 2];

    /// Returns the bytes of a hop that runs there, in all messages.
    fn call_bytes(&self, graph: &Graph, item: Item) -> usize;

    /// Returns the words of lists that a call with this hop sends on to one shard at most, or replies.
    fn words(&self, graph: &Graph, item: Item) -> usize;

    /// Runs a hop here.
    fn here(&mut self, graph: &Graph, item: Item);

    /// Writes the arguments of a call that arrives at `due`.
    fn arguments(&self, items: &[Item], due: u64, arguments: &mut Vec<u8>);

    /// Returns all stamps of a reply.
    fn stamps(&self, reply: &[u8]) -> Result<Vec<Stamp>, Failed>;

    /// Takes a reply that has stamps.
    fn take(&mut self, reply: &[u8]);
}
