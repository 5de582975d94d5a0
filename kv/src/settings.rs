//! The settings that change while the server runs: `CONFIG SET farjump.linger`, `farjump.limit`. They have the names and
//! values of the module's arguments.

use std::ffi::CStr;

use farjump_os::resources;

use crate::api::{self, Context, TextSetting};
use crate::host;
use crate::options::{DEFAULT_LIMIT, parse_limit, parse_linger, shown_time};

/// Adds the settings to the server. The module's arguments are their defaults.
pub(crate) fn register(context: &Context<'_>) -> bool {
    let added = api::add_text::<Linger>(context) & api::add_text::<Limit>(context);
    // A server unloads a module that adds settings and does not make the server set them.
    api::set_from_file(context) & added
}

/// Time for which the target still polls after work.
struct Linger;

impl TextSetting for Linger {
    const NAME: &CStr = c"linger";

    fn get() -> String {
        shown_time(host::get().map(|host| host.linger.get()).unwrap_or_default())
    }

    fn set(value: &str) -> Result<(), String> {
        let linger = parse_linger(value).map_err(|fault| fault.to_string())?;
        let Some(host) = host::get() else { return Ok(()) };
        if !linger.is_zero() && resources::processors() < 2 {
            return Err("with one processor lingering would keep sources from running".to_owned());
        }
        host.linger.set(linger);
        Ok(())
    }
}

/// Time of functions after which the log reports them.
struct Limit;

impl TextSetting for Limit {
    const NAME: &CStr = c"limit";

    fn get() -> String {
        shown_time(host::get().map_or(DEFAULT_LIMIT, |host| host.limit.get()))
    }

    fn set(value: &str) -> Result<(), String> {
        let limit = parse_limit(value).map_err(|fault| fault.to_string())?;
        if let Some(host) = host::get() {
            host.limit.set(limit);
        }
        Ok(())
    }
}
