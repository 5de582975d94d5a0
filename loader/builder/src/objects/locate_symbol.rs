//! Names the object file and section that caused a refusal.

use farjump_loader::{ImportCause, import_causes};

use crate::error::{BuildError, Site};
use crate::objects::{Objects, Use};

/// Adds the site to `error`, if it is found in the code and data that `name`_main reaches.
pub(crate) fn locate(mut error: BuildError, objects: &Objects, name: &str) -> BuildError {
    let root = format!("{name}_main");
    let find = |wanted: &dyn Fn(&Use) -> bool| objects.uses(&root).into_iter().find(wanted);
    match &mut error {
        BuildError::Constructor { site, symbol, cause } => {
            if let Some((found, function)) = objects.initialisers(&root).into_iter().next() {
                *cause = constructor_cause(objects, &found, &function);
                (*site, *symbol) = (Some(found), function);
            }
        }
        BuildError::ThreadLocal { site, symbol } => fill(site, symbol, find(&|found| found.thread_local)),
        BuildError::Indirect { site, symbol } => fill(site, symbol, find(&|found| found.indirect)),
        BuildError::Copy { site, symbol }
        | BuildError::Relocation { site, symbol, .. }
        | BuildError::Unwinding { site, symbol } => {
            let named = find(&|found| found.symbol == *symbol);
            fill(site, symbol, named);
        }
        BuildError::AddressInCode { site, symbol } | BuildError::Unaligned { site, symbol } => {
            let named = find(&|found| found.symbol == *symbol && found.absolute);
            fill(site, symbol, named);
        }
        BuildError::Outside { site, symbol, .. } => *site = objects.home(symbol),
        BuildError::MainIsNoCode { site, .. } => *site = objects.home(&root),
        BuildError::Section { site, section } => *site = objects.section(section),
        _ => {}
    }
    error
}

/// The compiler's flag that added a function to run before or after everything else, if the function's name is a
/// compiler's: sanitizers and coverage measurements register themselves.
pub(crate) fn constructor_cause(objects: &Objects, site: &Site, function: &str) -> Option<ImportCause> {
    // gcc's, clang's, LLVM's profiles.
    let is_compilers = function.starts_with("_sub_I_0")
        || function.starts_with("_sub_D_0")
        || function.contains(".module_ctor")
        || function.contains(".module_dtor")
        || function.starts_with("__llvm_");
    if !is_compilers {
        return None;
    }
    let undefined = objects.undefined(&site.object);
    import_causes(undefined.iter().map(|name| &**name)).into_iter().next()
}

fn fill(site: &mut Option<Site>, symbol: &mut String, found: Option<Use>) {
    if let Some(found) = found {
        *site = Some(found.site);
        *symbol = found.symbol;
    }
}
