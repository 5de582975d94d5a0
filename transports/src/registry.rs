//! The list of backends, by name.

use farjump_core::transport::{Capabilities, PassedOver, Transport};

use crate::Error;

/// All backends, in the order of display. Those without a maker are not in this build.
const BACKENDS: [Backend; 6] = [
    Backend {
        name: "shm",
        reaches: ONE_MACHINE,
        maker: SHM,
        instead: "build with --features shm",
        locks_memory: false,
    },
    Backend {
        name: "ucx-put",
        reaches: UCX,
        maker: UCX_PUT,
        instead: "build with --features ucx",
        locks_memory: false,
    },
    Backend {
        name: "ucx-am",
        reaches: UCX,
        maker: UCX_AM,
        instead: "build with --features ucx",
        locks_memory: false,
    },
    Backend {
        name: "verbs-write",
        reaches: RDMA,
        maker: VERBS_WRITE,
        instead: "build with --features verbs",
        locks_memory: true,
    },
    Backend {
        name: "verbs-send",
        reaches: RDMA,
        maker: VERBS_SEND,
        instead: "build with --features verbs",
        locks_memory: true,
    },
    Backend {
        name: "tcp",
        reaches: ANY,
        maker: TCP,
        instead: "build with --features tcp",
        locks_memory: false,
    },
];

const ONE_MACHINE: &str = "this machine";
const UCX: &str = "this machine, and RDMA that UCX finds";
const UCX_WITH_TCP: &str =
    "whatever UCX finds; a process that reaches its TCP ports may write this process's memory (--ucx-tcp)";
const RDMA: &str = "machines with RDMA devices";
const ANY: &str = "any machine";

#[cfg(feature = "shm")]
const SHM: Option<Maker> =
    Some(Maker { usable: crate::shm::Shm::usable, make: || Box::new(crate::shm::Shm::new()) });
#[cfg(not(feature = "shm"))]
const SHM: Option<Maker> = None;

#[cfg(feature = "ucx")]
const UCX_PUT: Option<Maker> =
    Some(Maker { usable: crate::ucx::Put::usable, make: || Box::new(crate::ucx::Put::new()) });
#[cfg(not(feature = "ucx"))]
const UCX_PUT: Option<Maker> = None;

#[cfg(feature = "ucx")]
const UCX_AM: Option<Maker> =
    Some(Maker { usable: || crate::ucx::Am::new().usable(), make: || Box::new(crate::ucx::Am::new()) });
#[cfg(not(feature = "ucx"))]
const UCX_AM: Option<Maker> = None;

/// The maker of `ucx-am` with UCX's TCP, used where the operator allows it.
#[cfg(feature = "ucx")]
const UCX_AM_WITH_TCP: Option<Maker> = Some(Maker {
    usable: || crate::ucx::Am::with_tcp().usable(),
    make: || Box::new(crate::ucx::Am::with_tcp()),
});
#[cfg(not(feature = "ucx"))]
const UCX_AM_WITH_TCP: Option<Maker> = None;

#[cfg(feature = "verbs")]
const VERBS_WRITE: Option<Maker> =
    Some(Maker { usable: crate::verbs::Write::usable, make: || Box::new(crate::verbs::Write::new()) });
#[cfg(not(feature = "verbs"))]
const VERBS_WRITE: Option<Maker> = None;

#[cfg(feature = "verbs")]
const VERBS_SEND: Option<Maker> =
    Some(Maker { usable: crate::verbs::Send::usable, make: || Box::new(crate::verbs::Send::new()) });
#[cfg(not(feature = "verbs"))]
const VERBS_SEND: Option<Maker> = None;

#[cfg(feature = "tcp")]
const TCP: Option<Maker> =
    Some(Maker { usable: crate::tcp::Tcp::usable, make: || Box::new(crate::tcp::Tcp::new()) });
#[cfg(not(feature = "tcp"))]
const TCP: Option<Maker> = None;

/// A name for several backends, in order of preference.
const UCX_FAMILY: (&str, [&str; 2]) = ("ucx", ["ucx-put", "ucx-am"]);

