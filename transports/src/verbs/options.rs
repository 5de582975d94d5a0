//! The choices: the device and its port, the addressing of packets, and the timeout for a silent peer.

use std::env;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The variable that names device and port: `rxe0`, `rxe0:1`.
pub const DEVICE_VARIABLE: &str = "FARJUMP_DEVICE";
/// The variable for everything else, as [`Options::with`] parses it: `gid=10.9.0.1,timeout=14`.
pub const OPTIONS_VARIABLE: &str = "FARJUMP_VERBS";

/// Settings of verbs. [`Options::default`] takes the nearest device with an active port, and times a silent peer out
/// after two to eight seconds, by the device's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The device's name. `None`: the one with an active port that is nearest to this thread (NUMA), or that reaches the
    /// peer.
    pub device: Option<String>,
    /// The port's number, from 1. `None`: the device's first active one, or the one that reaches the peer.
    pub port: Option<u8>,
    /// The choice among the port's GIDs.
    pub gid: Gid,
    /// The partition's key. `None`: the first of the port's table. The comparison ignores the highest bit, full
    /// membership.
    pub partition: Option<u16>,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Traffic class of packets with a global header, which RoCE always has: DSCP and ECN.
    pub traffic_class: u8,
    /// LID of the router to peers in other InfiniBand subnets. `None`: this process refuses such peers.
    pub router: Option<u16>,
    /// Longest packet in bytes: 256, 512, 1024, 2048 or 4096. At most the port's present length; that length
    /// if `None`.
    pub mtu: Option<u16>,
    /// The wait for an acknowledgement, 1 to 31: 4.096 microseconds times 2 to this power, and up to four
    /// times that.
    pub timeout: u8,
    /// Number of retransmissions of a packet, 0 to 6. Not 7, because some devices then retry for ever.
    pub retries: u8,
}

/// A choice among a port's GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gid {
    /// On Ethernet the first RoCE v2 GID with an IPv4 address, else with a global IPv6 address, else any of
    /// RoCE v2, else any. On InfiniBand the first.
    #[default]
    Best,
    /// The GID at this index of the port's table.
    Index(u8),
    /// The RoCE v2 GID with this address.
    Address(IpAddr),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: None,
            port: None,
            gid: Gid::Best,
            partition: None,
            service_level: 0,
            traffic_class: 0,
            router: None,
            mtu: None,
            timeout: 16,
            retries: 6,
        }
    }
}

/// The argument of [`choose_device`].
static CHOSEN: Mutex<Option<String>> = Mutex::new(None);

/// Makes later backends of this process use this device, whatever the value of [`DEVICE_VARIABLE`] is: `rxe0`,
/// `rxe0:1`.
///
/// # Errors
/// The text names no device. Does not check that the device exists.
pub fn choose_device(device: &str) -> Result<(), String> {
    Options::default().on(device)?;
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.to_owned());
    Ok(())
}

impl Options {
    /// The options of [`choose_device`] and the environment ([`DEVICE_VARIABLE`], [`OPTIONS_VARIABLE`]).
    ///
    /// # Errors
    /// The invalid part.
    pub fn of_process() -> Result<Options, String> {
        Options::of(|variable| env::var(variable).ok())
    }

    /// As [`Options::of_process`], with these variables. An empty variable counts as not set.
    fn of(variables: impl Fn(&str) -> Option<String>) -> Result<Options, String> {
        let of = |variable: &str, error: String| format!("{variable}: {error}");
        let set = |variable| variables(variable).filter(|text| !text.is_empty());
        let mut options = Options::default();
        if let Some(text) = set(OPTIONS_VARIABLE) {
            options = options.with(&text).map_err(|error| of(OPTIONS_VARIABLE, error))?;
        }
        if let Some(device) = &*CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) {
            return options.on(device);
        }
        match set(DEVICE_VARIABLE) {
            Some(device) => options.on(&device).map_err(|error| of(DEVICE_VARIABLE, error)),
            None => Ok(options),
        }
    }

    /// The longest time in which a device repeats a request without an acknowledgement.
    pub(super) fn longest_silence(&self) -> Duration {
        let timeout = 4 * (4096_u64 << self.timeout.min(31));
        Duration::from_nanos(timeout * (u64::from(self.retries) + 1))
    }

    /// The same options for the device of this name.
    pub(super) fn named(self, device: &str) -> Options {
        Options { device: Some(device.to_owned()), ..self }
    }

    /// Sets the device: `rxe0`, or `rxe0:1` with its port.
    ///
    /// # Errors
    /// The text names no device or port.
    pub fn on(mut self, device: &str) -> Result<Options, String> {
        let (name, port) = match device.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (device, None),
        };
        if name.is_empty() {
            return Err(format!("`{device}` names no device: write NAME or NAME:PORT, as in rxe0:1"));
        }
        self.port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => {
                return Err(format!("`{device}` names no port: ports are numbers from 1, as in rxe0:1"));
            }
        };
        self.device = Some(name.to_owned());
        Ok(self)
    }

    /// Applies changes: `gid=INDEX` or `gid=ADDRESS`, `pkey=HEX`, `sl=0..15`, `tclass=0..255`, `router=LID`, `mtu=BYTES`,
    /// `timeout=1..31`, `retries=0..6`, joined by commas.
    ///
    /// # Errors
    /// The invalid part.
    pub fn with(mut self, changes: &str) -> Result<Options, String> {
        for change in changes.split(',').map(str::trim).filter(|change| !change.is_empty()) {
            let Some((name, value)) = change.split_once('=') else {
                return Err(format!("`{change}` is no option: write NAME=VALUE, as in timeout=14"));
            };
            match name {
                "gid" => self.gid = gid(value)?,
                "pkey" => {
                    let digits = value.strip_prefix("0x").unwrap_or(value);
                    let key = u16::from_str_radix(digits, 16);
                    self.partition =
                        Some(key.map_err(|_| wrong(change, "a hexadecimal number, as in 8001"))?);
                }
                "sl" => self.service_level = number(change, value, 0..=15)?,
                "router" => {
                    let lid = match value.strip_prefix("0x") {
                        Some(digits) => u16::from_str_radix(digits, 16).ok(),
                        None => value.parse().ok(),
                    };
                    // Higher LIDs are those of multicast groups.
                    let lid = lid.filter(|lid| (1..0xc000).contains(lid));
                    self.router = Some(lid.ok_or_else(|| wrong(change, "a LID from 1 to 49151 (0xbfff)"))?);
                }
                "tclass" => self.traffic_class = number(change, value, 0..=255)?,
                "timeout" => self.timeout = number(change, value, 1..=31)?,
                "retries" => self.retries = number(change, value, 0..=6)?,
                "mtu" => {
                    let bytes = value.parse().ok().filter(|bytes| code_of_mtu(*bytes).is_some());
                    let what = "256, 512, 1024, 2048 or 4096";
                    self.mtu = Some(bytes.ok_or_else(|| wrong(change, what))?);
                }
                other => {
                    return Err(format!(
                        "there is no option `{other}`: there are gid, pkey, sl, tclass, router, mtu, timeout and retries"
                    ));
                }
            }
        }
        Ok(self)
    }
}

