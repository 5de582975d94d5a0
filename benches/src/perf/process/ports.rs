//! Restricts baselines over UCX to loopback, and to listening only where they measure TCP. A process that
//! reaches a port of UCX's may write this process's memory.

use std::env;
#[cfg(feature = "ucx")]
use std::ffi::CString;

/// Settings of UCX, by their names without `UCX_`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::perf) struct Settings {
    /// The transports; the environment's if `None`.
    pub(in crate::perf) transports: Option<String>,
    /// The devices; the environment's if `None`.
    pub(in crate::perf) devices: Option<&'static str>,
}

/// Returns the settings of a baseline that takes its transports from the environment.
pub(in crate::perf) fn settings() -> Settings {
    of(env::var("UCX_TLS").ok().as_deref())
}

/// Returns the settings for `UCX_TLS` as it is `set`: without TCP, or on loopback if it has nothing but TCP.
fn of(set: Option<&str>) -> Settings {
    let without = |transports: String| Settings { transports: Some(transports), devices: None };
    let set = set.unwrap_or("all").trim();
    if let Some(left_out) = set.strip_prefix('^') {
        return without(format!("^{left_out},tcp"));
    }
    let names: Vec<_> = set.split(',').map(str::trim).collect();
    if names.contains(&"all") {
        return without("^tcp".to_owned());
    }
    let is_tcp = |name: &str| {
        let name = name.strip_prefix('\\').unwrap_or(name);
        name.split(':').next() == Some("tcp")
    };
    let rest: Vec<_> = names.iter().copied().filter(|name| !is_tcp(name)).collect();
    match rest.iter().all(|name| *name == "self") && rest.len() < names.len() {
        true => Settings { transports: None, devices: Some("lo") },
        false => without(rest.join(",")),
    }
}

#[cfg(feature = "ucx")]
impl Settings {
    /// Returns the pairs for `ucp_config_modify`.
    pub(in crate::perf) fn to_pairs(&self) -> Vec<(CString, CString)> {
        let transports = self.transports.as_deref().map(|value| ("TLS", value));
        let devices = self.devices.map(|value| ("NET_DEVICES", value));
        let text = |text: &str| CString::new(text).unwrap_or_default();
        transports.into_iter().chain(devices).map(|(name, value)| (text(name), text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_use_tcp_only_if_set_alone_and_then_on_loopback() {
        for (set, transports, devices) in [
            (None, Some("^tcp"), None),
            (Some("all"), Some("^tcp"), None),
            (Some("^posix"), Some("^posix,tcp"), None),
            (Some("posix"), Some("posix"), None),
            (Some("posix,tcp"), Some("posix"), None),
            (Some("tcp"), None, Some("lo")),
            (Some("tcp,self"), None, Some("lo")),
            (Some(r"\tcp"), None, Some("lo")),
            (Some("self"), Some("self"), None),
        ] {
            let expected = Settings { transports: transports.map(str::to_owned), devices };
            assert_eq!(of(set), expected, "{set:?}");
        }
    }
}
