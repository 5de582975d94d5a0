//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use farjump_example_figures::svg_path;

/// Searches a graph and counts its triangles: on fetched lists, at their shards, and at the place where each hop is
/// done sooner.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "graph", version)]
pub struct Options {
    /// Number of the graph's vertices, as a power of two
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub scale: u32,
    /// Edges for each vertex, before double edges and loops are removed
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse_edge_factor)]
    pub edge_factor: usize,
    /// Seed of the graph
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Shards, each a target
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_shards)]
    pub shards: usize,
    /// The algorithm to run [default: both]
    #[arg(long, value_enum)]
    pub algorithm: Option<Which>,
    /// The vertex where the search begins [default: a vertex with the most neighbours]
    #[arg(long, value_name = "VERTEX")]
    pub root: Option<u32>,
    /// One-way latencies of the modelled wire
    #[arg(long = "wire", value_name = "US,…", value_delimiter = ',', default_value = "0,0.5us,1us,2us,5us,10us", value_parser = parse_wire)]
    pub wires: Vec<f64>,
    /// Requests of fetches under way at each shard
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse_window)]
    pub window: usize,
    /// Rounds, in each of which all strategies are measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_rounds)]
    pub rounds: usize,
    /// Draw the times as an SVG
    #[arg(long, value_name = "FILE.svg", value_parser = svg_path)]
    pub plot: Option<PathBuf>,
}

/// An algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Which {
    /// Breadth-first search
    Bfs,
    /// Triangle counting
    Triangles,
}

/// The longest latency in microseconds.
const FAR: f64 = 1000.0;

fn parse_wire(text: &str) -> Result<f64, String> {
    match text.strip_suffix("us").unwrap_or(text).parse() {
        Ok(latency) if (0.0..=FAR).contains(&latency) => Ok(latency),
        _ => Err(format!("`{text}` is no latency: write microseconds from 0 to {FAR}, as in 0,0.5us,2us")),
    }
}

fn parse_edge_factor(text: &str) -> Result<usize, String> {
    number(text, "edge factor", 1, 64)
}

fn parse_shards(text: &str) -> Result<usize, String> {
    number(text, "number of shards", 1, 64)
}

fn parse_window(text: &str) -> Result<usize, String> {
    number(text, "number of requests", 1, 1 << 20)
}

fn parse_rounds(text: &str) -> Result<usize, String> {
    number(text, "number of rounds", 1, 1000)
}

fn number(text: &str, what: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no {what}: write one from {least} to {most}")),
    }
}
