//! The list of backends, by name.

use farjump_core::transport::{Capabilities, PassedOver, Transport};

use crate::Error;

/// Makes the [`Maker`] of a backend, if its feature is on.
macro_rules! maker {
    ($feature:literal, $usable:expr, $backend:expr) => {{
        #[cfg(feature = $feature)]
        const MAKER: Option<Maker> = Some(Maker { usable: || $usable, make: || Box::new($backend) });
        #[cfg(not(feature = $feature))]
        const MAKER: Option<Maker> = None;
        MAKER
    }};
}

/// All backends, in the order of display.
pub(crate) const BACKENDS: [Backend; 6] = [
    Backend {
        name: "shm",
        reach: Reach::ThisMachine,
        feature: "shm",
        maker: maker!("shm", crate::shm::Shm::usable(), crate::shm::Shm::new()),
    },
    Backend {
        name: "ucx-put",
        reach: Reach::Ucx,
        feature: "ucx",
        maker: maker!("ucx", crate::ucx::Put::usable(), crate::ucx::Put::new()),
    },
    Backend {
        name: UCX_AM,
        reach: Reach::Ucx,
        feature: "ucx",
        maker: maker!("ucx", crate::ucx::Am::new().usable(), crate::ucx::Am::new()),
    },
    Backend {
        name: "verbs-write",
        reach: Reach::Rdma,
        feature: "verbs",
        maker: maker!("verbs", crate::verbs::Write::usable(), crate::verbs::Write::new()),
    },
    Backend {
        name: "verbs-send",
        reach: Reach::Rdma,
        feature: "verbs",
        maker: maker!("verbs", crate::verbs::Send::usable(), crate::verbs::Send::new()),
    },
    Backend {
        name: "tcp",
        reach: Reach::Any,
        feature: "tcp",
        maker: maker!("tcp", crate::tcp::Tcp::usable(), crate::tcp::Tcp::new()),
    },
];

const UCX_AM: &str = "ucx-am";

/// The maker of `ucx-am` with UCX's TCP, used where the operator allows it.
const UCX_AM_WITH_TCP: Option<Maker> =
    maker!("ucx", crate::ucx::Am::with_tcp().usable(), crate::ucx::Am::with_tcp());

/// A name for several backends, in order of preference.
const UCX_FAMILY: (&str, [&str; 2]) = ("ucx", ["ucx-put", UCX_AM]);

pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) reach: Reach,
    /// The feature of this crate with which it is compiled in.
    feature: &'static str,
    /// `None` if the backend is not compiled in.
    maker: Option<Maker>,
}

/// The possible locations of a backend's peers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    ThisMachine,
    /// Those that UCX reaches without TCP.
    Ucx,
    Rdma,
    Any,
}

impl Reach {
    fn in_words(self) -> &'static str {
        match self {
            Reach::ThisMachine => "this machine",
            Reach::Ucx => "this machine, and RDMA that UCX finds",
            Reach::Rdma => "machines with RDMA devices",
            Reach::Any => "any machine",
        }
    }
}

#[derive(Clone, Copy)]
struct Maker {
    usable: fn() -> Result<Capabilities, String>,
    make: fn() -> Box<dyn Transport>,
}

/// Permissions of the built-in backends beyond their defaults, granted by the operator of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct BackendOptions {
    /// Whether `ucx-am` may use UCX's TCP. **A process that reaches a port of its workers may write any address of this
    /// process.** Off by default. Refused if nothing can close the ports once the peer is connected
    /// ([`BackendOptions::ucx_ports_closed_by`]).
    pub ucx_tcp: bool,
}

impl BackendOptions {
    /// Returns the defaults.
    pub const fn new() -> BackendOptions {
        BackendOptions { ucx_tcp: false }
    }

    /// Returns these options with [`BackendOptions::ucx_tcp`] set to `allowed`.
    #[must_use]
    pub const fn with_ucx_tcp(mut self, allowed: bool) -> BackendOptions {
        self.ucx_tcp = allowed;
        self
    }

