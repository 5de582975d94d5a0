//! The settings that change while the server runs: `CONFIG SET farjump.linger`, `farjump.limit`.

use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::time::Duration;

use farjump_os::resources;

use crate::api::{self, Context, NumberSetting};
use crate::host;
use crate::options::LONGEST_LINGER;

/// Adds the settings to the server. The module's arguments are their defaults.
pub(crate) fn register(context: &Context<'_>) -> bool {
    let added = api::add_number::<Linger>(context) & api::add_number::<Limit>(context);
    // A server unloads a module that adds settings and does not make the server set them.
    api::set_from_file(context) & added
}

/// Microseconds for which the target still polls after work.
struct Linger;

impl NumberSetting for Linger {
    const NAME: &CStr = c"linger";
    const RANGE: RangeInclusive<i64> = 0..=LONGEST_LINGER.as_micros() as i64;

    fn get() -> i64 {
        host::get().map_or(0, |host| host.linger.get().as_micros() as i64)
    }

    fn set(value: i64) -> Result<(), String> {
        let Some(host) = host::get() else { return Ok(()) };
        if value != 0 && resources::processors() < 2 {
            return Err("with one processor lingering would keep sources from running".to_owned());
        }
        host.linger.set(Duration::from_micros(value.unsigned_abs()));
        Ok(())
    }
}

/// Milliseconds of functions after which the log reports them.
struct Limit;

impl NumberSetting for Limit {
    const NAME: &CStr = c"limit";
    const RANGE: RangeInclusive<i64> = 0..=i64::MAX;

    fn get() -> i64 {
        host::get().map_or(0, |host| i64::try_from(host.limit.get().as_millis()).unwrap_or(i64::MAX))
    }

    fn set(value: i64) -> Result<(), String> {
        if let Some(host) = host::get() {
            host.limit.set(Duration::from_millis(value.unsigned_abs()));
        }
        Ok(())
    }
}
