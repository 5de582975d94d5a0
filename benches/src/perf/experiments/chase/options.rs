//! The options of `chase`.

use clap::Args;

use super::message::MOST_SHARDS;
use super::wire::{Latencies, parse_latencies};
use crate::perf::report::payload_size::parse_list;
use crate::program::units::parse_bytes;

/// Options of `chase` alone.
#[derive(Args, Debug)]
pub(crate) struct ChaseOptions {
    /// For chase: number of shards [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_shards)]
    pub(in crate::perf) shards: Option<usize>,
    /// For chase: words of a chase, written as for --sizes [default: 1,16,64,256,1024,4096]
    #[arg(long = "depth", value_name = "N,A..B,…", value_parser = parse_depths)]
    pub(in crate::perf) depths: Option<Numbers>,
    /// For chase: one-way latencies of the modelled wire [default: 0,0.5us,1us,2us,5us,10us]
    #[arg(long = "wire", value_name = "US,…", value_parser = parse_latencies)]
    pub(in crate::perf) wires: Option<Latencies>,
    /// For chase: chases under way at a time [default: 1,64]
    #[arg(long, value_name = "N,…", value_parser = parse_outstanding)]
    pub(in crate::perf) outstanding: Option<Numbers>,
    /// For chase: bytes of each shard's table, a power of two [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = parse_table)]
    pub(in crate::perf) table: Option<usize>,
}

/// Numbers, in the order of measuring. There is at least one, and each is at least 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Numbers(pub(super) Vec<usize>);

/// Deepest chase.
const DEEPEST: usize = 1 << 16;
/// Most chases under way: a target has no more than 1024 calls under way to one destination.
const MOST_OUTSTANDING: usize = 512;
/// Bytes of a shard's table.
const TABLES: std::ops::RangeInclusive<usize> = 4096..=256 << 20;

fn parse_shards(text: &str) -> Result<usize, String> {
    number(text, "number of shards", 2, MOST_SHARDS)
}

fn parse_depths(text: &str) -> Result<Numbers, String> {
    parse_list(text, "1..4096", |text| number(text, "depth", 1, DEEPEST)).map(Numbers)
}

fn parse_outstanding(text: &str) -> Result<Numbers, String> {
    parse_list(text, "1..64", |text| number(text, "number of chases", 1, MOST_OUTSTANDING)).map(Numbers)
}

fn parse_table(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if bytes.is_power_of_two() && TABLES.contains(&bytes) => Ok(bytes),
        _ => Err(format!("`{text}`: a shard's table has a power of two from 4K to 256M of bytes")),
    }
}

fn number(text: &str, what: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no {what}: write one from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_limits() {
        assert_eq!(parse_depths("1,4..16"), Ok(Numbers(vec![1, 4, 8, 16])));
        assert_eq!((parse_shards("2"), parse_table("1M")), (Ok(2), Ok(1 << 20)));
        assert!(parse_shards("1").is_err() && parse_shards("65").is_err());
        assert!(parse_outstanding("513").is_err() && parse_depths("0").is_err());
        assert!(parse_table("3M").is_err() && parse_table("2K").is_err());
    }
}
