//! Settings of UCX that must be equal in both processes of a link.
//!
//! Each endpoint computes the use of each of the peer's devices, and UCX assumes that the peer computes the same. If
//! settings make that untrue, UCX 1.13 aborts its process ("endpoint reconfiguration not supported yet"), and an
//! endpoint with less space than the peer sends reads memory out of bounds. So each endpoint states its settings, and
//! the peer rejects differing ones before UCX sees them. Different transports and devices (`UCX_TLS`,
//! `UCX_NET_DEVICES`) do no harm.

use std::env;
use std::sync::OnceLock;

use farjump_core::transport::Cause;

/// The variables, in the order in which they go into the checksum.
const ALIKE: [&str; 16] = [
    "UCX_MAX_EAGER_LANES",
    "UCX_MAX_EAGER_RAILS",
    "UCX_MAX_RNDV_LANES",
    "UCX_MAX_RNDV_RAILS",
    "UCX_MM_FIFO_ELEM_SIZE",
    "UCX_MM_FIFO_SIZE",
    "UCX_MM_SEG_SIZE",
    "UCX_POSIX_FIFO_ELEM_SIZE",
    "UCX_POSIX_FIFO_SIZE",
    "UCX_POSIX_SEG_SIZE",
    "UCX_RNDV_SCHEME",
    "UCX_SYSV_FIFO_ELEM_SIZE",
    "UCX_SYSV_FIFO_SIZE",
    "UCX_SYSV_SEG_SIZE",
    "UCX_TCP_RX_SEG_SIZE",
    "UCX_UNIFIED_MODE",
];

/// The values in this process, read like UCX at the first use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// `NAME=VALUE`, joined by spaces.
    text: String,
}

impl Settings {
    /// Returns the settings of this process.
    pub(super) fn own() -> &'static Settings {
        static OWN: OnceLock<Settings> = OnceLock::new();
        OWN.get_or_init(|| {
            Settings::of(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
        })
    }

    fn of(value: impl Fn(&str) -> Option<String>) -> Settings {
        let set = ALIKE.iter().filter_map(|name| Some(format!("{name}={}", value(name)?)));
        Settings { text: set.collect::<Vec<_>>().join(" ") }
    }

    /// Returns a checksum: zero exactly if no variable is set.
    pub(super) fn sum(&self) -> u16 {
        match self.text.as_str() {
            "" => 0,
            text => (crc32fast::hash(text.as_bytes()) as u16).max(1),
        }
    }

    /// Checks that a peer with the checksum `theirs` has the same settings.
    pub(super) fn agree(&self, theirs: u16) -> Result<(), Cause> {
        if self.sum() == theirs {
            return Ok(());
        }
        let peer = if theirs == 0 { "none of them" } else { "others" };
        let own = if self.text.is_empty() { "none of them" } else { &self.text };
        Err(Cause::Address(format!(
            "settings of UCX that must be the same in both processes differ: this process has {own} and the peer {peer}; give both the same {}",
            ALIKE.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Settings {
        Settings::of(|name| Some(set.iter().find(|(other, _)| *other == name)?.1.to_owned()))
    }

    #[test]
    fn equal_relevant_settings_agree_and_their_absence_sums_to_zero() {
        let one = with(&[("UCX_RNDV_SCHEME", "am"), ("UCX_MM_SEG_SIZE", "4k")]);
        let other = with(&[("UCX_MM_SEG_SIZE", "4k"), ("UCX_RNDV_SCHEME", "am"), ("UCX_TLS", "tcp")]);
        assert_eq!(one.agree(other.sum()), Ok(()));
        assert_eq!((with(&[]).sum(), with(&[("UCX_TLS", "tcp")]).sum()), (0, 0));
    }

    #[test]
    fn differing_settings_are_an_error_that_names_the_variable_and_value() {
        for name in ALIKE {
            let (own, other) = (with(&[(name, "2")]), with(&[(name, "3")]));
            for (own, theirs, shown) in [
                (&own, other.sum(), "and the peer others"),
                (&own, 0, "and the peer none"),
                (&with(&[]), own.sum(), "has none"),
            ] {
                let error = own.agree(theirs).expect_err("they differ").to_string();
                assert!(error.contains(shown) && error.contains(name), "{error}");
            }
            assert!(own.agree(0).unwrap_err().to_string().contains(&format!("{name}=2")));
        }
    }
}
