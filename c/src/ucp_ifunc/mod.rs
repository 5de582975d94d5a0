//! The papers' own interface, `include/ucp_ifunc.h`, on top of an unmodified UCX: the program owns contexts,
//! endpoints, keys of remote memory and the buffers that frames are polled in.
//!
//! | module | about | process |
//! |---|---|---|
//! | [`frame`] | frames in slots, to the bit | both |
//! | [`bitcode`] | code that a program registers from memory, and the compile process for it | source |
//! | [`codes`] | the images of an ifunc, one for each machine | both |
//! | [`ifunc`] | handles, and the names registered for each context | both |
//! | [`libraries`] | the directory of libraries that are registered by their names | both |
//! | [`message`] | frames that are being made, and their memory | source |
//! | [`send`] | writing them into a slot: by stores where its memory is mapped here, else by one put | source |
//! | [`shared_mappings`] | checks that a pointer returned by UCX lies in memory that a frame can be stored in | source |
//! | [`registry`] | code that came and was placed; functions called by name | target |
//! | [`poll`] | looking into a slot, and running its frame | target |
//! | [`symbols`] | the C functions themselves | both |
//!
//! Status codes are UCX's; the text of an error is kept for `farjump_last_error`.

mod bitcode;
mod codes;
mod frame;
mod ifunc;
mod libraries;
mod message;
mod poll;
mod registry;
mod send;
mod shared_mappings;
mod symbols;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use farjump_loader::Exports;
use farjump_ucx_sys::{UCS_ERR_UNSUPPORTED, Ucx, ucs_status_t};

use crate::api::last_error::{Failure, keep};

/// Adds the functions of this interface to those that injected code may call ([`symbols::offer`]).
type Offer = fn(&mut Exports);

/// End of messages that concern a file of the directory.
const WHERE: &str = "UCX_IFUNC_LIB_DIR names the directory";

/// An error status, and its text.
#[derive(Debug)]
struct Refused {
    status: ucs_status_t,
    text: String,
}

impl Refused {
    #[cold]
    fn new(status: ucs_status_t, text: impl Into<String>) -> Refused {
        Refused { status, text: text.into() }
    }

    /// Keeps the text for this thread, and returns the status.
    #[cold]
    fn note(self) -> ucs_status_t {
        keep(&self.text, None);
        self.status
    }
}

/// Runs the body of a function that C calls, and stops a panic, which is a bug in this library.
#[inline(always)]
fn status(body: impl FnOnce() -> Result<ucs_status_t, Refused>) -> ucs_status_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(refused)) => refused.note(),
        Err(panic) => {
            crate::api::last_error::note(Failure::panic(&*panic));
            farjump_ucx_sys::UCS_ERR_SOME_CONNECTS_FAILED
        }
    }
}

/// Returns the UCX that the program uses.
///
/// # Errors
/// [`UCS_ERR_UNSUPPORTED`] where there is none, or where the dynamic linker finds another UCX by its name
/// than the program was linked with: handles of the one are invalid for the other.
fn ucx() -> Result<&'static Ucx, Refused> {
    static UCX: std::sync::OnceLock<Result<&'static Ucx, String>> = std::sync::OnceLock::new();
    let found = UCX.get_or_init(|| {
        let ucx = Ucx::open().map_err(|error| error.to_string())?;
        let library: &farjump_ucx_sys::Library = ucx;
        // SAFETY: the name is a string, and only the address that is found is read.
        let programs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ucp_put_nbx".as_ptr()) };
        if !programs.is_null() && programs.addr() != library.ucp_put_nbx as usize {
            return Err("the program uses another UCX than the libucp.so.0 that the dynamic linker finds: link the program with \
                        the shared library of UCX, and load only one"
                .to_owned());
        }
        Ok(ucx)
    });
    found.as_ref().copied().map_err(|text| Refused::new(UCS_ERR_UNSUPPORTED, text.clone()))
}