struct Backend {
    name: &'static str,
    reaches: &'static str,
    /// `None` if the backend is not compiled in.
    maker: Option<Maker>,
    /// The remedy if it is not compiled in.
    instead: &'static str,
    /// Whether every endpoint locks memory, which a process may do only up to a limit.
    locks_memory: bool,
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
    /// Whether `ucx-am` may use UCX's TCP. **A process that reaches a port of its workers may write any
    /// address of this process.** Off by default.
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
}

/// Facts about a backend that do not depend on a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TransportInfo {
    /// Its name, as users type it.
    pub name: &'static str,
    /// Whether it is in this build.
    pub compiled: bool,
    /// The possible locations of its peers, in words: `this machine`.
    pub reaches: &'static str,
    /// Its capabilities on this machine, or a sentence for users that states why it cannot be used and the
    /// remedy.
    pub usable: Result<Capabilities, String>,
}

/// Lists every backend, in this build or not, usable or not. The order is always the same.
pub fn available() -> Vec<TransportInfo> {
    available_with(BackendOptions::new())
}

/// Does the same as [`available`] with these options.
pub fn available_with(options: BackendOptions) -> Vec<TransportInfo> {
    BACKENDS.iter().map(|backend| backend.look(options)).collect()
}

/// Lists the backends that a user means by `name`, as [`available`] lists them: the backend of this name or,
/// for `ucx`, those of UCX. The others are not tried.
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

/// Returns the first backend that works on this machine: the default if the user names none. Later ones are
/// not tried, because trying some of them loads a library, which may do anything in the process.
pub fn preferred() -> Option<Box<dyn Transport>> {
    BACKENDS.iter().find_map(|backend| backend.make(BackendOptions::new()).ok())
}

/// The facts about a destination's address that decide which transports lead to it.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// Whether file descriptors can be sent there, which only Unix sockets allow.
    pub carries_descriptors: bool,
    /// Whether the address itself is on this machine: a Unix socket, or loopback.
    pub is_this_machine: bool,
    /// Checks whether a device of this machine has the address. Called to word an error.
    pub is_own_device: &'a dyn Fn() -> bool,
}

impl Destination<'_> {
    /// Returns whether the endpoint address of `transport` can be sent there.
    fn suits(&self, transport: &dyn Transport) -> bool {
        self.carries_descriptors || !transport.capabilities().descriptors
    }
}

/// Returns the transports to use towards `destination`.
///
/// If `only` is given, these are the ones that it means, of `own` and the built-in ones. Otherwise they are
/// all of `own` and the first built-in one that works on this machine and whose endpoint address can be sent
/// there. Later ones are not tried, as with [`preferred`], unless the first may fail to join the two
/// processes: only a transport that uses descriptors always joins them. If the peer is on another machine and
/// this one has no RDMA device, transports that reach other machines by RDMA alone are not tried either.
///
/// # Errors
/// The errors of [`make_all`]. [`Error::NeedsUnixSocket`] when the endpoint address of no transport that
/// `only` means can be sent there; [`Error::NoTransport`] when there is no transport at all, with the reason
/// against each.
pub fn transports_for(
    destination: Destination<'_>,
    only: Option<&str>,
    mut own: Vec<Box<dyn Transport>>,
    options: BackendOptions,
) -> Result<Chosen, Error> {
    if let Some(name) = only {
        own.retain(|transport| transport.name() == name);
        let chosen = match own.is_empty() {
            true => make_all(name, options)?,
            false => Chosen { transports: own, passed_over: Vec::new() },
        };
        return match chosen.transports.iter().any(|transport| destination.suits(transport.as_ref())) {
            true => Ok(chosen),
            false => Err(Error::NeedsUnixSocket { transport: name.to_owned() }),
        };
    }
    own.retain(|transport| destination.suits(transport.as_ref()));
    let chosen = preferred_at(destination, own, options, has_rdma_device());
    if chosen.transports.is_empty() {
        return Err(Error::NoTransport { transports: chosen.passed_over });
    }
    Ok(chosen)
}

