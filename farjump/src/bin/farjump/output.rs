//! Writing to standard output and standard error.

use std::fmt;
use std::io::{self, Write};

use crate::failure::Failure;

/// Writes `bytes` to standard output, at once. A reader that has seen enough is no failure.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// As [`print`], one line.
pub(crate) fn print_line(line: impl fmt::Display) -> Result<(), Failure> {
    print(format!("{line}\n"))
}

/// Writes a line to standard error. Where that is closed there is nobody to tell.
pub(crate) fn note(line: impl fmt::Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Rows of columns that line up, two spaces between them.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_do_not_end_in_blanks() {
        let rows = [["a", "µs", "x"], ["long", "b", ""]].map(|row| row.map(String::from));
        assert_eq!(table(&rows), "a     µs  x\nlong  b\n");
    }
}
