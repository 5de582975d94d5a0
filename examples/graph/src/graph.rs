//! The graph: R-MAT edges, and the lists of neighbours that each shard holds.

use fastrand::Rng;

/// Chances of the four quarters of an R-MAT graph, as Graph500 has them.
const QUARTERS: [f64; 3] = [0.57, 0.19, 0.19];

/// Lists of neighbours of a shard's vertices. Vertex `v` is number `v / shards` in shard `v % shards`.
#[derive(Debug, Default)]
pub struct Lists {
    /// The start of each list in `neighbours`, and the end of the last one.
    pub offsets: Vec<u32>,
    /// The lists, each in ascending order.
    pub neighbours: Vec<u32>,
}

impl Lists {
    /// Returns the list of the shard's vertex of this number.
    #[inline]
    pub fn of(&self, number: usize) -> &[u32] {
        &self.neighbours[self.offsets[number] as usize..self.offsets[number + 1] as usize]
    }
}

/// The part of the graph that one target holds.
#[derive(Debug, Default)]
pub struct Shard {
    /// All neighbours of its vertices.
    pub all: Lists,
    /// Those that come later in the order of degrees, then of numbers: each edge is in one of these lists.
    pub later: Lists,
}

/// The sizes of a vertex's lists. The source knows them without a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Neighbours.
    pub all: u32,
    /// Later neighbours.
    pub later: u32,
    /// Later neighbours of its later neighbours.
    pub beyond: u32,
}

/// An undirected graph without loops and double edges, in shards.
#[derive(Debug)]
pub struct Graph {
    /// Shards.
    pub shards: Vec<Shard>,
    /// Sizes of each vertex.
    pub sizes: Vec<Sizes>,
    /// Edges.
    pub edges: usize,
}

/// Returns the edges of an R-MAT graph of `1 << scale` vertices, both ways, in ascending order. Vertices are shuffled,
/// or the first shard would have all large ones.
pub fn rmat(scale: u32, edge_factor: usize, seed: u64) -> Vec<(u32, u32)> {
    let mut rng = Rng::with_seed(seed);
    let vertices = 1_usize << scale;
    let mut names: Vec<u32> = (0..vertices as u32).collect();
    rng.shuffle(&mut names);
    let [a, b, c] = QUARTERS;
    let mut edges = Vec::with_capacity(2 * vertices * edge_factor);
    for _ in 0..vertices * edge_factor {
        let (mut from, mut to) = (0, 0);
        for _ in 0..scale {
            let chance = rng.f64();
            let (down, right) = (chance >= a + b, (a..a + b).contains(&chance) || chance >= a + b + c);
            from = from << 1 | usize::from(down);
            to = to << 1 | usize::from(right);
        }
        if from != to {
            edges.extend([(names[from], names[to]), (names[to], names[from])]);
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

impl Graph {
    /// Makes the graph of these edges, which are both ways and in ascending order, in so many shards.
    pub fn new(vertices: usize, edges: &[(u32, u32)], shards: usize) -> Graph {
        let mut sizes = vec![Sizes::default(); vertices];
        for (from, _) in edges {
            sizes[*from as usize].all += 1;
        }
        let is_later = |from: u32, to: u32| {
            let rank = |vertex: u32| (sizes[vertex as usize].all, vertex);
            rank(from) < rank(to)
        };
        let lists = |shard: usize, taken: &dyn Fn(u32, u32) -> bool| {
            let mut lists = Lists { offsets: vec![0], neighbours: Vec::new() };
            for vertex in (shard..vertices).step_by(shards) {
                let first = edges.partition_point(|(from, _)| (*from as usize) < vertex);
                let own = edges[first..].iter().take_while(|(from, _)| *from as usize == vertex);
                lists.neighbours.extend(own.filter(|(from, to)| taken(*from, *to)).map(|(_, to)| *to));
                lists.offsets.push(lists.neighbours.len() as u32);
            }
            lists
        };
        let shards: Vec<_> = (0..shards)
            .map(|shard| Shard { all: lists(shard, &|_, _| true), later: lists(shard, &is_later) })
            .collect();
        let mut graph = Graph { shards, sizes, edges: edges.len() / 2 };
        for vertex in 0..vertices as u32 {
            graph.sizes[vertex as usize].later = graph.later(vertex).len() as u32;
        }
        for vertex in 0..vertices as u32 {
            let later = graph.later(vertex).iter();
            let beyond = later.map(|next| graph.sizes[*next as usize].later).sum();
            graph.sizes[vertex as usize].beyond = beyond;
        }
        graph
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the shard that has a vertex's lists.
    #[inline]
    pub fn owner(&self, vertex: u32) -> usize {
        vertex as usize % self.shards.len()
    }

    /// Returns all neighbours.
    #[inline]
    pub fn all(&self, vertex: u32) -> &[u32] {
        self.shards[self.owner(vertex)].all.of(vertex as usize / self.shards.len())
    }

    /// Returns the later neighbours.
    #[inline]
    pub fn later(&self, vertex: u32) -> &[u32] {
        self.shards[self.owner(vertex)].later.of(vertex as usize / self.shards.len())
    }

    /// Returns a vertex with the most neighbours.
    pub fn hub(&self) -> u32 {
        let hub = (0..self.vertices()).max_by_key(|vertex| self.sizes[*vertex].all);
        hub.unwrap_or_default() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_list_each_edge_in_both_directions_and_once_in_order() {
        let edges = rmat(8, 8, 1);
        assert_eq!(edges, rmat(8, 8, 1));
        assert_ne!(edges, rmat(8, 8, 2));
        for shards in [1, 3, 4] {
            let graph = Graph::new(1 << 8, &edges, shards);
            let listed = |list: &dyn Fn(u32) -> Vec<u32>| -> Vec<(u32, u32)> {
                (0..1 << 8).flat_map(|from| list(from).into_iter().map(move |to| (from, to))).collect()
            };
            assert_eq!(listed(&|vertex| graph.all(vertex).to_vec()), edges);
            let later = listed(&|vertex| graph.later(vertex).to_vec());
            assert_eq!((later.len(), graph.edges), (edges.len() / 2, edges.len() / 2));
            assert!(later.iter().all(|(from, to)| !later.contains(&(*to, *from))));
            assert!(graph.sizes.iter().all(|sizes| sizes.all <= graph.sizes[graph.hub() as usize].all));
        }
    }
}
