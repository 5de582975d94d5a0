//! UCX's contexts: for active messages without TCP, for those with TCP, and for memory that peers write. A process has
//! one of each, made at its first use and never dropped.

use std::env;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};

use farjump_os::limits;
use farjump_ucx_sys::{
    NEWEST, UCP_FEATURE_AM, UCP_FEATURE_RMA, UCP_FEATURE_WAKEUP, UCP_PARAM_FIELD_FEATURES,
    UCP_PARAM_FIELD_MT_WORKERS_SHARED, UCS_OK, Ucx, Version, ucp_config_t, ucp_context_h, ucp_params_t,
};

use super::PortClosing;
use super::am::listeners::listening;
use super::inherited;
use super::lanes::printed;
use super::shared_memory;
use super::tls;
use super::words;

/// Free descriptors without which UCX may fail an assertion, which aborts the process. Its thread for events needs a
/// pipe and an epoll before it runs, besides files that UCX opens briefly.
const OF_UCXS_THREAD: usize = 6;

/// A context of UCX.
pub(super) struct Context {
    pub(super) ucx: &'static Ucx,
    pub(super) handle: ucp_context_h,
}

// SAFETY: a context made with `mt_workers_shared` may be used by all threads at once (`ucp_params` in ucp.h).
unsafe impl Send for Context {}
// SAFETY: `make` sets `mt_workers_shared`, which permits shared use.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the context for active messages only. With `UCP_FEATURE_RMA`, UCX would execute peers' writes to any
    /// address that they name, in software, on transports without such writes. Over TCP UCX does that with any
    /// features, so workers have TCP only if `tcp`. An error is a sentence with cause and remedy.
    pub(super) fn for_messages(tcp: bool) -> Result<&'static Context, String> {
        static WITHOUT: OnceLock<Result<Context, String>> = OnceLock::new();
        static WITH: OnceLock<Result<Context, String>> = OnceLock::new();
        let make = || {
            let transports = tls::for_messages(tcp)?;
            let mut settings = vec![(c"TLS", &*transports)];
            settings.extend(shared_memory::sizes(&transports, version()?));
            if !tcp {
                return Context::make(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP, &settings, false);
            }
            settings.extend(of_tcp(version()?));
            // Tries the closing of ports before one is open.
            listening()?;
            let closing = PortClosing::usable()?;
            let made = Context::make(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP, &settings, true)?;
            log::warn!(
                "{}; they are closed ({}) once the peer is connected",
                tls::TCP_WARNING,
                closing.name()
            );
            Ok(made)
        };
        inherited::check()?;
        let place = if tcp { &WITH } else { &WITHOUT };
        place.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Returns the context for memory that peers write: without TCP, on which UCX writes in software; with active
    /// messages for doorbells; and only with system memory, because a device may still write after a free.
    pub(super) fn for_memory() -> Result<&'static Context, String> {
        static CONTEXT: OnceLock<Result<Context, String>> = OnceLock::new();
        let make = || {
            let (transports, memory) = (tls::for_memory()?, tls::of_memory());
            let mut settings = vec![(c"TLS", &*transports), (c"ALLOC_PRIO", &*memory)];
            settings.extend(shared_memory::sizes(&transports, version()?));
            Context::make(UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP, &settings, false)
        };
        inherited::check()?;
        CONTEXT.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Makes a context with these features, and with these settings, by UCX's names, instead of UCX's defaults. Without
    /// `tcp`, fails if UCX uses TCP nevertheless.
    pub(super) fn make(features: u32, settings: &[(&CStr, &str)], tcp: bool) -> Result<Context, String> {
        static LOGGED: Once = Once::new();
        let ucx = opened()?;
        inherited::watch(ucx);
        if ucx.version().is_newer_than_tried() {
            LOGGED.call_once(|| {
                let (version, (major, minor)) = (ucx.version(), NEWEST);
                log::warn!(
                    "UCX {version} ({}) is newer than {major}.{minor}, the newest that farjump was tried with",
                    ucx.file().display()
                );
            });
        }
        let failed = |what: &str, status| {
            let (version, said) = (ucx.version(), words(ucx, status));
            format!(
                "UCX {version} {what} ({said}): check the variables UCX_TLS and UCX_NET_DEVICES, and the output of ucx_info -d"
            )
        };
        let mut config = ptr::null_mut();
        // SAFETY: without prefix and file UCX reads only the environment; `config` is a local for the result.
        let status = unsafe { ucx.ucp_config_read(ptr::null(), ptr::null(), &mut config) };
        if status != UCS_OK {
            return Err(failed("does not understand its settings", status));
        }
        let config = Config { ucx, handle: config };
        for (name, value) in settings {
            // Values from the environment contain no zero bytes.
            let Ok(value) = CString::new(*value) else { continue };
            // SAFETY: `ucp_config_read` made the configuration, and both are C strings.
            let status = unsafe { ucx.ucp_config_modify(config.handle, name.as_ptr(), value.as_ptr()) };
            if status != UCS_OK {
                return Err(failed("does not let its transports and its memory be chosen", status));
            }
        }
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED);
        params.features = u64::from(features);
        params.mt_workers_shared = 1;
        let mut handle = ptr::null_mut();
        // SAFETY: all three pointers are to locals, and `config` was made above.
        let status = unsafe { ucx.ucp_init(&params, config.handle, &mut handle) };
        if status != UCS_OK {
            return Err(failed("cannot be used here", status));
        }
        let context = Context { ucx, handle };
        if !tcp && context.has_transport(tls::is_tcp) {
            // SAFETY: made above, without workers, and not used again.
            unsafe { ucx.ucp_cleanup(context.handle) };
            let version = ucx.version();
            return Err(format!(
                "UCX {version} takes TCP by these settings, though farjump leaves it out: name transports in UCX_TLS in full, without \
                 patterns"
            ));
        }
        Ok(context)
    }

    /// Returns whether it has a transport whose name meets the condition.
    pub(super) fn has_transport(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        // SAFETY: `self` owns the handle, and `printed` made the stream.
        let text = printed(|stream| unsafe { self.ucx.ucp_context_print_info(self.handle, stream) });
        text.lines().filter_map(transport).any(is_meant)
    }
}

