//! The choice among the backends for a destination.

use farjump_core::transport::{PassedOver, Transport};

use crate::Error;
#[cfg(doc)]
use crate::registry::preferred;
use crate::registry::{BACKENDS, Backend, BackendOptions, Chosen, Reach, make_all};

/// The facts about a destination's address that decide which transports lead to it.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// True if file descriptors can be sent there, which only Unix sockets allow.
    pub carries_descriptors: bool,
    /// True if the address itself is on this machine: a Unix socket, or loopback.
    pub is_this_machine: bool,
    /// Checks whether a device of this machine has the address. Called only for the text of an error.
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
/// With `only`, returns those of `own` and of the built-in ones that it names. Otherwise returns all of `own`, and the
/// first built-in transport that works on this machine and whose endpoint address can be sent there. Does not try later
/// ones, like [`preferred`], unless the first may fail to connect the two processes: only a transport that uses
/// descriptors always connects them. If the peer is on another machine and this one has no RDMA device, does not try
/// transports that reach other machines only by RDMA.
///
/// # Errors
/// The errors of [`make_all`]. [`Error::NeedsUnixSocket`] if none of the transports that `only` names has an endpoint
/// address that can be sent there. [`Error::NoTransport`] if there is no transport at all, with the reason against
/// each.
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
        let why = match unreachable_reason(backend, destination, options, has_rdma) {
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

/// Returns the reason why `backend` cannot lead to `destination`, as far as it is known without loading a library.
fn unreachable_reason(
    backend: &Backend,
    destination: Destination<'_>,
    options: BackendOptions,
    has_rdma: bool,
) -> Option<&'static str> {
    let needs_device = match backend.reach {
        Reach::Rdma => true,
        Reach::Ucx => !destination.is_this_machine && !backend.has_ucx_tcp(options),
        Reach::ThisMachine | Reach::Any => false,
    };
    if !needs_device || destination.carries_descriptors || has_rdma {
        return None;
    }
    Some(match backend.reach == Reach::Ucx && (destination.is_own_device)() {
        true => {
            "reaches other machines by RDMA alone, and this one has no RDMA device; the address is this machine's, but not \
             loopback: for processes of this machine listen at unix:PATH or tcp:127.0.0.1:PORT"
        }
        false => "reaches other machines by RDMA alone, and this one has no RDMA device",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(feature = "shm", feature = "tcp"))]
    use crate::registry::available;

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
    #[cfg(feature = "shm")]
    fn shm_is_chosen_for_unix_sockets_and_refused_for_others() {
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
    fn without_an_rdma_device_only_tcp_is_chosen_for_other_machines() {
        let at = |destination, options, has_rdma| preferred_at(destination, Vec::new(), options, has_rdma);
        let chosen = at(FAR, BackendOptions::new(), false);
        assert_eq!(names_of(&chosen), ["tcp"]);
        let passed: Vec<_> = chosen.passed_over.iter().map(|passed| &*passed.transport).collect();
        assert_eq!(passed, ["shm", "ucx-put", "ucx-am", "verbs-write", "verbs-send"]);
        assert!(chosen.passed_over[1..].iter().all(|passed| passed.why.contains("no RDMA device")));
        // With a device, all backends are tried. Without a device, UCX's are tried for this machine, where UCX has
        // shared memory. If UCX's TCP is allowed, `ucx-am` is tried for any machine.
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
}
