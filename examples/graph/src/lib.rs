//! Breadth-first search and triangle counting over a graph in several targets. Each hop runs at the data, or here on a
//! fetched list: always here, always there, or where [`farjump::placement`] chooses.
//!
//! [`graph`] makes the graph, [`shard`] serves its parts, [`work`](queries::work) defines hops, and
//! [`bfs`](queries::bfs) and [`triangles`](queries::triangles) are the
//! algorithms. [`compare`] measures the three strategies.

#![deny(missing_docs)]

pub mod compare;
pub mod costs;
pub mod functions;
pub mod graph;
pub mod options;
pub mod processors;
pub mod queries;
pub mod report;
pub mod shard;
pub mod source;
pub mod wire;

/// An error of this program: its text says what to do.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
