//! A connection, tried: whether a source and a target of this machine work together.

use std::time::Duration;

use farjump::{Error, Link, Target};
use farjump_os::temporary;

use super::finding::{Finding, Verdict};
use super::memory::FILTER;

const NAME: &str = "connection";
/// Longest wait for the target.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest path of a socket in bytes (unix(7)).
const LONGEST_PATH: usize = 107;

/// Judges a connection in this process. If `stopper`, another finding, keeps all targets from running, tries none.
pub(super) fn look(stopper: Option<&str>) -> Finding {
    match stopper {
        Some(name) => {
            let means = "shows whether a source and a target of this machine work together";
            Finding::new(NAME, Verdict::Note, format!("not tried, for the {name}"), means)
        }
        None => judge(tried().map_err(|error| error.to_string())),
    }
}

/// Connects to a target, flushes the link, and returns the transport.
fn tried() -> Result<String, Error> {
    // An abstract name serves where no folder's name leaves space for a socket's.
    let folder = tempfile::Builder::new().prefix("farjump-doctor-").tempdir_in(temporary::folder());
    let socket = folder.as_ref().ok().map(|folder| folder.path().join("s"));
    let address = match socket.filter(|socket| socket.as_os_str().len() <= LONGEST_PATH) {
        Some(socket) => format!("unix:{}", socket.display()),
        None => format!("unix:@farjump-doctor-{}", std::process::id()),
    };
    let target = Target::listen(&address).build()?.spawn()?;
    let transport = Link::builder(&address).connect_timeout(PATIENCE).connect().and_then(|link| {
        link.flush(PATIENCE)?;
        Ok(link.transport().to_owned())
    });
    // The target's own failure is the cause of the source's.
    target.stop()?;
    transport
}

fn judge(tried: Result<String, String>) -> Finding {
    match tried {
        Ok(transport) => {
            let means = "a source and a target of this machine work together";
            Finding::new(NAME, Verdict::Ok, format!("over {transport}"), means)
        }
        Err(error) => {
            let is_filtered = error.contains("seccomp");
            let means = "a source and a target of this machine do not work together";
            let finding = Finding::new(NAME, Verdict::Impossible, error, means);
            if is_filtered { finding.mend(FILTER) } else { finding.mend("farjump transports") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_connection_is_impossible_and_the_remedy_follows_the_cause() {
        assert_eq!(judge(Ok("shm".into())).verdict, Verdict::Ok);
        let other = judge(Err("there is no memory".into()));
        assert_eq!((other.verdict, other.mend.as_deref()), (Verdict::Impossible, Some("farjump transports")));
        let filtered = judge(Err("a filter of system calls (seccomp) forbids ppoll".into()));
        assert_eq!((filtered.verdict, filtered.mend.as_deref()), (Verdict::Impossible, Some(FILTER)));
        assert_eq!(look(Some("executable memory")).verdict, Verdict::Note);
    }
}