fn wrong(change: &str, what: &str) -> String {
    format!("`{change}` is invalid: the value is {what}")
}

fn number(change: &str, value: &str, range: std::ops::RangeInclusive<u8>) -> Result<u8, String> {
    let found = value.parse().ok().filter(|number| range.contains(number));
    found.ok_or_else(|| wrong(change, &format!("a number from {} to {}", range.start(), range.end())))
}

fn gid(value: &str) -> Result<Gid, String> {
    if let Ok(index) = value.parse() {
        return Ok(Gid::Index(index));
    }
    value.parse().map(Gid::Address).map_err(|_| {
        format!("`gid={value}` is invalid: the value is an index from 0 to 255, or an IP address, as in gid=10.9.0.1")
    })
}

/// The verbs number of a packet length (`enum ibv_mtu`).
pub(super) fn code_of_mtu(bytes: u16) -> Option<u32> {
    (1..=5).find(|code| bytes_of_mtu(*code) == bytes)
}

/// The packet length of this verbs number, in bytes; 0 for an unknown number.
pub(super) fn bytes_of_mtu(code: u32) -> u16 {
    if (1..=5).contains(&code) { 128 << code } else { 0 }
}

/// The IP address in a RoCE v2 GID (an IPv4 address is mapped into it).
pub(super) fn address_of(gid: [u8; 16]) -> IpAddr {
    let long = Ipv6Addr::from(gid);
    long.to_ipv4_mapped().map_or(IpAddr::V6(long), IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_or_without_its_port() {
        let on = |text: &str| Options::default().on(text).map(|options| (options.device, options.port));
        assert_eq!(on("rxe0"), Ok((Some("rxe0".to_owned()), None)));
        assert_eq!(on("mlx5_1:2"), Ok((Some("mlx5_1".to_owned()), Some(2))));
        for text in ["", ":1", "rxe0:", "rxe0:0", "rxe0:256", "rxe0:one"] {
            assert!(on(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        assert_eq!(Options::of(|_| Some(String::new())), Ok(Options::default()));
        let of_one = Options::of(|name| (name == DEVICE_VARIABLE).then(|| "rxe0".to_owned()));
        assert_eq!(of_one, Options::default().on("rxe0"));
    }

    #[test]
    fn each_option_is_read_and_invalid_values_are_refused_with_the_range() {
        let text = "gid=10.9.0.1, pkey=0x8001,sl=3,tclass=106,mtu=1024,timeout=14,retries=2";
        let options = Options::default().with(text).unwrap();
        assert_eq!(options.gid, Gid::Address("10.9.0.1".parse().unwrap()));
        assert_eq!(options.partition, Some(0x8001));
        assert_eq!((options.service_level, options.traffic_class), (3, 106));
        assert_eq!((options.mtu, options.timeout, options.retries), (Some(1024), 14, 2));
        for text in ["router=0x31", "router=49"] {
            assert_eq!(Options::default().with(text).unwrap().router, Some(49));
        }
        assert_eq!(Options::default().with("gid=1").unwrap().gid, Gid::Index(1));
        for (text, said) in [
            ("retries=7", "from 0 to 6"),
            ("timeout=0", "from 1 to 31"),
            ("sl=16", "from 0 to 15"),
            ("mtu=1500", "1024"),
            ("router=0", "from 1 to 49151"),
            ("router=0xc000", "from 1 to 49151"),
            ("gid=eth0", "IP address"),
            ("pkey=xyz", "hexadecimal"),
            ("speed=9", "there is no option `speed`"),
            ("timeout", "NAME=VALUE"),
        ] {
            let error = Options::default().with(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn packet_lengths_and_mtu_codes_convert_in_both_directions() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((bytes_of_mtu(code), code_of_mtu(bytes)), (bytes, Some(code)));
        }
        assert_eq!((bytes_of_mtu(0), bytes_of_mtu(6), code_of_mtu(0)), (0, 0, None));
    }
}
