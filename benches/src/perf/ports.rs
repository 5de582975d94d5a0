//! Where references over UCX may listen: on loopback alone, and only where TCP is what they are measured over. A process that reaches a
//! port of UCX's may write this process's memory.

use std::env;
#[cfg(feature = "ucx")]
use std::ffi::CString;

/// Settings of UCX's, by its names without `UCX_`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// The transports; as in the environment if none.
    pub(super) transports: Option<String>,
    /// The devices; as in the environment if none.
    pub(super) devices: Option<&'static str>,
}

/// Those for a reference that takes its transports from the environment.
pub(super) fn settings() -> Settings {
    of(env::var("UCX_TLS").ok().as_deref())
}

/// With `UCX_TLS` as it is `set`: without TCP, or where that is all there is in it on loopback.
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
    /// As `ucp_config_modify` takes them.
    pub(super) fn to_pairs(&self) -> Vec<(CString, CString)> {
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
    fn tcp_is_taken_on_loopback_where_nothing_else_is_named_and_left_out_elsewhere() {
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
