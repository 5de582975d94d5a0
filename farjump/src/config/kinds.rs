//! Types of options: how a value is written, read and shown.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use farjump_control::{Grant, PeerAddress, Rights};
use farjump_core::image::{CodeId, Level, Machine};
use farjump_core::wait::WaitPolicy;

use super::Given;
use super::units::{parse_bytes, parse_duration, shown_bytes, shown_duration};
use crate::Mode;

/// The shape of an option's values, by which interfaces choose the types of their languages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shape {
    /// A number of bytes: `65536`, `64K`, `4M`.
    Bytes,
    /// A whole number.
    Count,
    /// A time: `500ms`, `2s`.
    Duration,
    /// `yes` or `no`.
    Flag,
    /// Text: one of some words, a name, an address.
    Text,
    /// A path.
    Path,
    /// Several values, with commas between them.
    List,
    /// Pairs `NAME=VALUE`, with commas between them.
    Pairs,
}

/// A type of options. Implementations are markers; the values are those of [`Kind::Value`].
pub(crate) trait Kind {
    /// The type of the field.
    type Value: Clone + PartialEq + Debug;
    /// Shape of the values.
    const SHAPE: Shape;
    /// Stands for a value in help: `BYTES`.
    const PLACEHOLDER: &'static str;

    /// Whether the items of a list are words, which have no commas.
    const WORDS: bool = false;

    /// Reads a value.
    ///
    /// # Errors
    /// A sentence for the user.
    fn read(given: &Given<'_>) -> Result<Self::Value, String>;

    /// Formats a value so that [`Kind::read`] reads it back. `None` for the absence of a value.
    fn show(value: &Self::Value) -> Option<String>;

    /// The value in bytes, nanoseconds or as a number, where a range applies.
    fn amount(_: &Self::Value) -> Option<u64> {
        None
    }

    /// Formats an amount.
    fn show_amount(amount: u64) -> String {
        amount.to_string()
    }
}

/// Kinds with one value, which is read from text.
pub(crate) trait Single {
    type Of: Clone + PartialEq + Debug;
    const OF_SHAPE: Shape;
    const WORD: &'static str;

    fn parse(text: &str) -> Result<Self::Of, String>;

    fn parse_os(text: &OsStr) -> Result<Self::Of, String> {
        Self::parse(in_utf8(text)?)
    }

    fn shown(value: &Self::Of) -> String;

    fn amount_of(_: &Self::Of) -> Option<u64> {
        None
    }

    fn shown_amount(amount: u64) -> String {
        amount.to_string()
    }
}

impl<S: Single> Kind for S {
    type Value = S::Of;
    const SHAPE: Shape = S::OF_SHAPE;
    const PLACEHOLDER: &'static str = S::WORD;

    fn read(given: &Given<'_>) -> Result<S::Of, String> {
        S::parse_os(given.one()?)
    }

    fn show(value: &S::Of) -> Option<String> {
        Some(S::shown(value))
    }

    fn amount(value: &S::Of) -> Option<u64> {
        S::amount_of(value)
    }

    fn show_amount(amount: u64) -> String {
        S::shown_amount(amount)
    }
}

/// An option that may have no value of its own. Then other settings, or the machine, decide.
#[derive(Debug)]
pub(crate) struct Auto<S>(PhantomData<S>);

impl<S: Single> Kind for Auto<S> {
    type Value = Option<S::Of>;
    const SHAPE: Shape = S::OF_SHAPE;
    const PLACEHOLDER: &'static str = S::WORD;

    fn read(given: &Given<'_>) -> Result<Option<S::Of>, String> {
        S::parse_os(given.one()?).map(Some)
    }

    fn show(value: &Option<S::Of>) -> Option<String> {
        value.as_ref().map(S::shown)
    }

    fn amount(value: &Option<S::Of>) -> Option<u64> {
        value.as_ref().and_then(S::amount_of)
    }

