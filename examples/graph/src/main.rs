//! Compares the strategies: `graph --help`.

use std::fs::File;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use farjump_example_figures::draw;
use farjump_graph_example::Failed;
use farjump_graph_example::compare::{Algorithm, Settings, compare};
use farjump_graph_example::graph::{Graph, rmat};
use farjump_graph_example::options::{Options, Which};
use farjump_graph_example::source::Source;
use indicatif::{ProgressBar, ProgressStyle};

fn main() -> ExitCode {
    let options = Options::parse();
    let vertices = 1_u32 << options.scale;
    if let Some(root) = options.root.filter(|root| *root >= vertices) {
        let why =
            format!("there is no vertex {root}: a graph of scale {} has {vertices}, from 0", options.scale);
        Options::command().error(clap::error::ErrorKind::ValueValidation, why).exit();
    }
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), Failed> {
    // Checked before the measurement, which takes minutes.
    if let Some(path) = &options.plot {
        File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| format!("--plot {}: {error}", path.display()))?;
    }
    let edges = rmat(options.scale, options.edge_factor, options.seed);
    let graph = Graph::new(1 << options.scale, &edges, options.shards);
    drop(edges);
    println!(
        "R-MAT graph of scale {} (seed {}): {} vertices and {} edges in {} shards, {} requests under way at each",
        options.scale,
        options.seed,
        graph.vertices(),
        graph.edges,
        options.shards,
        options.window
    );
    let search = Algorithm::Search(options.root.unwrap_or(graph.hub()));
    let algorithms = match options.algorithm {
        None => vec![search, Algorithm::Triangles],
        Some(Which::Bfs) => vec![search],
        Some(Which::Triangles) => vec![Algorithm::Triangles],
    };
    let mut source = Source::start(graph)?;
    let settings = Settings { wires: options.wires.clone(), rounds: options.rounds, window: options.window };
    let bar = ProgressBar::new((algorithms.len() * settings.runs()) as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} runs")?);
    let mut comparisons = Vec::new();
    for algorithm in algorithms {
        let comparison = compare(&mut source, algorithm, &settings, || bar.inc(1))?;
        bar.suspend(|| print!("\n{comparison}"));
        comparisons.push(comparison);
    }
    bar.finish_and_clear();
    if let Some(path) = &options.plot {
        let panels: Vec<_> = comparisons.iter().map(|comparison| comparison.panel()).collect();
        draw(path, &panels).map_err(|error| format!("--plot {}: {error}", path.display()))?;
    }
    Ok(())
}