/// Returns the transport in a line of `ucp_context_print_info`:
/// `#    resource 3  :  md 2  dev 1  flags -- sysv/memory`.
fn transport(line: &str) -> Option<&str> {
    let (resource, _) = line.rsplit_once('/')?;
    if !line.contains("resource") {
        return None;
    }
    resource.split_whitespace().last()
}

/// Opens UCX, if enough descriptors are available for it.
fn opened() -> Result<&'static Ucx, String> {
    inherited::check()?;
    if let Some(limit) = limits::lack_of_descriptors(OF_UCXS_THREAD) {
        return Err(format!("UCX cannot be started: {limit}"));
    }
    Ucx::open().map_err(|error| error.to_string())
}

/// Returns the version of UCX, or the reason why it cannot be opened.
fn version() -> Result<Version, String> {
    Ok(opened()?.version())
}

/// Returns the settings of contexts with TCP, by `ucp_config_modify`'s names. That function reports success for wrong
/// names, too.
///
/// They reject puts of UCX's own peers, though not those of a process that speaks UCT. They forbid zero-copy sends
/// (zcopy): if the peer ends during one, UCX completes it twice, and aborts the process (`uct_tcp_ep_sendv`, up to the
/// newest version). So UCX copies messages into its pieces, which are as long as its receive buffers: three times as
/// fast as with pieces of 8 KiB, and as fast as zcopy.
fn of_tcp<'a>(version: Version) -> impl Iterator<Item = (&'a CStr, &'a str)> {
    let (put, piece) = match (version.major, version.minor) < (1, 17) {
        true => (c"PUT_ENABLE", c"TX_SEG_SIZE"),
        false => (c"TCP_PUT_ENABLE", c"TCP_TX_SEG_SIZE"),
    };
    let piece = env::var_os("UCX_TCP_TX_SEG_SIZE").is_none().then_some((piece, "64k"));
    [(put, "n"), (c"ZCOPY_THRESH", "inf")].into_iter().chain(piece)
}

/// UCX's settings.
struct Config {
    ucx: &'static Ucx,
    handle: *mut ucp_config_t,
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: made by `ucp_config_read`, and not used after this `drop`.
        unsafe { self.ucx.ucp_config_release(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_from_what_ucx_prints_of_a_context() {
        let line = "#            resource 3  :  md 2  dev 1  flags -- rc_verbs/rxe0:1";
        assert_eq!(transport(line), Some("rc_verbs"));
        for line in ["", "# md 0 : self"] {
            assert_eq!(transport(line), None, "{line}");
        }
    }
}
