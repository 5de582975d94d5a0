//! The nearest of a structure's points, as a structure: plain data both ways, and an error as a text.

#![no_std]

use farjump_ifunc::{Plain, ifunc};

#[derive(Plain)]
#[repr(C)]
struct Query {
    from: i32,
    count: u32,
    points: [i32; 100],
}

#[derive(Plain)]
#[repr(C)]
struct NearestPoint {
    index: u32,
    distance: u32,
}

#[ifunc]
fn nearest(query: &Query) -> Result<NearestPoint, &'static str> {
    let points = query.points.get(..query.count as usize).ok_or("there are at most 100 points")?;
    let distances = points.iter().map(|point| point.abs_diff(query.from));
    let nearest = (0..).zip(distances).min_by_key(|(_, distance)| *distance);
    let (index, distance) = nearest.ok_or("there are no points")?;
    Ok(NearestPoint { index, distance })
}
