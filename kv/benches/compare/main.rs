//! Measures the module beside the alternatives: functions in Lua, a module in C, commands, and code in clients.
//! [kv/benches/README.md](../README.md) describes how to read the tables.

mod calls;
mod client;
mod data;
mod others;
#[path = "../../tests/servers/protobuf.rs"]
mod protobuf;
#[allow(dead_code, reason = "the tests of the module use more of it")]
#[path = "../../tests/servers/resp.rs"]
mod resp;
mod samples;
mod scripts;
#[allow(dead_code, reason = "the tests of the module use more of it")]
#[path = "../../tests/servers/server.rs"]
mod server;
mod setup;
mod vectors;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use farjump_benches::rounds::{Group, Result};
use serde_json::{Value, json};

use crate::setup::{Built, Fixture, Place, Rig, State, title};

/// Measures the module for Redis and Valkey beside functions in Lua, a module in C, commands and clients.
///
/// Starts servers of its own, one after another. All figures of a table are of the same rounds: compare ratios, and
/// run it on a machine that does nothing else.
#[derive(Parser)]
#[command(name = "compare")]
struct Arguments {
    /// The server: a path, or a name in PATH.
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    server: PathBuf,
    /// Rounds over the cases of each table.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure only tables with this in their titles, such as `nearest`, `asleep` or `unpinned`.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// A Python with NumPy, to compare with. Its cases are left out without NumPy.
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Prints JSON in place of tables.
    #[arg(long)]
    json: bool,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A table: the measured thing, its states, and the function that measures it.
struct Table {
    /// The first part of its title.
    what: &'static str,
    is_in: fn(State, Place) -> bool,
    make: for<'a> fn(&'a Rig<'a>) -> Result<Group<'a>>,
}

/// Returns whether calls can run: not where the source waits until the system takes the processor from a server that
/// spins.
fn can_run(state: State, place: Place) -> bool {
    state != State::Spinning || place != Place::OneCore
}

/// Returns whether scripts are compared here: the tables of empty calls have the other costs of a call.
fn for_scripts(state: State, place: Place) -> bool {
    state == State::Lingering && place != Place::Unpinned
}

const TABLES: [Table; 15] = [
    Table { what: "empty call", is_in: |_, _| true, make: calls::empty },
    Table { what: "64 empty calls together", is_in: |_, _| true, make: calls::together },
    Table { what: "nearest of 10,000 x 128 float32", is_in: can_run, make: vectors::nearest },
    Table { what: "chase of 1,000 keys", is_in: can_run, make: samples::chase },
    Table { what: "topk, 10 of 10,000 x 128 float32", is_in: can_run, make: vectors::topk },
    Table { what: "bloom, 7 of 65,536 bits", is_in: can_run, make: samples::bloom },
    Table { what: "json_path, a text of 5 KB", is_in: can_run, make: samples::json_path },
    Table { what: "filter_aggregate, 2,000 hashes", is_in: can_run, make: samples::aggregate },
    Table { what: "script: token_bucket", is_in: for_scripts, make: scripts::token_bucket },
    Table { what: "script: leaders, 10 of 10,000", is_in: for_scripts, make: scripts::leaders },
    Table { what: "script: downsample, 10,000 entries", is_in: for_scripts, make: scripts::downsample },
    Table { what: "script: protobuf_sum, 1,000 messages", is_in: for_scripts, make: scripts::protobuf_sum },
    Table { what: "script: sum of a hash, 10,000 fields", is_in: for_scripts, make: scripts::hash_sum },
    Table {
        what: "p99 of another client's GETs, functions of 10 us at half load",
        is_in: |state, place| can_run(state, place) && place == Place::Apart,
        make: others::tail,
    },
    Table { what: "GETs of another client beside 80 idle links", is_in: can_run, make: others::links },
];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))?;
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let built = Built::new(find(&arguments.server)?, &arguments.python)?;
    let mut told = Vec::new();
    let mut version = String::new();
    for state in State::ALL {
        let wanted = |table: &&Table, place| {
            let word = arguments.only.as_deref().unwrap_or_default();
            (table.is_in)(state, place) && title(table.what, state, place).contains(word)
        };
        let tables: Vec<(&Table, Place)> = Place::ALL
            .into_iter()
            .filter(|&place| place != Place::Apart || built.processors() > 1)
            .flat_map(|place| {
                TABLES.iter().filter(move |table| wanted(table, place)).map(move |table| (table, place))
            })
            .collect();
        if tables.is_empty() {
            continue;
        }
        let fixture = Fixture::new(&built, state)?;
        if version.is_empty() {
            version.clone_from(&fixture.version);
            if !arguments.json {
                println!("{version}, {} rounds, {} processors", arguments.rounds, built.processors());
            }
        }
        for (table, place) in tables {
            let rig = fixture.rig(place)?;
            let mut group = (table.make)(&rig)?;
            group.title = title(table.what, state, place);
            group.run(arguments.rounds.into(), &interrupted)?;
            match arguments.json {
                true => told.push(group.to_json()),
                false => print!("{}", group.table()),
            }
        }
        drop(fixture.server.shut_down());
    }
    if version.is_empty() {
        let word = arguments.only.as_deref().unwrap_or_default();
        return Err(format!(
            "no table has {word:?} in its title: try `empty`, `chase`, `asleep` or `pinned`"
        )
        .into());
    }
    if arguments.json {
        let all: Value = json!({
            "server": version,
            "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim_end(),
            "processors": built.processors(),
            "rounds": arguments.rounds,
            "tables": told,
        });
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(())
}

/// The file of a server.
fn find(program: &Path) -> Result<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match program.components().count() {
        1 => env::split_paths(&folders).map(|folder| folder.join(program)).collect(),
        // The server runs in a folder of its own.
        _ => vec![std::path::absolute(program)?],
    };
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        format!("there is no server {}: install redis-server, or name one with --server", program.display())
            .into()
    })
}
