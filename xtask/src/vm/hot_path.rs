//! Counting the hot path over RDMA devices, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use super::Options;
use super::table::{HOT_PATH, KERNELS};
use crate::guard;
use crate::process::{Failed, Interrupt};
use crate::workspace::{Workspace, root};

/// The beginning of the record's rows over RDMA devices.
const OF_DEVICES: &str = "{\"transport\":\"verbs-";

/// Counts, and compares or records. Returns `true` on success.
///
/// # Errors
/// When interrupted, or a part of the project cannot be built.
pub(crate) fn run(records: bool, interrupt: &Interrupt) -> Result<bool, Failed> {
    let (kernel, only) = (Some(KERNELS[1].to_owned()), Some(HOT_PATH.to_owned()));
    // Over both transports.
    let counted = super::run(&Options { kernel, only, whole: true, ..Options::default() }, interrupt)?;
    if records { record(interrupt) } else { Ok(counted) }
}

/// Writes the rows that a machine has counted into the record. Returns `false` if it has counted none.
fn record(interrupt: &Interrupt) -> Result<bool, Failed> {
    let file = root().join(guard::RECORD);
    let failed = |file: &Path| {
        let file = file.display().to_string();
        move |error| Failed::Because(format!("{file}: {error}"))
    };
    let log = log(interrupt)?;
    let said = String::from_utf8_lossy(&fs::read(&log).map_err(failed(&log))?).into_owned();
    let counted: Vec<&str> = said.lines().filter_map(row).collect();
    if counted.is_empty() {
        say!("no row was counted: {}", log.display());
        return Ok(false);
    }
    let text = with_rows(&fs::read_to_string(&file).map_err(failed(&file))?, &counted);
    fs::write(&file, text).map_err(failed(&file))?;
    say!("{} rows recorded in {}", counted.len(), file.display());
    Ok(true)
}

/// The row in a line of a machine's console.
fn row(line: &str) -> Option<&str> {
    let row = &line[line.find(OF_DEVICES)?..];
    Some(&row[..=row.find('}')?])
}

/// The text of a record with these rows over RDMA devices.
fn with_rows(record: &str, counted: &[&str]) -> String {
    let is_row = |line: &&str| line.starts_with('{') && line.len() > 1;
    let rows = record.lines().filter(is_row).map(|line| line.trim_end_matches(','));
    let rows: Vec<&str> =
        rows.filter(|row| !row.starts_with(OF_DEVICES)).chain(counted.iter().copied()).collect();
    let head: Vec<&str> = record.lines().take_while(|line| !is_row(line)).collect();
    format!("{}\n{}\n]\n}}\n", head.join("\n"), rows.join(",\n"))
}

/// The console of the last machine with the kernel on which this counts.
///
/// # Errors
/// When none was started.
fn log(interrupt: &Interrupt) -> Result<PathBuf, Failed> {
    let folder = Workspace::load(false, interrupt)?.target().join("vm");
    let failed = |error| Failed::Because(format!("{}: {error}", folder.display()));
    let mut logs = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(KERNELS[1]) && name.ends_with(".log") {
            logs.push(path);
        }
    }
    let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    logs.into_iter().max_by_key(written).ok_or_else(|| Failed::Because("no machine was started".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_rows_replace_only_those_of_an_earlier_machine() {
        let old = "{\n\"rustc\": \"1\",\n\"rows\": [\n{\"transport\":\"shm\",\"lines\":1},\n{\"transport\":\"verbs-send\",\"lines\":2}\n]\n}\n";
        let console = "[    1.2] {\"transport\":\"verbs-write\",\"lines\":3}\r";
        let new = with_rows(old, &[row(console).unwrap()]);
        assert_eq!(new, old.replace("verbs-send\",\"lines\":2", "verbs-write\",\"lines\":3"));
        assert_eq!(row("verbs-write  cached  8 send"), None);
    }
}
