//! The source: links to all shards, and the functions.

use std::sync::Arc;

use farjump::Link;

use crate::Failed;
use crate::functions::Functions;
use crate::graph::Graph;
use crate::processors;
use crate::shard::Shards;

/// A source with its shards.
pub struct Source {
    // Links are dropped before the shards that they lead to.
    pub(crate) links: Vec<Link>,
    pub(crate) shards: Shards,
    /// The graph, which the shards hold. Without fetching, the source reads sizes alone.
    pub graph: Arc<Graph>,
    pub(crate) functions: Functions,
    /// True if both threads share a processor.
    pub(crate) is_shared: bool,
    /// Number of the last run.
    pub(crate) run: u32,
}

impl Source {
    /// Builds the functions, starts the shards, and connects to them. The calling thread stays on one processor from
    /// now on, if there are two.
    ///
    /// # Errors
    /// Mostly the lack of a C compiler.
    pub fn start(graph: Graph) -> Result<Source, Failed> {
        let functions = Functions::build()?;
        let graph = Arc::new(graph);
        let cpus = processors::two()?;
        let shards = Shards::start(&graph, cpus.map(|cpus| cpus[1]))?;
        processors::pin(cpus.map(|cpus| cpus[0]))?;
        let links = shards.connect()?;
        Ok(Source { links, shards, graph, functions, is_shared: cpus.is_none(), run: 0 })
    }
}