    /// Returns how this process closes the ports of UCX's TCP once the peer is connected: by a `filter`, or by
    /// binding them to no `device`. `None` if UCX's TCP is off, not built in, or refused because neither works.
    pub fn ucx_ports_closed_by(self) -> Option<&'static str> {
        #[cfg(feature = "ucx")]
        let way = crate::ucx::PortClosing::usable().ok().map(crate::ucx::PortClosing::name);
        #[cfg(not(feature = "ucx"))]
        let way = None;
        way.filter(|_| self.ucx_tcp)
    }
}

/// Facts about a backend that do not depend on a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TransportInfo {
    /// Its name, as users type it.
    pub name: &'static str,
    /// Whether it is in this build.
    pub compiled: bool,
    /// The possible locations of its peers, as text: `this machine`.
    pub reaches: &'static str,
    /// Its capabilities on this machine, or a sentence for users that states why it cannot be used and the
    /// remedy.
    pub usable: Result<Capabilities, String>,
    /// For `ucx-am` with UCX's TCP, the way in which its ports are closed once the peer is connected
    /// ([`BackendOptions::ucx_ports_closed_by`]).
    pub ports_closed_by: Option<&'static str>,
}

/// Lists every backend, in this build or not, usable or not. The order is always the same.
pub fn available() -> Vec<TransportInfo> {
    available_with(BackendOptions::new())
}

/// Does the same as [`available`] with these options.
pub fn available_with(options: BackendOptions) -> Vec<TransportInfo> {
    BACKENDS.iter().map(|backend| backend.look(options)).collect()
}

/// Lists the backends that `name` selects, in the form of [`available`]: the backend of this name or, for `ucx`, those
/// of UCX. Does not try the others.
///
/// # Errors
/// [`Error::UnknownTransport`] for a name that no backend has.
pub fn meant(name: &str, options: BackendOptions) -> Result<Vec<TransportInfo>, Error> {
    let (family, members) = UCX_FAMILY;
    let is_meant =
        |backend: &&Backend| backend.name == name || (name == family && members.contains(&backend.name));
    let meant: Vec<_> = BACKENDS.iter().filter(is_meant).map(|backend| backend.look(options)).collect();
    if meant.is_empty() { Err(unknown(name)) } else { Ok(meant) }
}

/// Returns the first backend that works on this machine: the default if the user names none. Does not try later ones,
/// because trying some of them loads a library, whose initialisers may do anything in the process.
pub fn preferred() -> Option<Box<dyn Transport>> {
    BACKENDS.iter().find_map(|backend| backend.make(BackendOptions::new()).ok())
}

/// Returns whether backend `one` precedes backend `other` in the default order. One that is not built in
/// precedes all.
pub fn is_preferred(one: &str, other: &str) -> bool {
    let place = |name: &str| BACKENDS.iter().position(|backend| backend.name == name);
    place(one) < place(other)
}

/// Makes the backend of this name.
///
/// # Errors
/// [`Error::UnknownTransport`] for a name that no backend has; [`Error::NotBuilt`] if it is not in this build,
/// [`Error::Unusable`] if it does not work on this machine.
pub fn make(name: &str) -> Result<Box<dyn Transport>, Error> {
    make_with(name, BackendOptions::new())
}

/// Does the same as [`make`] with these options.
///
/// # Errors
/// The errors of [`make`].
pub fn make_with(name: &str, options: BackendOptions) -> Result<Box<dyn Transport>, Error> {
    BACKENDS.iter().find(|backend| backend.name == name).ok_or_else(|| unknown(name))?.make(options)
}

/// Checks that `name` is that of a backend, or `ucx`. Does not check that it works on this machine.
///
/// # Errors
/// [`Error::UnknownTransport`].
pub fn check_name(name: &str) -> Result<(), Error> {
    let known = name == UCX_FAMILY.0 || BACKENDS.iter().any(|backend| backend.name == name);
    if known { Ok(()) } else { Err(unknown(name)) }
}

