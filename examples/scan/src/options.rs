//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use farjump_example_figures::svg_path;

use crate::source::{CREDIT, MOST_CREDIT};

/// Filters a table at the target that has it, and streams the rows that are kept.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "scan", version)]
pub struct Options {
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// A command.
#[derive(Subcommand, Clone, PartialEq, Debug)]
pub enum Command {
    /// Writes a table of random records
    Make {
        /// The file, which must not exist
        file: PathBuf,
        /// Blocks of 1 MiB
        #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(..=1 << 20))]
        blocks: u64,
        /// Make records of 32 to 320 bytes instead of 64 bytes
        #[arg(long)]
        variable: bool,
        /// Seed of the records
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Serves a table
    Serve {
        /// The table
        file: PathBuf,
        /// Address to listen at: unix:PATH, or tcp:HOST:PORT with a key
        #[arg(long, value_name = "ADDRESS")]
        listen: String,
        /// File with the key
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// The part of the table that stays in memory
        #[command(flatten)]
        memory: Memory,
    },
    /// Scans a table at its target, and prints the rows that it kept
    Run {
        /// The target's address
        #[arg(long, value_name = "ADDRESS")]
        to: String,
        /// File with the key
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// A C file with another predicate, as scan.h describes [default: keys below the argument]
        #[arg(long, value_name = "FILE.c")]
        predicate: Option<PathBuf>,
        /// The predicate's argument, 8 bytes
        #[arg(long, value_name = "N", default_value_t = 1000)]
        argument: u64,
        /// Calls under way
        #[arg(long, value_name = "N", default_value_t = CREDIT, value_parser = parse_credit)]
        credit: usize,
        /// Print each row in hexadecimal digits
        #[arg(long)]
        rows: bool,
        /// Time limit for connecting and for each reply, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 10_000)]
        patience: u64,
        /// Pause of this source after each block, in milliseconds: it acts as a slow reader
        #[arg(long, value_name = "MS", default_value_t = 0)]
        pause: u64,
    },
    /// Measures a scan at the target against a copy over tcp and against a scan without a target
    Compare {
        /// The table
        file: PathBuf,
        /// Parts of the records that are kept, in percent
        #[arg(long = "keep", value_name = "PERCENT,…", value_delimiter = ',', default_value = "0.1,1,10,100", value_parser = parse_percent)]
        parts: Vec<f64>,
        /// Rounds, in each of which all are measured
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        /// Calls under way
        #[arg(long, value_name = "N", default_value_t = CREDIT, value_parser = parse_credit)]
        credit: usize,
        /// The part of the table that stays in memory
        #[command(flatten)]
        memory: Memory,
        /// Draw the times as an SVG
        #[arg(long, value_name = "FILE.svg", value_parser = svg_path)]
        plot: Option<PathBuf>,
    },
}

/// The part of a table that stays in memory.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// MiB of the table that stay in memory
    #[arg(long = "memory", value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(32..=1 << 30))]
    pub mib: u64,
}

impl Memory {
    /// Returns the memory in bytes.
    pub fn bytes(self) -> u64 {
        self.mib << 20
    }
}

fn parse_credit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MOST_CREDIT).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no number of calls: write one from 1 to {MOST_CREDIT}")),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => {
            Err(format!("`{text}` is no part of the records: write percent from 0 to 100, as in 0.1,10,100"))
        }
    }
}
