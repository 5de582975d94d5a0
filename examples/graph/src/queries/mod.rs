//! Breadth-first search and the count of triangles, as calls between processes.

pub mod bfs;
pub(crate) mod driver;
pub mod triangles;
pub mod work;
