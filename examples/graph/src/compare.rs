//! Measures the three strategies beside each other, over several wires.

use std::time::Instant;

use farjump::placement::Wire;
use farjump_example_figures::{Panel, median, spread};

use crate::Failed;
use crate::costs::{Costs, Samples};
use crate::queries::bfs::{self, Search};
use crate::queries::driver::Driver;
use crate::queries::triangles::{self, Counting};
use crate::queries::work::Strategy;
use crate::source::Source;
use crate::wire::Line;

/// Runs of a strategy before it is measured. Costs are those of the quickest one, which was disturbed least.
const WARM_UPS: usize = 3;

/// An algorithm, with its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Breadth-first search from this vertex.
    Search(u32),
    /// Triangle counting.
    Triangles,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunResult {
    /// Level of each vertex.
    Levels(Vec<u32>),
    /// Number of triangles.
    Triangles(u64),
}

/// A run.
#[derive(Debug)]
pub struct Run {
    /// Its result.
    pub result: RunResult,
    /// Its time in microseconds.
    pub us: f64,
    /// Its hops.
    pub hops: usize,
    /// The hops that ran at the data.
    pub at_data: usize,
    samples: Samples,
}

/// The wires, and the number of measurements of each.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Latencies one way, in microseconds.
    pub wires: Vec<f64>,
    /// Rounds, at least 1.
    pub rounds: usize,
    /// Most requests of fetches under way at each shard.
    pub window: usize,
}

/// The runs over one wire.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Latency one way in microseconds.
    pub wire: f64,
    /// Times of all rounds in microseconds, by strategy in the order of [`Strategy::ALL`].
    pub us: [Vec<f64>; 3],
    /// Part of the hops that the chooser sent to the data, in the last round.
    pub at_data: f64,
}

/// The runs of an algorithm.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Its result, the same in all runs.
    pub result: RunResult,
    /// Hops of a run.
    pub hops: usize,
    /// The estimated times.
    pub costs: Costs,
    /// The wires.
    pub wires: Vec<Measured>,
}

impl Settings {
    /// Returns the number of runs of an algorithm.
    pub fn runs(&self) -> usize {
        2 * WARM_UPS + self.rounds * self.wires.len() * Strategy::ALL.len()
    }
}

impl Algorithm {
    /// Computes the result without shards.
    pub fn result(self, source: &Source) -> RunResult {
        match self {
            Algorithm::Search(root) => RunResult::Levels(bfs::levels(&source.graph, root)),
            Algorithm::Triangles => RunResult::Triangles(triangles::count(&source.graph)),
        }
    }
}

/// Runs an algorithm once.
///
/// # Errors
/// A shard has failed.
pub fn run(
    source: &mut Source,
    algorithm: Algorithm,
    strategy: Strategy,
    (wire, window): (f64, usize),
    costs: Costs,
) -> Result<Run, Failed> {
    source.run += 1;
    let number = source.run;
    let line = Line::new(Wire::with_latency(wire), window * source.links.len());
    let graph = source.graph.clone();
    let mut driver = Driver::new(source, strategy, line, costs);
    let began = Instant::now();
    let result = match algorithm {
        Algorithm::Search(root) => {
            let mut search = Search::new(&graph, root, number);
            search.run(&mut driver, &graph)?;
            RunResult::Levels(search.into_levels())
        }
        Algorithm::Triangles => {
            let mut counting = Counting::new(&graph);
            counting.run(&mut driver, &graph)?;
            RunResult::Triangles(counting.triangles)
        }
    };
    let us = began.elapsed().as_secs_f64() * 1e6;
    let [hops, at_data] = driver.hops;
    Ok(Run { result, us, hops, at_data, samples: driver.samples })
}