/// Does the same as [`transports_for`] without `only`, for a machine with or without an RDMA device. The list
/// may be empty.
fn preferred_at(
    destination: Destination<'_>,
    own: Vec<Box<dyn Transport>>,
    options: BackendOptions,
    has_rdma: bool,
) -> Chosen {
    let mut chosen = Chosen { transports: own, passed_over: Vec::new() };
    for backend in &BACKENDS {
        let why = match backend.why_not_to(destination, options, has_rdma) {
            Some(why) => format!("{}: {why}", backend.name),
            None => match backend.make(options) {
                Ok(transport) if destination.suits(transport.as_ref()) => {
                    let joins = transport.capabilities().descriptors;
                    chosen.transports.push(transport);
                    if joins {
                        break;
                    }
                    continue;
                }
                Ok(_) => format!("{}: needs a Unix socket", backend.name),
                Err(error) => error.to_string(),
            },
        };
        chosen.passed_over.push(PassedOver::new(backend.name, why));
    }
    chosen
}

/// Returns whether the kernel has an RDMA device. Checked before any library is loaded that would use one.
fn has_rdma_device() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
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
/// [`Error::UnknownTransport`] for a name that no backend has; [`Error::Unusable`] if it is not in this build
/// or does not work on this machine.
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

/// Makes the error for a name that no backend has.
fn unknown(name: &str) -> Error {
    let known = BACKENDS.map(|backend| backend.name).join(", ");
    let (family, members) = UCX_FAMILY;
    let known = format!("{known}; or {family} for the better of {}", members.join(" and "));
    Error::UnknownTransport { name: name.to_owned(), known }
}

/// The backends that a user means by a name.
pub struct Chosen {
    /// The usable ones, in order of preference.
    pub transports: Vec<Box<dyn Transport>>,
    /// Those that the name means too but that do not work on this machine or lead nowhere from it.
    pub passed_over: Vec<PassedOver>,
}

/// Makes the backends that a user means by `name`, in order of preference: the backend of this name or, for
/// `ucx`, those of UCX that work on this machine, with the reasons against the others.
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
            Err(Error::Unusable { why, .. }) => {
                chosen.passed_over.push(PassedOver::new(member, why));
            }
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

/// Returns whether every endpoint of the backend of this name locks memory. Whether a process may lock that
/// much shows only when one is opened.
pub fn locks_memory(name: &str) -> bool {
    BACKENDS.iter().any(|backend| backend.name == name && backend.locks_memory)
}

/// Makes every backend that works on this machine.
pub fn make_usable(options: BackendOptions) -> Vec<Box<dyn Transport>> {
    BACKENDS.iter().filter_map(|backend| backend.make(options).ok()).collect()
}

