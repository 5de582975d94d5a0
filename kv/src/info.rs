//! `INFO farjump`.

use farjump::RefusalCause;
use farjump::config::Config;

use crate::api::{self, Context, Info, InfoSource};
use crate::functions;
use crate::host;
use crate::options::{shown_time, target_options};

struct Fields;

/// Makes the server show the module's state.
pub(crate) fn provide(context: &Context<'_>) -> bool {
    api::provide::<Fields>(context)
}

impl InfoSource for Fields {
    fn add_to(info: &Info) {
        let Some(host) = host::get() else { return };
        let turns = &host.turns;
        info.text(c"version", env!("CARGO_PKG_VERSION"));
        let problem = host.problem();
        let target = host.target.try_borrow();
        let is_running = target.is_err();
        let target = target.as_ref().ok().and_then(|target| target.as_ref());
        info.number(c"listening", u64::from(is_running || target.is_some()));
        if let Some(problem) = problem {
            info.text(c"problem", &problem);
        }
        for warning in &host.warnings {
            info.text(c"warning", warning);
        }
        if let Some(options) = host.options() {
            info.option("user", &options.user);
            info.option("load", options.load.name());
            info.option("linger", &shown_time(host.linger.get()));
            info.option("limit", &shown_time(host.limit.get()));
            info.option("spin", if options.spin { "yes" } else { "no" });
        }
        if let Some(target) = target {
            let stats = target.stats();
            info.text(c"address", &target.address());
            for option in target_options() {
                if let Ok(Some(value)) = target.config().get(option.name) {
                    info.option(option.name, &value);
                }
            }
            info.number(c"links", target.sources() as u64);
            info.number(c"calls", stats.frames);
            info.number(c"dropped", stats.refused(RefusalCause::Rights));
            info.number(c"images", target.images().len() as u64);
        }
        if let Ok(code) = host.code.try_borrow() {
            info.number(c"loaded", code.len() as u64);
        }
        let figures = functions::figures();
        info.number(c"writes", figures.writes);
        info.number(c"refused", figures.refused);
        info.number(c"evicted", figures.evicted);
        info.number(c"runs", turns.runs.get());
        info.number(c"arms", turns.arms.get());
        info.number(c"slow_runs", turns.slow.get());
        info.number(c"longest_run_us", turns.longest.get());
    }

    fn add_to_crash_report(info: &Info) {
        let Some(host) = host::get() else { return };
        info.number(c"function_running", u64::from(functions::are_running()));
        info.number(c"runs", host.turns.runs.get());
    }
}