/// Makes the error for a name that no backend has.
fn unknown(name: &str) -> Error {
    Error::UnknownTransport {
        name: name.to_owned(),
        known: BACKENDS.iter().map(|backend| backend.name).collect(),
    }
}

/// The backends that a name selects.
pub struct Chosen {
    /// The usable backends, in order of preference.
    pub transports: Vec<Box<dyn Transport>>,
    /// The other selected backends, which do not work on this machine or lead nowhere from it.
    pub passed_over: Vec<PassedOver>,
}

/// Makes the backends that `name` selects, in order of preference, with the reasons against the others. These are the
/// backend of this name or, for `ucx`, those of UCX that work on this machine.
///
/// # Errors
/// The errors of [`make`]. For `ucx`, if none works, [`Error::Unusable`] with the reasons of all.
pub fn make_all(name: &str, options: BackendOptions) -> Result<Chosen, Error> {
    let (family, members) = UCX_FAMILY;
    if name != family {
        return Ok(Chosen { transports: vec![make_with(name, options)?], passed_over: Vec::new() });
    }
    let mut chosen = Chosen { transports: Vec::new(), passed_over: Vec::new() };
    for member in members {
        match make_with(member, options) {
            Ok(transport) => chosen.transports.push(transport),
            Err(Error::Unusable { why, .. }) => chosen.passed_over.push(PassedOver::new(member, why)),
            Err(other) => return Err(other),
        }
    }
    if chosen.transports.is_empty() {
        let mut reasons: Vec<_> = chosen.passed_over.into_iter().map(|passed| passed.why).collect();
        reasons.dedup();
        return Err(Error::Unusable { name: family, why: reasons.join("; ") });
    }
    Ok(chosen)
}

/// Returns whether every endpoint of the backend of this name locks memory. Only opening an endpoint shows whether a
/// process may lock that much.
pub fn locks_memory(name: &str) -> bool {
    BACKENDS.iter().any(|backend| backend.name == name && backend.reach == Reach::Rdma)
}

/// Makes every backend that works on this machine.
pub fn make_usable(options: BackendOptions) -> Vec<Box<dyn Transport>> {
    BACKENDS.iter().filter_map(|backend| backend.make(options).ok()).collect()
}

impl Backend {
    /// Returns whether it is `ucx-am` and may use TCP.
    pub(crate) fn has_ucx_tcp(&self, options: BackendOptions) -> bool {
        options.ucx_tcp && self.name == UCX_AM
    }

    fn maker(&self, options: BackendOptions) -> Option<Maker> {
        if self.has_ucx_tcp(options) { UCX_AM_WITH_TCP } else { self.maker }
    }

    fn look(&self, options: BackendOptions) -> TransportInfo {
        let usable = match self.maker(options) {
            Some(maker) => (maker.usable)(),
            None => Err(format!("this build of farjump lacks it (feature `{}`)", self.feature)),
        };
        let ports_closed_by = options.ucx_ports_closed_by().filter(|_| self.has_ucx_tcp(options));
        let reaches = match ports_closed_by {
            Some("filter") => {
                "whatever UCX finds; a process that reaches its TCP ports before they are closed (filter) may write this process's memory"
            }
            Some(_) => {
                "whatever UCX finds; a process that reaches its TCP ports before they are closed (device) may write this process's memory"
            }
            None => self.reach.in_words(),
        };
        TransportInfo { name: self.name, compiled: self.maker.is_some(), reaches, usable, ports_closed_by }
    }

