//! The nearest of a structure's points, as a structure: plain data both ways, and an error as a text.

#![no_std]

use farjump_ifunc::{Plain, ifunc};

#[derive(Plain)]
#[repr(C)]
struct Question {
    from: i32,
    count: u32,
    points: [i32; 100],
}

#[derive(Plain)]
#[repr(C)]
struct Answer {
    index: u32,
    distance: u32,
}

#[ifunc]
fn nearest(question: &Question) -> Result<Answer, &'static str> {
    let points = question.points.get(..question.count as usize).ok_or("there are at most 100 points")?;
    let distances = points.iter().map(|point| point.abs_diff(question.from));
    let nearest = (0..).zip(distances).min_by_key(|(_, distance)| *distance);
    let (index, distance) = nearest.ok_or("there are no points")?;
    Ok(Answer { index, distance })
}
