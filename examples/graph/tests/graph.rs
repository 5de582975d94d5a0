//! The strategies compared with petgraph, and the program as a user runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use farjump::placement::Cost;
use farjump_fixtures::process::{Done, finish};
use farjump_graph_example::compare::{Algorithm, RunResult, Settings, compare, run};
use farjump_graph_example::costs::Costs;
use farjump_graph_example::graph::{Graph, rmat};
use farjump_graph_example::queries::bfs::UNREACHED;
use farjump_graph_example::queries::work::Strategy;
use farjump_graph_example::source::Source;
use farjump_tools::all_work;
use petgraph::algo::dijkstra;
use petgraph::graph::{NodeIndex, UnGraph};

/// Returns a graph of petgraph's.
fn peers(vertices: usize, edges: &[(u32, u32)]) -> UnGraph<(), ()> {
    let mut graph = UnGraph::from_edges(edges.iter().filter(|(from, to)| from < to));
    while graph.node_count() < vertices {
        graph.add_node(());
    }
    graph
}

fn levels(graph: &UnGraph<(), ()>, root: u32) -> RunResult {
    let distances = dijkstra(graph, NodeIndex::from(root), None, |_| 1_u32);
    let level = |vertex| distances.get(&vertex).copied().unwrap_or(UNREACHED);
    RunResult::Levels(graph.node_indices().map(level).collect())
}

/// Counts each triangle at its edges, which are three.
fn triangles(graph: &UnGraph<(), ()>) -> RunResult {
    let third =
        |from, to| graph.neighbors(from).filter(|third| graph.contains_edge(*third, to)).count() as u64;
    let at_edges =
        graph.edge_indices().filter_map(|edge| graph.edge_endpoints(edge)).map(|(from, to)| third(from, to));
    RunResult::Triangles(at_edges.sum::<u64>() / 3)
}

#[test]
fn every_strategy_has_petgraphs_results_for_any_shard_count_and_wire() {
    if !all_work(&["cc"]) {
        return;
    }
    // Each shard has links to all others, with both ends in this process: more shards need more than 1024 descriptors.
    for (scale, edge_factor, shards) in [(9, 8, 4), (9, 8, 1), (7, 4, 3), (3, 1, 8), (10, 12, 9)] {
        let edges = rmat(scale, edge_factor, 7);
        let graph = Graph::new(1 << scale, &edges, shards);
        let root = graph.hub();
        let mut source = Source::start(graph).unwrap();
        let peers = peers(1 << scale, &edges);
        let expected = [
            (Algorithm::Search(root), levels(&peers, root)),
            (Algorithm::Search(1), levels(&peers, 1)),
            (Algorithm::Triangles, triangles(&peers)),
        ];
        for (algorithm, expected) in expected {
            assert_eq!(algorithm.result(&source), expected);
            for strategy in Strategy::ALL {
                for wire in [0.0, 3.0] {
                    let run = run(&mut source, algorithm, strategy, (wire, 4), Costs::default()).unwrap();
                    assert_eq!(run.result, expected, "{algorithm:?} {strategy:?} {wire} {shards}");
                    let at_data = match strategy {
                        Strategy::Fetch => 0..=0,
                        Strategy::Call => run.hops..=run.hops,
                        Strategy::Choose => 0..=run.hops,
                    };
                    assert!(at_data.contains(&run.at_data), "{} of {} hops", run.at_data, run.hops);
                }
            }
        }
    }
}

#[test]
fn hops_that_take_long_at_one_place_are_done_at_the_other() {
    if !all_work(&["cc"]) {
        return;
    }
    let edges = rmat(12, 16, 1);
    let mut source = Source::start(Graph::new(1 << 12, &edges, 4)).unwrap();
    let settings = Settings { wires: vec![0.0], rounds: 1, window: 16 };
    let costs = compare(&mut source, Algorithm::Triangles, &settings, || ()).unwrap().costs;
    let mut chosen = |wire: (f64, usize), costs: Costs| {
        run(&mut source, Algorithm::Triangles, Strategy::Choose, wire, costs).unwrap()
    };
    // Each fetch takes a millisecond, and one is under way at each shard: all of them would take many seconds.
    let far = chosen((500.0, 1), costs);
    assert!(far.at_data * 10 > far.hops * 9, "{} of {} hops at the data", far.at_data, far.hops);
    // A second for each hop there, by the estimate.
    let slow = chosen((0.0, 16), Costs { there: Cost { call_us: 1e6, unit_us: 0.0 }, ..costs });
    assert_eq!((slow.at_data, slow.hops), (0, far.hops));
}

/// Runs the program to its end.
fn graph(args: &[&str]) -> Done {
    finish(Command::new(env!("CARGO_BIN_EXE_graph")).args(args).stdin(Stdio::null()))
}

#[test]
fn the_program_prints_shards_times_and_crossings_and_draws_them() {
    if !all_work(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("graph.svg");
    let output = graph(&[
        "--scale",
        "8",
        "--shards",
        "3",
        "--rounds",
        "2",
        "--wire",
        "0,1us,20",
        "--plot",
        picture.to_str().unwrap(),
    ]);
    let output = output.worked();
    let printed = output.text();
    for part in
        ["scale 8 (seed 1)", "in 3 shards", "breadth-first search from", "triangle counting:", "20 us"]
    {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    assert_eq!(printed.matches("cross").count().min(2), 2, "{printed}");
    let drawn = std::fs::read_to_string(&picture).unwrap();
    for part in ["<svg", "Breadth-first search", "Triangle counting", "choose", "20"] {
        assert!(drawn.contains(part), "{part} is not drawn");
    }
}

#[test]
fn options_that_make_no_sense_are_refused_with_what_to_write() {
    let missing = Path::new("/no/such/folder/graph.svg");
    let cases: [(&[&str], &str); 8] = [
        (&["--scale", "21"], "1..=20"),
        (&["--shards", "0"], "write one from 1 to 64"),
        (&["--edge-factor", "0"], "write one from 1 to 64"),
        (&["--rounds", "0"], "write one from 1 to 1000"),
        (&["--window", "none"], "is no number of requests"),
        (&["--wire", "0,fast"], "`fast` is no latency"),
        (&["--scale", "4", "--root", "16"], "there is no vertex 16: a graph of scale 4 has 16, from 0"),
        (&["--plot", "graph.png"], "end the name with .svg"),
    ];
    for (args, part) in cases {
        let output = graph(args);
        assert_eq!(output.code, 2, "{args:?}");
        assert!(output.err.contains(part), "{args:?}: {}", output.err);
    }
    let output = graph(&["--scale", "4", "--plot", missing.to_str().unwrap()]);
    assert_eq!(output.code, 1);
    assert!(output.err.contains("--plot /no/such/folder/graph.svg"), "{}", output.err);
}
