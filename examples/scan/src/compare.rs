//! Measures three ways to the same rows: a predicate at the target, a scan of the file without a target, and a copy of
//! the table over tcp, filtered here.

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farjump::{Key, Link};
use farjump_example_figures::{Panel, median, spread};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::Failed;
use crate::functions::Functions;
use crate::local::{Sum, below, limit_for};
use crate::mapped::Mapped;
use crate::source::{Scan, connect, geometry};
use crate::table::Geometry;

/// Longest time for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way to the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// The predicate runs at the target.
    Inject,
    /// Blocks come here as they are.
    Copy,
    /// This process reads the file.
    Local,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Inject, Strategy::Copy, Strategy::Local];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Inject => "inject",
            Strategy::Copy => "copy",
            Strategy::Local => "local",
        }
    }
}

/// The settings of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Parts of the records that are kept, in percent.
    pub parts: Vec<f64>,
    /// Rounds, at least 1.
    pub rounds: u32,
    /// Calls under way.
    pub credit: usize,
    /// Bytes of the table that stay in memory, at the target and here.
    pub memory: u64,
}

/// The runs that keep one part of the records.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The part in percent.
    pub part: f64,
    /// The sum of the rows that were kept.
    pub sum: Sum,
    /// Bytes of replies, by way.
    pub replied: [u64; 3],
    /// Times of all rounds in milliseconds, by way.
    pub ms: [Vec<f64>; 3],
}

/// All runs over a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The table.
    pub geometry: Geometry,
    /// The path of the replies, as the link reports it.
    pub path: String,
    /// The parts.
    pub parts: Vec<Measured>,
}