    fn show_amount(amount: u64) -> String {
        S::shown_amount(amount)
    }
}

/// Several values. A comma within one is written `\,`.
#[derive(Debug)]
pub(crate) struct List<S>(PhantomData<S>);

impl<S: Single> Kind for List<S> {
    type Value = Vec<S::Of>;
    const SHAPE: Shape = match S::OF_SHAPE {
        Shape::Pairs => Shape::Pairs,
        _ => Shape::List,
    };
    const PLACEHOLDER: &'static str = S::WORD;

    fn read(given: &Given<'_>) -> Result<Vec<S::Of>, String> {
        given.all().iter().map(|text| S::parse_os(text)).collect()
    }

    fn show(value: &Vec<S::Of>) -> Option<String> {
        let shown = value.iter().map(|value| S::shown(value).replace('\\', "\\\\").replace(',', "\\,"));
        (!value.is_empty()).then(|| shown.collect::<Vec<_>>().join(","))
    }
}

/// Declares kinds with one value.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $value:ty, $shape:ident, $placeholder:literal, $parse:expr, $show:expr
        $(, amount $amount:expr, $show_amount:expr)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $kind;

        impl Single for $kind {
            type Of = $value;
            const OF_SHAPE: Shape = Shape::$shape;
            const WORD: &'static str = $placeholder;

            fn parse(text: &str) -> Result<$value, String> {
                let parse: fn(&str) -> Result<$value, String> = $parse;
                parse(text)
            }

            fn shown(value: &$value) -> String {
                let show: fn(&$value) -> String = $show;
                show(value)
            }

            $(
                fn amount_of(value: &$value) -> Option<u64> {
                    let amount: fn(&$value) -> u64 = $amount;
                    Some(amount(value))
                }

                fn shown_amount(amount: u64) -> String {
                    let show: fn(u64) -> String = $show_amount;
                    show(amount)
                }
            )?
        }
    )*};
}

kinds! {
    /// A number of bytes.
    Bytes: usize, Bytes, "BYTES", parse_bytes, |bytes| shown_bytes(*bytes as u64),
        amount |bytes| *bytes as u64, shown_bytes;
    /// A number of bytes of 64 bits.
    Bytes64: u64, Bytes, "BYTES", |text| parse_bytes(text).map(|bytes| bytes as u64), |bytes| shown_bytes(*bytes),
        amount |bytes| *bytes, shown_bytes;
    /// A whole number.
    Count: usize, Count, "N", parse_count, usize::to_string, amount |count| *count as u64, |count| count.to_string();
    /// A whole number of 32 bits.
    Count32: u32, Count, "N", parse_count, u32::to_string, amount |count| u64::from(*count), |count| count.to_string();
    /// A time limit or an interval.
    Time: Duration, Duration, "T", parse_time, |time| shown_duration(*time),
        amount |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        |nanoseconds| match nanoseconds {
            u64::MAX => shown_duration(Duration::MAX),
            nanoseconds => shown_duration(Duration::from_nanos(nanoseconds)),
        };
    /// Yes or no.
    Flag: bool, Flag, "yes|no", parse_flag, |flag| if *flag { "yes" } else { "no" }.to_owned();
    /// Any text.
    Text: String, Text, "TEXT", |text| Ok(text.to_owned()), String::clone;
    /// The name of a shared library, without a folder.
    Soname: String, Text, "SONAME", |text| Ok(stated(text)?.to_owned()), String::clone;
    /// An address of a target.
    Address: String, Text, "ADDRESS", parse_address, String::clone;
    /// The name of a transport, or of UCX's.
    TransportName: String, Text, "NAME", parse_transport, String::clone;
    /// An RDMA device and its port.
    Device: String, Text, "NAME[:PORT]", |text| Ok(stated(text)?.to_owned()), String::clone;
    /// A mode of calls.
    ModeName: Mode, Text, "MODE", str::parse, Mode::to_string;
    /// A name and the address of the target that it stands for.
    Destination: (String, String), Pairs, "NAME=ADDRESS", parse_destination,
        |(name, address)| format!("{name}={address}");
    /// A level of CPUs of this machine's architecture.
    CpuLevel: Level, Text, "LEVEL", parse_level, Level::to_string;
    /// The spinning of a wait before it sleeps.
    Spinning: WaitPolicy, Text, "TURNS", parse_wait_policy, shown_wait_policy;
    /// The action of a publisher when its topic is full.
    OverflowName: Overflow, Text, "WHAT", parse_overflow, |action| action.name().to_owned();
    /// The libraries of which a target takes bitcode.
    Bitcode: BitcodeUse, Text, "WHEN", parse_bitcode, |when| when.name().to_owned();
    /// A code id, or a file of them.
    CodeIds: Vec<CodeId>, List, "ID|@FILE", parse_code_ids, |ids| {
        ids.iter().map(CodeId::to_string).collect::<Vec<_>>().join(",")
    };
}

