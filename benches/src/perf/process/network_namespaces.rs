//! Two network namespaces, one of the source and one of the target: the network of two machines, on one.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::program::failure::Failure;

/// The folder in which `ip netns` keeps its names.
const NAMED: &str = "/run/netns";
/// Address of targets and baselines on TCP, unless they are in another namespace.
const LOOPBACK: &str = "127.0.0.1";

/// The target's namespace, and its address there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::perf) struct Across {
    namespace: PathBuf,
    host: String,
}

impl Across {
    pub(in crate::perf) fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// Returns the target's address.
    pub(in crate::perf) fn host(across: Option<&Across>) -> &str {
        across.map_or(LOOPBACK, |across| &across.host)
    }
}

/// Reads the namespace and the address.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_across(text: &str) -> Result<Across, String> {
    let wrong =
        || format!("`{text}`: write a network namespace and an address of it, for example right,10.77.0.2");
    let (namespace, host) = text.rsplit_once(',').ok_or_else(wrong)?;
    let host: IpAddr = host.parse().map_err(|_| wrong())?;
    if namespace.is_empty() {
        return Err(wrong());
    }
    // A name has no slash; a path with one is kept.
    let folder = if namespace.contains('/') { Path::new("") } else { Path::new(NAMED) };
    Ok(Across { namespace: folder.join(namespace), host: host.to_string() })
}

/// Moves this process into a namespace. Call it before there is a second thread.
///
/// # Errors
/// Lack of permission, or no such namespace.
pub(in crate::perf) fn enter(namespace: &Path) -> Result<(), Failure> {
    let entered = File::open(namespace)
        .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?));
    entered.map_err(|error| {
        Failure::new(format!("cannot enter the network namespace `{}`: {error}", namespace.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_name_or_a_file_and_has_an_address() {
        let across = parse_across("right,10.77.0.2").expect("both are there");
        assert_eq!(across.namespace(), Path::new("/run/netns/right"));
        assert_eq!(Across::host(Some(&across)), "10.77.0.2");
        assert_eq!(
            parse_across("/proc/7/ns/net,::1").expect("both are there").namespace(),
            Path::new("/proc/7/ns/net")
        );
        assert_eq!(Across::host(None), "127.0.0.1");
        for wrong in ["", "right", ",10.77.0.2", "right,node7", "right,"] {
            assert!(parse_across(wrong).is_err(), "{wrong}");
        }
    }
}
