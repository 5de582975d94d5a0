//! Breadth-first search: the level of each vertex that can be reached from a root.

use farjump::Library;

use crate::Failed;
use crate::graph::Graph;
use crate::queries::driver::Driver;
use crate::queries::work::{FetchStage, Item, Stamp, Work};
use crate::shard::BATCH;
use crate::source::Source;

/// Level of a vertex that cannot be reached.
pub const UNREACHED: u32 = u32::MAX;

/// Bytes before the parts of a call, of each part, and before the vertices of a reply. `expand.c` has the same.
const CALL_HEAD: usize = 16;
const PART: usize = 12;
const REPLY_HEAD: usize = 16;

/// Returns the levels from a root, computed without shards.
pub fn levels(graph: &Graph, root: u32) -> Vec<u32> {
    let mut search = Search::new(graph, root, 0);
    while search.found > 0 {
        for item in search.step(graph) {
            search.here(graph, item);
        }
    }
    search.levels
}

/// A search.
pub(crate) struct Search {
    levels: Vec<u32>,
    /// The level of vertices that are found now.
    level: u32,
    /// Found vertices, `found` of them. One more entry takes the vertices that are known.
    next: Vec<u32>,
    found: usize,
    run: u32,
    /// The part of neighbours that are replied: each vertex once from each shard.
    replied: f64,
}

impl Search {
    pub(crate) fn new(graph: &Graph, root: u32, run: u32) -> Search {
        let mut levels = vec![UNREACHED; graph.vertices()];
        levels[root as usize] = 0;
        let mut next = vec![0; graph.vertices() + 1];
        next[0] = root;
        let replied = (graph.vertices() * graph.shards.len()) as f64 / (2 * graph.edges).max(1) as f64;
        Search { levels, level: 0, next, found: 1, run, replied: replied.min(1.0) }
    }

    /// Begins the next level, and returns its hops. A list that is longer than a call may reply becomes several.
    fn step(&mut self, graph: &Graph) -> Vec<Item> {
        self.level += 1;
        let found = std::mem::take(&mut self.found);
        let mut items = Vec::with_capacity(found);
        for vertex in self.next[..found].iter().copied() {
            let all = graph.sizes[vertex as usize].all;
            let firsts = (0..all).step_by(BATCH);
            items.extend(firsts.map(|first| Item { vertex, first, count: (all - first).min(BATCH as u32) }));
        }
        items
    }

    /// Runs all levels.
    pub(crate) fn run(&mut self, driver: &mut Driver<'_>, graph: &Graph) -> Result<(), Failed> {
        while self.found > 0 {
            let items = self.step(graph);
            driver.run(self, &items)?;
        }
        Ok(())
    }

    pub(crate) fn into_levels(self) -> Vec<u32> {
        self.levels
    }

    /// Finds neighbours of a vertex: nearly all are known, as the processor predicts.
    #[inline]
    fn find(&mut self, neighbours: &[u32]) {
        let (levels, next) = (&mut self.levels[..], &mut self.next[..]);
        for vertex in neighbours {
            let level = &mut levels[*vertex as usize];
            if *level == UNREACHED {
                *level = self.level;
                next[self.found] = *vertex;
                self.found += 1;
            }
        }
    }

    /// Finds vertices that were replied. Each is new to its shard, and nothing predicts whether it is new here, so
    /// there is no branch.
    #[inline]
    fn find_replied(&mut self, vertices: impl Iterator<Item = u32>) {
        let (levels, next) = (&mut self.levels[..], &mut self.next[..]);
        for vertex in vertices {
            let level = &mut levels[vertex as usize];
            next[self.found] = vertex;
            self.found += usize::from(*level == UNREACHED);
            *level = self.level.min(*level);
        }
    }
}

impl Work for Search {
    fn library<'s>(&self, source: &'s Source) -> &'s Library {
        &source.functions.expand
    }

    fn units(&self, _graph: &Graph, item: Item) -> usize {
        item.count as usize
    }

    fn fetch_stages(&self, _graph: &Graph, item: Item) -> [FetchStage; 2] {
        [FetchStage { requests: 1, bytes: item.count as usize * 4 }, FetchStage::default()]
    }

    /// Counts a part of the neighbours, because most have been replied before.
    fn call_bytes(&self, _graph: &Graph, item: Item) -> usize {
        PART + (f64::from(item.count) * self.replied * 4.0) as usize
    }

    fn words(&self, _graph: &Graph, item: Item) -> usize {
        item.count as usize
    }

    fn here(&mut self, graph: &Graph, item: Item) {
        let Item { vertex, first, count } = item;
        self.find(&graph.all(vertex)[first as usize..(first + count) as usize]);
    }

    fn arguments(&self, items: &[Item], due: u64, arguments: &mut Vec<u8>) {
        arguments.reserve(CALL_HEAD + items.len() * PART);
        arguments.extend(due.to_ne_bytes());
        arguments.extend(self.run.to_ne_bytes());
        arguments.extend((items.len() as u32).to_ne_bytes());
        for Item { vertex, first, count } in items {
            for word in [vertex, first, count] {
                arguments.extend(word.to_ne_bytes());
            }
        }
    }

    fn stamps(&self, reply: &[u8]) -> Result<Vec<Stamp>, Failed> {
        match reply.as_chunks::<8>().0 {
            [sent, took, ..] if reply.len() >= REPLY_HEAD => {
                let [sent, took] = [sent, took].map(|bytes| u64::from_ne_bytes(*bytes));
                Ok(vec![Stamp { sent, hops: 1, took }])
            }
            _ => Err(format!("a reply of {} bytes has no head", reply.len()).into()),
        }
    }

    fn take(&mut self, reply: &[u8]) {
        let words = reply[REPLY_HEAD..].as_chunks::<4>().0;
        self.find_replied(words.iter().map(|word| u32::from_ne_bytes(*word)));
    }
}
