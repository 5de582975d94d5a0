//! Names the object file and section that caused a refusal.

use super::error::{BuildError, Site};
use super::objects::{Objects, Use};

/// Adds the site to `error`, if it is found in the code and data that `name`_main reaches.
pub(super) fn locate(mut error: BuildError, objects: &Objects, name: &str) -> BuildError {
    let root = format!("{name}_main");
    let find = |wanted: &dyn Fn(&Use) -> bool| objects.uses(&root).into_iter().find(wanted);
    match &mut error {
        BuildError::Constructor { site, symbol } => {
            if let Some((found, function)) = objects.initialisers(&root).into_iter().next() {
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
        BuildError::Unaligned { site, symbol } | BuildError::Outside { site, symbol, .. } => {
            *site = objects.home(symbol);
        }
        BuildError::MainIsNoCode { site, .. } => *site = objects.home(&root),
        BuildError::Section { site, section } => *site = objects.section(section),
        _ => {}
    }
    error
}

fn fill(site: &mut Option<Site>, symbol: &mut String, found: Option<Use>) {
    if let Some(found) = found {
        *site = Some(found.site);
        *symbol = found.symbol;
    }
}
