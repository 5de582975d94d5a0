//! The folder for temporary files: whether folders can be made in it, and how far they are of use.

use farjump_cli::program::workspace::takes_sockets;
use farjump_os::temporary;

use super::finding::{Finding, Verdict};

const NAME: &str = "temporary folder";

pub(super) fn look() -> Finding {
    let made = tempfile::Builder::new().prefix("farjump-doctor-").tempdir_in(temporary::folder());
    match made {
        Ok(folder) => judge(temporary::forbids_code(folder.path()), takes_sockets(folder.path())),
        Err(error) => {
            let means = "`farjump build`, `demo` and `perf` do not work here";
            finding(Verdict::Note, temporary::lacking(&error), means)
        }
    }
}

fn judge(forbids_code: bool, takes_sockets: bool) -> Finding {
    let folder = temporary::in_words();
    if forbids_code {
        let means = "`farjump build` keeps macros of Rust in another temporary folder that is not noexec, if there is one";
        return finding(Verdict::Note, format!("{folder}: mounted noexec"), means).figure("noexec", true);
    }
    let finding = match takes_sockets {
        true => finding(Verdict::Ok, folder, "`farjump build`, `demo` and `perf` work in it"),
        false => {
            let means = format!("`farjump demo` and `perf` work in {} instead", temporary::DEFAULT);
            finding(
                Verdict::Note,
                format!("{folder}: its path is too long for a socket, or not in UTF-8"),
                means,
            )
        }
    };
    finding.figure("noexec", false)
}

fn finding(verdict: Verdict, found: String, means: impl Into<String>) -> Finding {
    Finding::new(NAME, verdict, found, means).mend("export TMPDIR=PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_code_or_without_sockets_is_a_note() {
        assert_eq!(judge(false, true).verdict, Verdict::Ok);
        for (forbids_code, takes_sockets, part) in [(true, true, "noexec"), (false, false, "too long")] {
            let finding = judge(forbids_code, takes_sockets);
            assert_eq!(finding.verdict, Verdict::Note);
            assert!(finding.found.contains(part) && finding.mend.is_some(), "{}", finding.found);
        }
    }
}
