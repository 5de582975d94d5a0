//! Payload routines that were compiled from bitcode: an image that is placed in this process, for its own calls.
//!
//! An image has one function to call. So the bitcode is linked with a function that writes the addresses of all routines into a
//! table. Those that the bitcode does not define are weak imports of the image.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farjump_core::image::ImageView;
use farjump_loader::{
    Arena, Error, Exports, PayloadRoutines, Refused as NotLinked, Resolver, Store, code_id,
};
use farjump_ucx_sys::{
    UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_NO_ELEM, UCS_ERR_NO_MEMORY, UCS_ERR_REJECTED, UCS_ERR_UNSUPPORTED,
};

use super::MEMORY;
use super::process::Used;
use crate::ucp_ifunc::Refused;

/// The name of the image's function, before `_main`.
pub(super) const NAME: &str = "farjump_routines";
/// The suffixes of all routines that there can be.
const SUFFIXES: [&str; 4] =
    ["_payload_bound", "_payload_get_max_size", "_payload_init", "_payload_init_shrink"];
/// Capacity of an arena of one image, beside its length.
const BESIDE: usize = 64 << 10;
/// Most bytes of an image with its variables: the memory for all of them is taken at once.
const MOST: usize = 16 << 20;

/// Returns, in LLVM's language, the function that writes the addresses of the routines of `name` into its payload.
pub(super) fn table(name: &str) -> String {
    let declared: String =
        SUFFIXES.iter().map(|suffix| format!("declare extern_weak void @{name}{suffix}()\n")).collect();
    let stored = |(index, suffix)| {
        format!(
            "  %at{index} = getelementptr ptr, ptr %table, i64 {index}\n  store ptr @{name}{suffix}, ptr %at{index}\n"
        )
    };
    let stored: String = SUFFIXES.iter().enumerate().map(stored).collect();
    format!(
        "{declared}define void @{NAME}_main(ptr %table, i64 %size, ptr %args) {{\n{stored}  ret void\n}}\n"
    )
}

/// Places the image with the payload routines of `name`. The routines may call `exports` and use the libraries that the
/// image wants, as injected code does. They keep `used`.
///
/// # Errors
/// [`UCS_ERR_NO_ELEM`] for a routine that is missing, also one of those that they call; [`UCS_ERR_REJECTED`] for an image that
/// cannot be placed, [`UCS_ERR_EXCEEDS_LIMIT`] for a long one; [`UCS_ERR_UNSUPPORTED`] where no memory may be executed;
/// [`UCS_ERR_NO_MEMORY`].
pub(super) fn place(
    name: &str,
    image: &[u8],
    exports: Exports,
    used: Used,
) -> Result<PayloadRoutines, Refused> {
    let damaged =
        |error: String| Refused::new(UCS_ERR_REJECTED, format!("the payload routines of `{name}`: {error}"));
    let view = ImageView::new_checked(image).map_err(|error| damaged(error.to_string()))?;
    let names = SUFFIXES.map(|suffix| format!("{name}{suffix}"));
    let is_defined = |routine: &str| !view.imports().any(|import| import.name == routine);
    let mut resolver = Resolver::new(exports);
    resolver.allow_process_symbols();
    let len = image.len() + view.span2_len() + BESIDE;
    if len > MOST {
        let text = format!(
            "the payload routines of `{name}` take {len} bytes with their variables: {MOST} are the most"
        );
        return Err(Refused::new(UCS_ERR_EXCEEDS_LIMIT, text));
    }
    let arena = Arena::new(len).map_err(|error| {
        let status = match error {
            Error::ExecForbidden { .. } => UCS_ERR_UNSUPPORTED,
            _ => UCS_ERR_NO_MEMORY,
        };
        Refused::new(status, error.to_string())
    })?;
    let (mut store, id) = (Store::new(arena), code_id(image));
    let placed = match store.insert(image, id, NAME, &resolver) {
        // Opens libraries only for imports that the process lacks, and for no weak ones: a dependency may be a second
        // copy of a library that is here by another name.
        Err(NotLinked::WantedLibraries { libraries, .. }) => {
            for soname in &libraries {
                // SAFETY: the program names the libraries that its code uses.
                unsafe { resolver.allow_wanted(soname) }.map_err(|error| damaged(error.to_string()))?;
            }
            store.insert(image, id, NAME, &resolver)
        }
        placed => placed,
    };
    let placed = placed.map_err(|why| match why {
        NotLinked::UnresolvedImport { .. }
        | NotLinked::WantedLibraries { .. }
        | NotLinked::WantedUnopened { .. } => {
            Refused::new(UCS_ERR_NO_ELEM, format!("the payload routines of `{name}` cannot run here: {why}"))
        }
        other => damaged(other.to_string()),
    })?;
    let mut addresses = [ptr::null_mut::<c_void>(); SUFFIXES.len()];
    // SAFETY: the function is that of `table`, and the payload a table as it writes it.
    unsafe { placed.main()(addresses.as_mut_ptr().cast(), size_of_val(&addresses), ptr::null_mut()) };
    let find = |routine: &str| {
        let at = names.iter().position(|name| name == routine).filter(|_| is_defined(routine))?;
        NonNull::new(addresses[at])
    };
    // SAFETY: registering runs the routines, as the papers' interface says, and the program provides them. They stay as
    // long as the placed image.
    let routines = unsafe { PayloadRoutines::new(name, Path::new(MEMORY), find, Arc::new((placed, used))) };
    routines.map_err(|error| match error {
        Error::MissingRoutine { routine, .. } => Refused::new(
            UCS_ERR_NO_ELEM,
            format!("the bitcode of `{name}` has no function `{routine}`: define it"),
        ),
        other => damaged(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_declares_each_routine_and_stores_it_in_its_place() {
        let text = table("sum");
        for (index, suffix) in SUFFIXES.iter().enumerate() {
            assert!(text.contains(&format!("declare extern_weak void @sum{suffix}()\n")), "{text}");
            assert!(text.contains(&format!("store ptr @sum{suffix}, ptr %at{index}\n")), "{text}");
        }
    }
}
