//! Writing to standard output and standard error.

use std::fmt;
use std::io::{self, Write};

use crate::program::failure::Failure;

/// Writes `bytes` to standard output at once. A reader that has closed it is no failure.
pub fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one line, like [`print()`].
pub fn print_line(line: impl fmt::Display) -> Result<(), Failure> {
    print(format!("{line}\n"))
}

/// Writes a line to standard error. If that is closed, the line is lost.
pub fn note(line: impl fmt::Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Formats rows as aligned columns, with two spaces between them.
pub fn table(rows: &[impl AsRef<[String]>]) -> String {
    let width = |cell: &String| cell.chars().count();
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.as_ref().len()), 0);
        row.as_ref().iter().zip(&mut widths).for_each(|(cell, widest)| *widest = width(cell).max(*widest));
    }
    rows.iter().map(|cells| row(cells.as_ref(), &widths)).collect()
}

/// Formats one row of a table whose columns have these widths, as a line.
pub fn row(cells: &[String], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, &width)| format!("{cell:width$}"));
    let line = cells.collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
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