/// A target in a process of its own, which ends with the value.
#[derive(Debug)]
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(file: &Path, key: &Path, memory: u64) -> Result<Served, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        let end_with_this = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: between fork and exec it makes one system call.
        unsafe { command.pre_exec(end_with_this) };
        let mut child = command
            .args(["serve".as_ref(), file.as_os_str(), "--key".as_ref(), key.as_os_str()])
            .args(["--listen", "tcp:127.0.0.1:0", "--memory", &(memory >> 20).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim_end().strip_prefix("ready ") {
            Some(address) => Ok(Served { address: address.to_owned(), child }),
            None => {
                let status = child.wait()?;
                Err(format!("the target did not start: {status}").into())
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has no files but the socket of its port.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parts that all ways use.
struct Bench<'l> {
    link: &'l Link,
    functions: &'l Functions,
    mapped: Mapped,
    credit: usize,
    buffer: Vec<u8>,
}

impl Bench<'_> {
    /// Runs one way. Returns the sum of the rows that were kept, and the bytes of replies.
    fn run(&mut self, strategy: Strategy, limit: u64) -> Result<(Sum, u64), Failed> {
        let geometry = self.mapped.geometry();
        let (mut sum, mut replied) = (Sum::default(), 0);
        let mut add = |row: &[u8], wrong: &mut Option<String>| {
            if let Err(error) = sum.add(row) {
                *wrong = Some(error);
            }
        };
        let mut wrong = None;
        match strategy {
            Strategy::Inject => {
                let args = limit.to_le_bytes();
                let function = &self.functions.predicate;
                let mut scan = Scan::new(self.link, function, geometry.blocks, &args, self.credit);
                while let Some(piece) = scan.next(PATIENCE)? {
                    replied += piece.bytes().len() as u64;
                    piece.rows().for_each(|row| add(row, &mut wrong));
                }
            }
            Strategy::Copy => {
                let function = &self.functions.block;
                let mut scan = Scan::new(self.link, function, geometry.blocks, &[], self.credit);
                while let Some(piece) = scan.next(PATIENCE)? {
                    replied += piece.bytes().len() as u64;
                    below(piece.bytes(), &geometry, limit, |row| add(row, &mut wrong))?;
                }
            }
            Strategy::Local => {
                for block in 0..geometry.blocks {
                    self.mapped.copy(block, &mut self.buffer)?;
                    below(&self.buffer, &geometry, limit, |row| add(row, &mut wrong))?;
                }
            }
        }
        wrong.map_or(Ok((sum, replied)), |wrong| Err(wrong.into()))
    }
}

/// Measures all ways in turn, over one part after another, in each round. `next` is called before each run.
///
/// # Errors
/// The target fails, or two ways keep different rows.
pub fn compare(file: &Path, settings: &Settings, mut next: impl FnMut()) -> Result<Comparison, Failed> {
    let functions = Functions::build(None)?;
    let folder = tempfile::Builder::new().prefix("farjump-scan-").tempdir()?;
    let key = folder.path().join("key");
    Key::create(&key)?;
    let served = Served::start(file, &key, settings.memory)?;
    let link = connect(&served.address, Some(&key), settings.credit, PATIENCE)?;
    let mapped = Mapped::open(file, settings.memory)?;
    let there = geometry(&link, &functions.table, PATIENCE)?;
    if there != mapped.geometry() {
        return Err("the table was replaced while this began".into());
    }
    let credit = settings.credit;
    let mut bench = Bench { link: &link, functions: &functions, mapped, credit, buffer: Vec::new() };
    let of_part =
        |part: &f64| Measured { part: *part, sum: Sum::default(), replied: [0; 3], ms: Default::default() };
    let mut parts: Vec<_> = settings.parts.iter().map(of_part).collect();
    // The first round does not count: it links the functions, and fills the memory.
    for round in 0..=settings.rounds as usize {
        for measured in &mut parts {
            let limit = limit_for(measured.part / 100.0);
            for turn in 0..Strategy::ALL.len() {
                let number = (round + turn) % Strategy::ALL.len();
                let strategy = Strategy::ALL[number];
                next();
                let begun = Instant::now();
                let (sum, replied) = bench.run(strategy, limit)?;
                let ms = begun.elapsed().as_secs_f64() * 1e3;
                if (round, turn) == (0, 0) {
                    measured.sum = sum;
                } else if measured.sum != sum {
                    return Err(
                        format!("{} keeps other rows than the others: {sum:?}", strategy.name()).into()
                    );
                }
                measured.replied[number] = replied;
                if round > 0 {
                    measured.ms[number].push(ms);
                }
            }
        }
    }
    Ok(Comparison { geometry: there, path: link.path().summary(), parts })
}

impl Settings {
    /// Returns the number of runs of a comparison.
    pub fn runs(&self) -> usize {
        (self.rounds as usize + 1) * self.parts.len() * Strategy::ALL.len()
    }
}

impl Measured {
    /// Returns the median time of a way in milliseconds.
    pub fn median(&self, strategy: Strategy) -> f64 {
        median(&self.ms[strategy as usize])
    }

    /// Returns the ratio of another way's time to that of [`Strategy::Inject`]: the median of all rounds, the least and the
    /// most.
    pub fn gain(&self, strategy: Strategy) -> [f64; 3] {
        let pairs = self.ms[strategy as usize].iter().zip(&self.ms[Strategy::Inject as usize]);
        let gains: Vec<f64> = pairs.map(|(other, own)| other / own).collect();
        spread(&gains)
    }
}

impl Comparison {
    /// Returns the median times by the part that is kept.
    pub fn panel(&self) -> Panel {
        let times = |strategy| self.parts.iter().map(|part| part.median(strategy)).collect();
        let records =
            if self.geometry.width == 0 { "records of many lengths" } else { "records of one length" };
        Panel {
            title: format!("{records}, {} MiB", self.geometry.len().unwrap_or_default() >> 20),
            axis: "records that are kept, %".to_owned(),
            points: self.parts.iter().map(|part| part.part.to_string()).collect(),
            curves: Strategy::ALL.map(|strategy| (strategy.name().to_owned(), times(strategy))).to_vec(),
        }
    }
}

/// Widths of columns.
const WIDTHS: [usize; 7] = [8, 12, 14, 12, 12, 12, 46];

impl Display for Comparison {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Geometry { width, blocks, .. } = self.geometry;
        let len = self.geometry.len().unwrap_or_default();
        let records = if width == 0 { "many lengths".to_owned() } else { format!("{width} B") };
        writeln!(to, "{blocks} blocks, {len} B, records of {records}; replies by {}", self.path)?;
        row(
            to,
            ["kept", "rows", "replied", "inject", "copy", "local", "copy takes, and local"]
                .map(str::to_owned),
        )?;
        for part in &self.parts {
            let [inject, copy, local] =
                Strategy::ALL.map(|strategy| format!("{:.1} ms", part.median(strategy)));
            let times = |strategy| {
                let [median, least, most] = part.gain(strategy);
                format!("{median:.2}x ({least:.2} to {most:.2})")
            };
            let cells = [
                format!("{} %", part.part),
                part.sum.rows.to_string(),
                format!("{:.1} MB", part.replied[0] as f64 / 1e6),
                inject,
                copy,
                local,
                format!("{}, {}", times(Strategy::Copy), times(Strategy::Local)),
            ];
            row(to, cells)?;
        }
        Ok(())
    }
}

fn row(to: &mut Formatter<'_>, cells: [String; 7]) -> fmt::Result {
    for (cell, width) in cells.iter().zip(WIDTHS) {
        write!(to, "{cell:>width$}")?;
    }
    writeln!(to)
}
