//! Triangle counting: the number of triples of vertices that are neighbours of each other.
//!
//! Vertices have an order. Each triangle is counted at its first vertex, whose list has the other two. The list of the
//! second vertex has the third.

use farjump::Library;

use crate::Failed;
use crate::graph::Graph;
use crate::queries::driver::Driver;
use crate::queries::work::{FetchStage, Item, Stamp, Work};
use crate::source::Source;

/// Bytes before the vertices of a call, and of a reply. `triangles.c` has the same.
const CALL_HEAD: usize = 16;
const REPLY: usize = 32;
const OF_VERTICES: u32 = 0;
/// Units that a neighbour costs besides its own neighbours, because its list begins elsewhere in memory.
const BEGINNING: usize = 4;

/// Returns the number of triangles, counted without shards.
pub fn count(graph: &Graph) -> u64 {
    let mut counting = Counting::new(graph);
    for item in counting.items(graph) {
        counting.here(graph, item);
    }
    counting.triangles
}

/// A count.
pub(crate) struct Counting {
    pub(crate) triangles: u64,
    /// Neighbours of the vertex that is being counted.
    marks: Vec<u64>,
}

impl Counting {
    pub(crate) fn new(graph: &Graph) -> Counting {
        Counting { triangles: 0, marks: vec![0; graph.vertices().div_ceil(64)] }
    }

    /// Returns the vertices that can be the first ones of triangles.
    fn items(&self, graph: &Graph) -> Vec<Item> {
        let all = graph.sizes.iter().zip(0..);
        let with_later = all.filter(|(sizes, _)| sizes.beyond > 0 && sizes.later > 1);
        with_later.map(|(sizes, vertex)| Item { vertex, first: 0, count: sizes.later }).collect()
    }

    /// Counts all triangles.
    pub(crate) fn run(&mut self, driver: &mut Driver<'_>, graph: &Graph) -> Result<(), Failed> {
        let items = self.items(graph);
        driver.run(self, &items)
    }
}

impl Work for Counting {
    fn library<'s>(&self, source: &'s Source) -> &'s Library {
        &source.functions.triangles
    }

    fn units(&self, graph: &Graph, item: Item) -> usize {
        graph.sizes[item.vertex as usize].beyond as usize + BEGINNING * item.count as usize
    }

    fn fetch_stages(&self, graph: &Graph, item: Item) -> [FetchStage; 2] {
        let (later, beyond) = (item.count as usize, graph.sizes[item.vertex as usize].beyond as usize);
        [FetchStage { requests: 1, bytes: later * 4 }, FetchStage { requests: later, bytes: beyond * 4 }]
    }

    fn call_bytes(&self, _graph: &Graph, _item: Item) -> usize {
        size_of::<u32>()
    }

    fn words(&self, _graph: &Graph, item: Item) -> usize {
        1 + item.count as usize
    }

    fn here(&mut self, graph: &Graph, item: Item) {
        let later = graph.later(item.vertex);
        for vertex in later {
            self.marks[(vertex >> 6) as usize] |= 1 << (vertex & 63);
        }
        for vertex in later {
            let marked = |third: &u32| self.marks[(third >> 6) as usize] >> (third & 63) & 1;
            self.triangles += graph.later(*vertex).iter().map(marked).sum::<u64>();
        }
        for vertex in later {
            self.marks[(vertex >> 6) as usize] = 0;
        }
    }

    fn arguments(&self, items: &[Item], due: u64, arguments: &mut Vec<u8>) {
        arguments.reserve(CALL_HEAD + items.len() * 4);
        arguments.extend(due.to_ne_bytes());
        arguments.extend(OF_VERTICES.to_ne_bytes());
        arguments.extend((items.len() as u32).to_ne_bytes());
        for item in items {
            arguments.extend(item.vertex.to_ne_bytes());
        }
    }

    /// Returns the stamps of the call and of all messages that it sent on. Their replies come one after another.
    fn stamps(&self, reply: &[u8]) -> Result<Vec<Stamp>, Failed> {
        if reply.is_empty() || !reply.len().is_multiple_of(REPLY) {
            return Err(format!("a reply of {} bytes is no number of counts", reply.len()).into());
        }
        let stamp = |[sent, hops, took, _]: [u64; 4]| Stamp { sent, hops, took };
        Ok(replies(reply).map(stamp).collect())
    }

    fn take(&mut self, reply: &[u8]) {
        self.triangles += replies(reply).map(|[.., triangles]| triangles).sum::<u64>();
    }
}

fn replies(bytes: &[u8]) -> impl Iterator<Item = [u64; 4]> {
    let words = |reply: &[u8; REPLY]| {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(reply.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    };
    bytes.as_chunks::<REPLY>().0.iter().map(words)
}