/// Rights: a list, or changes to the default ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RightNames;

impl Kind for RightNames {
    type Value = Rights;
    const SHAPE: Shape = Shape::List;
    const PLACEHOLDER: &'static str = "RIGHT,…";
    const WORDS: bool = true;

    fn read(given: &Given<'_>) -> Result<Rights, String> {
        let names = given.all();
        let names = names.iter().map(|name| in_utf8(name)).collect::<Result<Vec<_>, _>>()?.join(",");
        // No name is no right, too.
        if names.is_empty() {
            Ok(Rights::empty())
        } else {
            Ok(names.parse::<Grant>()?.instead_of(Rights::default()))
        }
    }

    fn show(value: &Rights) -> Option<String> {
        Some(value.to_string())
    }
}

/// Modes, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeNames;

impl Kind for ModeNames {
    type Value = Vec<Mode>;
    const SHAPE: Shape = Shape::List;
    const PLACEHOLDER: &'static str = ModeName::WORD;
    const WORDS: bool = true;

    fn read(given: &Given<'_>) -> Result<Vec<Mode>, String> {
        let modes = List::<ModeName>::read(given)?;
        if modes.is_empty() {
            Err("a target without a mode runs no call: name one at least".to_owned())
        } else {
            Ok(modes)
        }
    }

    fn show(value: &Vec<Mode>) -> Option<String> {
        List::<ModeName>::show(value)
    }
}

/// Declares kinds of paths, which may have any bytes.
macro_rules! paths {
    ($($(#[$doc:meta])* $kind:ident, $placeholder:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $kind;

        impl Single for $kind {
            type Of = PathBuf;
            const OF_SHAPE: Shape = Shape::Path;
            const WORD: &'static str = $placeholder;

            fn parse(text: &str) -> Result<PathBuf, String> {
                Self::parse_os(text.as_ref())
            }

            fn parse_os(text: &OsStr) -> Result<PathBuf, String> {
                if text.is_empty() { Err(EMPTY.to_owned()) } else { Ok(text.into()) }
            }

            fn shown(path: &PathBuf) -> String {
                path.to_string_lossy().into_owned()
            }
        }
    )*};
}

paths! {
    /// A file.
    File, "FILE";
    /// A folder.
    Folder, "FOLDER";
    /// A shared library, by path or soname.
    SharedLibrary, "LIB.so";
}

/// The fault of a text that names nothing.
const EMPTY: &str = "the text is empty: leave the option out for its default";

/// Ids of code and of families. No value allows all code, the empty list allows none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeList;

impl Kind for CodeList {
    type Value = Option<Vec<CodeId>>;
    const SHAPE: Shape = Shape::List;
    const PLACEHOLDER: &'static str = CodeIds::WORD;
    const WORDS: bool = true;

    fn read(given: &Given<'_>) -> Result<Option<Vec<CodeId>>, String> {
        let lists: Vec<_> =
            given.all().iter().map(|text| CodeIds::parse_os(text)).collect::<Result<_, _>>()?;
        Ok(Some(lists.concat()))
    }

    fn show(value: &Option<Vec<CodeId>>) -> Option<String> {
        value.as_ref().map(CodeIds::shown)
    }
}

/// The libraries of which a target takes bitcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitcodeUse {
    /// Libraries that have no image for its CPU.
    Fallback,
    /// All libraries that have bitcode.
    Preferred,
}