/// Measures all strategies in turn, in each round over one wire after another. `next` is called before each run.
///
/// # Errors
/// A shard has failed, or a run has another result than the algorithm without shards.
pub fn compare(
    source: &mut Source,
    algorithm: Algorithm,
    settings: &Settings,
    mut next: impl FnMut(),
) -> Result<Comparison, Failed> {
    let result = algorithm.result(source);
    let mut checked = |source: &mut Source, strategy: Strategy, wire: f64, costs: Costs| {
        next();
        let run = run(source, algorithm, strategy, (wire, settings.window), costs)?;
        if run.result == result {
            Ok(run)
        } else {
            let name = strategy.name();
            Err(Failed::from(format!(
                "{name} over a wire of {wire} us has another result than a search without shards"
            )))
        }
    };
    let mut samples = Samples::default();
    for strategy in [Strategy::Fetch, Strategy::Call] {
        let mut quickest = checked(source, strategy, 0.0, Costs::default())?;
        for _ in 1..WARM_UPS {
            let run = checked(source, strategy, 0.0, Costs::default())?;
            if run.us < quickest.us {
                quickest = run;
            }
        }
        samples.add(quickest.samples);
    }
    let costs = samples.costs();
    let mut hops = 0;
    let measured = |wire: &f64| Measured { wire: *wire, us: Default::default(), at_data: 0.0 };
    let mut wires: Vec<_> = settings.wires.iter().map(measured).collect();
    for round in 0..settings.rounds {
        for measured in &mut wires {
            for turn in 0..Strategy::ALL.len() {
                let number = (round + turn) % Strategy::ALL.len();
                let strategy = Strategy::ALL[number];
                let run = checked(source, strategy, measured.wire, costs)?;
                measured.us[number].push(run.us);
                hops = run.hops;
                if strategy == Strategy::Choose {
                    measured.at_data = run.at_data as f64 / run.hops.max(1) as f64;
                }
            }
        }
    }
    Ok(Comparison { algorithm, result, hops, costs, wires })
}

impl Measured {
    /// Returns the median time of a strategy in microseconds.
    pub fn median(&self, strategy: Strategy) -> f64 {
        median(&self.us[strategy as usize])
    }

    /// Returns the ratio of the better fixed strategy's time to that of the chosen places: the median of all rounds,
    /// the least and the most.
    pub fn gain(&self) -> [f64; 3] {
        let [fetch, call, choose] = &self.us;
        let better = fetch.iter().zip(call).map(|(fetch, call)| fetch.min(*call));
        let gains: Vec<f64> = better.zip(choose).map(|(better, choose)| better / choose).collect();
        spread(&gains)
    }
}

impl Comparison {
    /// Returns the median times by the latency of the wire.
    pub fn panel(&self) -> Panel {
        let title = match self.algorithm {
            Algorithm::Search(_) => "Breadth-first search",
            Algorithm::Triangles => "Triangle counting",
        };
        let times = |strategy| self.wires.iter().map(|one| one.median(strategy) / 1e3).collect();
        Panel {
            title: title.to_owned(),
            axis: "latency of the wire one way, us".to_owned(),
            points: self.wires.iter().map(|one| one.wire.to_string()).collect(),
            curves: Strategy::ALL.map(|strategy| (strategy.name().to_owned(), times(strategy))).to_vec(),
        }
    }

    /// Returns the latencies at which fetching and calling take equally long, between those measured.
    pub fn crossings(&self) -> Vec<f64> {
        let lead = |one: &Measured| one.median(Strategy::Fetch) - one.median(Strategy::Call);
        let between = |two: &[Measured]| {
            let (first, second) = (lead(&two[0]), lead(&two[1]));
            let is_crossed = (first < 0.0) != (second < 0.0);
            is_crossed.then(|| two[0].wire + (two[1].wire - two[0].wire) * first / (first - second))
        };
        self.wires.windows(2).filter_map(between).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_lie_where_the_lead_changes() {
        let wire = |wire: f64, fetch: f64, call: f64, choose: f64| Measured {
            wire,
            us: [vec![fetch], vec![call; 3], vec![choose]],
            at_data: 0.5,
        };
        let comparison = Comparison {
            algorithm: Algorithm::Triangles,
            result: RunResult::Triangles(0),
            hops: 1,
            costs: Costs::default(),
            wires: vec![wire(0.0, 1.0, 4.0, 1.0), wire(1.0, 3.0, 4.0, 2.0), wire(3.0, 7.0, 4.0, 2.0)],
        };
        assert_eq!(comparison.crossings(), [1.5]);
        assert_eq!(comparison.wires[2].gain(), [2.0; 3]);
    }
}
