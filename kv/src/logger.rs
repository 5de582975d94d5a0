//! farjump's messages in the server's log.

use log::{LevelFilter, Log, Metadata, Record};

use crate::api::{self, Level};

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            log::Level::Error | log::Level::Warn => Level::Warning,
            log::Level::Info => Level::Notice,
            log::Level::Debug => Level::Verbose,
            log::Level::Trace => Level::Debug,
        };
        api::log(level, &record.args().to_string());
    }

    fn flush(&self) {}
}

/// Makes farjump log to the server's log.
pub(crate) fn install() {
    // A module that is loaded again finds its own logger.
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}