impl BitcodeUse {
    const fn name(self) -> &'static str {
        match self {
            BitcodeUse::Fallback => "fallback",
            BitcodeUse::Preferred => "prefer",
        }
    }
}

fn parse_bitcode(text: &str) -> Result<BitcodeUse, String> {
    let all = [BitcodeUse::Fallback, BitcodeUse::Preferred];
    all.into_iter()
        .find(|when| when.name() == text)
        .ok_or_else(|| format!("`{text}` is unknown: write fallback or prefer"))
}

/// Reads a duration, which may be 0.
fn parse_time(text: &str) -> Result<Duration, String> {
    match text {
        "0s" | "0ms" | "0us" | "0ns" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}

/// The action of a publisher when its topic is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// It waits until the slowest subscriber has advanced.
    #[default]
    Wait,
    /// It fails at once.
    Refuse,
    /// It drops the oldest entry. Subscribers that have not received the entry learn how many they lost.
    DropOldest,
}

impl Overflow {
    const fn name(self) -> &'static str {
        match self {
            Overflow::Wait => "wait",
            Overflow::Refuse => "refuse",
            Overflow::DropOldest => "drop-oldest",
        }
    }
}

fn parse_overflow(text: &str) -> Result<Overflow, String> {
    let all = [Overflow::Wait, Overflow::Refuse, Overflow::DropOldest];
    all.into_iter()
        .find(|action| action.name() == text)
        .ok_or_else(|| format!("`{text}` is unknown: write wait, refuse or drop-oldest"))
}

fn parse_count<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is no whole number, or too large"))
}

fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" | "on" | "1" => Ok(true),
        "no" | "false" | "off" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither yes nor no")),
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    text.parse::<PeerAddress>().map_err(|malformed| malformed.to_string())?;
    Ok(text.to_owned())
}

fn parse_transport(text: &str) -> Result<String, String> {
    farjump_transports::check_name(text).map_err(|unknown| unknown.to_string())?;
    Ok(text.to_owned())
}

fn parse_destination(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() => Ok((name.to_owned(), parse_address(address)?)),
        _ => Err(format!("`{text}` is no destination: write NAME=ADDRESS, such as next=unix:other.sock")),
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let machine = Machine::native().unwrap_or(Machine(0));
    Level::parse(machine, text).ok_or_else(|| {
        let levels: Vec<_> = Level::all(machine).map(|level| level.to_string()).collect();
        format!("`{text}` is no level: those of {machine} are {}", levels.join(", "))
    })
}

/// The policies that have a name.
const SPINNING: [(&str, WaitPolicy); 3] = [
    ("never", WaitPolicy::sleep_only()),
    ("always", WaitPolicy::spin_only()),
    ("events", WaitPolicy::events_only()),
];

/// Reads a policy: a name, a number of turns that spin, or the four numbers of turns (`spins/pauses/events/yields`).
fn parse_wait_policy(text: &str) -> Result<WaitPolicy, String> {
    if let Some((_, policy)) = SPINNING.iter().find(|(name, _)| *name == text) {
        return Ok(*policy);
    }
    let numbers: Option<Vec<u32>> = text.split('/').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        // Before sleeping, a few turns with `pause` and a few yields, as by default.
        Some([spins]) => Ok(WaitPolicy { spins: *spins, pauses: spins / 4, events: 0, yields: 16 }),
        Some([spins, pauses, events, yields]) => {
            Ok(WaitPolicy { spins: *spins, pauses: *pauses, events: *events, yields: *yields })
        }
        _ => Err(format!(
            "`{text}` is no spinning: write a number of polls, `never`, `always`, `events`, or the turns of each \
             phase, SPINS/PAUSES/EVENTS/YIELDS"
        )),
    }
}

fn shown_wait_policy(policy: &WaitPolicy) -> String {
    match SPINNING.iter().find(|(_, named)| named == policy) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("{}/{}/{}/{}", policy.spins, policy.pauses, policy.events, policy.yields),
    }
}

