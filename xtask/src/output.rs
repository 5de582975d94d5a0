//! Lines for the user, who may stop reading: `cargo xtask test | head -1`.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints a line, as `println` does, and ignores it if the line cannot be written.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::line(format_args!($($words)*)) };
}

/// Writes a line to standard output. If the reader is gone, or a disk is full, the work still runs to its end, and
/// the exit status reports its result.
pub(crate) fn line(words: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{words}");
}

/// Writes a line to standard error in the same way.
pub(crate) fn error(words: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "error: {words}");
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    /// Makes [`unwritable_output_does_not_end_the_process`] write to a full device and a closed pipe.
    const WRITES: &str = "FARJUMP_XTASK_WRITES";

    #[test]
    fn unwritable_output_does_not_end_the_process() {
        if std::env::var_os(WRITES).is_some() {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let full = File::options().write(true).open("/dev/full").unwrap();
            for output in [full.into(), std::os::fd::OwnedFd::from(writer)] {
                rustix::stdio::dup2_stdout(&output).unwrap();
                say!("a line");
                rustix::stdio::dup2_stderr(&output).unwrap();
                super::error(format_args!("a line"));
            }
            std::process::exit(7);
        }
        let mut writes = Command::new(std::env::current_exe().unwrap());
        writes.args(["--exact", "output::tests::unwritable_output_does_not_end_the_process", "--nocapture"]);
        let ended = writes.env(WRITES, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(7), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}