impl Backend {
    /// Returns why it cannot lead to `destination`, as far as that is known without loading a library.
    fn why_not_to(
        &self,
        destination: Destination<'_>,
        options: BackendOptions,
        has_rdma: bool,
    ) -> Option<&'static str> {
        let needs_device = match self.reaches {
            RDMA => true,
            UCX => !destination.is_this_machine && !self.has_ucx_tcp(options),
            _ => false,
        };
        if !needs_device || destination.carries_descriptors || has_rdma {
            return None;
        }
        Some(match self.reaches == UCX && (destination.is_own_device)() {
            true => {
                "reaches other machines by RDMA alone, and this one has no RDMA device; the address is this machine's, but not \
                 loopback: for processes of this machine listen at unix:PATH or tcp:127.0.0.1:PORT"
            }
            false => "reaches other machines by RDMA alone, and this one has no RDMA device",
        })
    }

    /// Returns whether it is `ucx-am` and may use TCP.
    fn has_ucx_tcp(&self, options: BackendOptions) -> bool {
        options.ucx_tcp && self.name == "ucx-am"
    }

    fn maker(&self, options: BackendOptions) -> Option<Maker> {
        if self.has_ucx_tcp(options) { UCX_AM_WITH_TCP } else { self.maker }
    }

    fn look(&self, options: BackendOptions) -> TransportInfo {
        let usable = match self.maker(options) {
            Some(maker) => (maker.usable)(),
            None => Err(self.instead.to_owned()),
        };
        let reaches = if self.has_ucx_tcp(options) { UCX_WITH_TCP } else { self.reaches };
        TransportInfo { name: self.name, compiled: self.maker.is_some(), reaches, usable }
    }

    fn make(&self, options: BackendOptions) -> Result<Box<dyn Transport>, Error> {
        let unusable = |why| Error::Unusable { name: self.name, why };
        let maker = self.maker(options).ok_or_else(|| unusable(self.instead.to_owned()))?;
        (maker.usable)().map_err(unusable)?;
        Ok((maker.make)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "shm")]
    const UNIX: Destination<'static> =
        Destination { carries_descriptors: true, is_this_machine: true, is_own_device: &|| false };
    #[cfg(all(feature = "shm", feature = "tcp"))]
    const LOOPBACK: Destination<'static> =
        Destination { carries_descriptors: false, is_this_machine: true, is_own_device: &|| true };
    #[cfg(feature = "shm")]
    const FAR: Destination<'static> =
        Destination { carries_descriptors: false, is_this_machine: false, is_own_device: &|| false };

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
    #[cfg(feature = "shm")]
    fn shm_meets_on_unix_sockets_and_all_others_over_tcp() {
        let names = |destination, only| {
            let chosen = transports_for(destination, only, Vec::new(), BackendOptions::new())?;
            let transports = chosen.transports.iter();
            Ok::<_, Error>(transports.map(|transport| transport.name().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(UNIX, None).unwrap(), ["shm"]);
        assert_eq!(names(UNIX, Some("shm")).unwrap(), ["shm"]);
        let error = names(FAR, Some("shm")).unwrap_err();
        assert!(matches!(error, Error::NeedsUnixSocket { .. }), "{error}");
        let chosen = transports_for(FAR, None, Vec::new(), BackendOptions::new());
        match (chosen, has_rdma_device()) {
            (Ok(chosen), false) => assert_eq!(names_of(&chosen), ["tcp"]),
            (Err(error @ Error::NoTransport { .. }), false) => {
                let text = error.to_string();
                assert!(text.contains("shm: needs a Unix socket") && text.contains("ucx-am"), "{text}");
            }
            (Ok(chosen), true) => assert!(chosen.transports.iter().all(|one| FAR.suits(one.as_ref()))),
            (Err(error), _) => panic!("{error}"),
        }
        // The caller's own transports are checked too.
        let own: Vec<Box<dyn Transport>> = vec![Box::new(crate::shm::Shm::new())];
        let error =
            transports_for(FAR, Some("shm"), own, BackendOptions::new()).err().expect("shm has descriptors");
        assert!(matches!(error, Error::NeedsUnixSocket { .. }), "{error}");
    }

    #[cfg(feature = "shm")]
    fn names_of(chosen: &Chosen) -> Vec<&str> {
        chosen.transports.iter().map(|transport| transport.name()).collect()
    }

    #[test]
    #[cfg(all(feature = "shm", feature = "tcp"))]
    fn without_a_device_other_machines_are_reached_by_tcp_and_no_library_is_looked_at() {
        let at = |destination, options, has_rdma| preferred_at(destination, Vec::new(), options, has_rdma);
        let chosen = at(FAR, BackendOptions::new(), false);
        assert_eq!(names_of(&chosen), ["tcp"]);
        let passed: Vec<_> = chosen.passed_over.iter().map(|passed| &*passed.transport).collect();
        assert_eq!(passed, ["shm", "ucx-put", "ucx-am", "verbs-write", "verbs-send"]);
        assert!(chosen.passed_over[1..].iter().all(|passed| passed.why.contains("no RDMA device")));
        // With a device, all backends are tried. Without one, UCX's are tried for this machine, where UCX has
        // shared memory; `ucx-am` is tried for any if UCX's TCP is allowed.
        let usable: Vec<_> = available()
            .into_iter()
            .filter(|backend| backend.usable.is_ok())
            .map(|backend| backend.name)
            .collect();
        assert_eq!(names_of(&at(FAR, BackendOptions::new(), true)), usable[1..]);
        let near = at(LOOPBACK, BackendOptions::new(), false);
        let of_ucx = |chosen: &Chosen| names_of(chosen).iter().filter(|name| name.starts_with("ucx")).count();
        assert_eq!(of_ucx(&near), usable.iter().filter(|name| name.starts_with("ucx")).count());
        let allowed = at(FAR, BackendOptions::new().with_ucx_tcp(true), false);
        assert_eq!(of_ucx(&allowed), usable.iter().filter(|name| **name == "ucx-am").count());
        assert_eq!(names_of(&at(UNIX, BackendOptions::new(), false)), ["shm"]);
    }

    #[test]
    fn what_is_named_before_is_preferred() {
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
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = make("smoke-signals").err().expect("there is no such transport").to_string();
        assert!(error.contains("smoke-signals") && error.contains("shm, ucx-put"), "{error}");
    }
}