/// Returns the text of an option that is no path.
fn in_utf8(text: &OsStr) -> Result<&str, String> {
    text.to_str().ok_or_else(|| format!("`{}` is no text in UTF-8", text.to_string_lossy()))
}

/// Refuses an empty text, which names nothing.
fn stated(text: &str) -> Result<&str, String> {
    if text.is_empty() { Err(EMPTY.to_owned()) } else { Ok(text) }
}

/// Reads a code id of 32 hexadecimal digits, or those in a file, `@PATH`.
fn parse_code_ids(text: &str) -> Result<Vec<CodeId>, String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(vec![parse_code_id(text)?]) };
    let list = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    listed(&list).map_err(|(line, error)| format!("`{path}`, line {line}: {error}"))
}

/// Reads the code ids in `list`: the first word of each line, except lines that are empty or start with `#`.
fn listed(list: &str) -> Result<Vec<CodeId>, (usize, String)> {
    list.lines()
        .zip(1..)
        .filter_map(|(text, line)| Some((text.split_whitespace().next()?, line)))
        .filter(|(word, _)| !word.starts_with('#'))
        .map(|(word, line)| parse_code_id(word).map_err(|error| (line, error)))
        .collect()
}

/// Reads a code id or the id of a family.
///
/// # Errors
/// A sentence for the user.
pub fn parse_code_id(text: &str) -> Result<CodeId, String> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_id.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    let number = number.ok_or_else(|| {
        format!(
            "`{text}` is no code id: write the 32 hexadecimal digits that `farjump inspect` shows, or @FILE"
        )
    })?;
    Ok(CodeId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "edc1169992d9aed8ae348fa14a32de94";

    #[test]
    fn a_code_id_reads_back_as_it_is_shown() {
        let ids = parse_code_ids(ID).unwrap();
        assert_eq!(CodeIds::shown(&ids), ID);
        assert_eq!(parse_code_ids(&ID.to_uppercase()), Ok(ids));
    }

    #[test]
    fn a_malformed_code_id_or_missing_list_file_is_refused() {
        for wrong in [
            "",
            "edc1",
            &ID[1..],
            &format!("{ID}0"),
            &ID.replace('e', "g"),
            &ID.replace("ed", "+d"),
            "libgrep.so",
        ] {
            assert!(parse_code_ids(wrong).unwrap_err().contains("32 hexadecimal digits"), "{wrong}");
        }
        assert!(parse_code_ids("@no/such/file").unwrap_err().contains("`no/such/file`"));
    }

    #[test]
    fn a_code_id_list_takes_comments_and_reports_wrong_lines() {
        let zero = "0".repeat(32);
        let text = format!("# ours\n\n{ID}  libgrep.so\n   {zero}\n  # no more\n");
        let ids = listed(&text).unwrap();
        assert_eq!(CodeIds::shown(&ids), format!("{ID},{zero}"));
        assert_eq!(listed(""), Ok(Vec::new()));
        let (line, error) = listed(&format!("{ID}\n\nlibgrep.so {ID}\n")).unwrap_err();
        assert!(line == 3 && error.contains("`libgrep.so`"), "{line}: {error}");
    }

    #[test]
    fn a_destination_is_a_name_and_an_address() {
        assert_eq!(parse_destination("next=unix:a=b"), Ok(("next".into(), "unix:a=b".into())));
        for wrong in ["", "next", "=unix:a", "next="] {
            assert!(parse_destination(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spinning_is_read_back_in_each_of_its_forms() {
        for text in ["never", "always", "events", "100/25/0/16"] {
            assert_eq!(shown_wait_policy(&parse_wait_policy(text).unwrap()), text);
        }
        assert_eq!(parse_wait_policy("100"), parse_wait_policy("100/25/0/16"));
        for wrong in ["sometimes", "1/2", "-1", ""] {
            assert!(parse_wait_policy(wrong).is_err(), "{wrong}");
        }
    }
}