    pub(crate) fn make(&self, options: BackendOptions) -> Result<Box<dyn Transport>, Error> {
        let Backend { name, feature, .. } = *self;
        let maker = self.maker(options).ok_or(Error::NotBuilt { name, feature })?;
        (maker.usable)().map_err(|why| Error::Unusable { name, why })?;
        Ok((maker.make)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_listed_and_made_exactly_if_it_is_usable() {
        let listed = available();
        let names: Vec<_> = listed.iter().map(|backend| backend.name).collect();
        assert_eq!(names, ["shm", "ucx-put", "ucx-am", "verbs-write", "verbs-send", "tcp"]);
        for backend in listed {
            match (make(backend.name), backend.usable) {
                (Ok(transport), Ok(capabilities)) => {
                    assert!(backend.compiled);
                    assert_eq!(transport.name(), backend.name);
                    assert_eq!(transport.capabilities(), capabilities);
                }
                (Err(error), Err(why)) => assert!(error.to_string().contains(&why), "{error}"),
                _ => panic!("{} is listed as one thing and made as another", backend.name),
            }
        }
    }

    #[test]
    fn the_preferred_one_is_the_first_that_is_usable() {
        let first = available().into_iter().find(|backend| backend.usable.is_ok());
        assert_eq!(
            preferred().map(|transport| transport.name().to_owned()),
            first.map(|backend| backend.name.to_owned())
        );
    }

    #[test]
    fn earlier_listed_and_unlisted_transports_are_preferred() {
        assert!(is_preferred("ucx-put", "ucx-am") && is_preferred("verbs-send", "tcp"));
        assert!(!is_preferred("tcp", "ucx-am") && !is_preferred("tcp", "tcp"));
        assert!(is_preferred("a friend's", "shm"));
    }

    #[test]
    #[cfg(feature = "shm")]
    fn shm_is_usable_on_every_machine_that_runs_the_tests() {
        assert!(available()[0].usable.is_ok(), "{:?}", available()[0]);
    }

    #[test]
    fn ucx_means_those_of_its_backends_that_are_usable_the_put_first() {
        let usable: Vec<_> = available()
            .into_iter()
            .filter(|backend| backend.name.starts_with("ucx-") && backend.usable.is_ok())
            .map(|backend| backend.name)
            .collect();
        match make_all("ucx", BackendOptions::new()) {
            Ok(chosen) => {
                assert_eq!(chosen.transports.len() + chosen.passed_over.len(), 2);
                assert_eq!(chosen.transports.iter().map(|one| one.name()).collect::<Vec<_>>(), usable);
            }
            Err(error) => {
                assert!(usable.is_empty());
                assert!(error.to_string().starts_with("transport `ucx` cannot be used: "), "{error}");
            }
        }
        let one: Vec<_> =
            make_all("shm", BackendOptions::new()).into_iter().flat_map(|chosen| chosen.transports).collect();
        assert!(one.iter().all(|one| one.name() == "shm"));
        assert!(make_all("ucx-", BackendOptions::new()).is_err());
    }

    #[test]
    fn only_what_a_device_writes_is_locked() {
        let locking: Vec<_> =
            BACKENDS.iter().map(|backend| backend.name).filter(|name| locks_memory(name)).collect();
        assert_eq!(locking, ["verbs-write", "verbs-send"]);
        assert!(!locks_memory("verbs"));
    }

    #[test]
    fn those_that_a_name_means_are_listed_as_among_all() {
        let all = available();
        assert_eq!(meant("shm", BackendOptions::new()).unwrap(), all[..1]);
        assert_eq!(meant("ucx", BackendOptions::new()).unwrap(), all[1..3]);
        assert_eq!(meant("verbs-send", BackendOptions::new()).unwrap(), all[4..5]);
        assert!(matches!(meant("verbs", BackendOptions::new()), Err(Error::UnknownTransport { .. })));
    }

    #[test]
    fn a_backend_missing_from_the_build_is_refused_without_build_command() {
        // The user of a wheel does not build farjump.
        let lacking = Backend { maker: None, ..BACKENDS[0] };
        let options = BackendOptions::new();
        assert_eq!(
            lacking.look(options).usable.unwrap_err(),
            "this build of farjump lacks it (feature `shm`)"
        );
        assert_eq!(
            lacking.make(options).err().unwrap().to_string(),
            "transport `shm` cannot be used: this build of farjump lacks it (feature `shm`); choose another one"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = make("smoke-signals").err().expect("there is no such transport").to_string();
        assert!(error.contains("smoke-signals") && error.contains("shm, ucx-put"), "{error}");
    }
}
