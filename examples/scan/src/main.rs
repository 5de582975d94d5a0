//! The program: `scan --help`.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use farjump_example_figures::draw;
use farjump_scan_example::Failed;
use farjump_scan_example::compare::{Settings, compare};
use farjump_scan_example::functions::Functions;
use farjump_scan_example::mapped::Mapped;
use farjump_scan_example::options::{Command, Options};
use farjump_scan_example::source::{Scan, connect, geometry};
use farjump_scan_example::table::make;
use farjump_scan_example::target::{serve, target};
use indicatif::{ProgressBar, ProgressStyle};

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match command {
        Command::Make { file, blocks, variable, seed } => {
            let geometry = make(&file, blocks, variable, seed)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            let len = geometry.len().unwrap_or_default();
            writeln!(out, "{}: {blocks} blocks, {len} B", file.display())?;
        }
        Command::Serve { file, listen, key, memory } => {
            let mapped = Mapped::open(&file, memory.bytes())?;
            let target = target(mapped, &listen, key.as_deref())?;
            serve(target, |address| {
                // The reader may be gone.
                let _ = writeln!(out, "ready {address}").and_then(|()| out.flush());
            })?;
        }
        Command::Run { to, key, predicate, argument, credit, rows, patience, pause } => {
            let functions = Functions::build(predicate.as_deref())?;
            let patience = Duration::from_millis(patience);
            let link = connect(&to, key.as_deref(), credit, patience)?;
            let geometry = geometry(&link, &functions.table, patience)?;
            let args = argument.to_le_bytes();
            let mut scan = Scan::new(&link, &functions.predicate, geometry.blocks, &args, credit);
            let (mut read, mut kept, mut bytes) = (0, 0, 0);
            while let Some(piece) = scan.next(patience)? {
                read += u64::from(piece.records);
                for row in piece.rows() {
                    kept += 1;
                    bytes += row.len();
                    if rows {
                        let digits: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
                        writeln!(out, "{digits}")?;
                    }
                }
                thread::sleep(Duration::from_millis(pause));
            }
            writeln!(out, "{kept} of {read} records, {bytes} B, by {}", link.path().summary())?;
        }
        Command::Compare { file, parts, rounds, credit, memory, plot } => {
            // Checked before the measurement, which takes minutes.
            if let Some(path) = &plot {
                let opened = File::options().create(true).append(true).open(path);
                opened.map_err(|error| format!("--plot {}: {error}", path.display()))?;
            }
            let settings = Settings { parts, rounds, credit, memory: memory.bytes() };
            let bar = ProgressBar::new(settings.runs() as u64);
            bar.set_style(ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left")?);
            let comparison = compare(&file, &settings, || bar.inc(1))?;
            bar.finish_and_clear();
            write!(out, "{comparison}")?;
            if let Some(path) = &plot {
                draw(path, &[comparison.panel()])
                    .map_err(|error| format!("--plot {}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}
