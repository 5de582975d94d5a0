//! The arguments of `loadmodule`: options of the target, which are rows of farjump's table, and the module's own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use farjump::Keys;
use farjump::config::{
    Config, ConfigError, ConfigFault, Given, Interfaces, OptionInfo, Origin, Shape, TargetConfig, nearest,
    parse_duration, shown_duration,
};

/// The clients that may load code by `FJ.LOAD`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayLoad {
    /// No client.
    No,
    /// Clients on this machine.
    Local,
    /// All clients whose user the server's rules permit.
    Yes,
}

impl MayLoad {
    const ALL: [MayLoad; 3] = [MayLoad::No, MayLoad::Local, MayLoad::Yes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            MayLoad::No => "no",
            MayLoad::Local => "local",
            MayLoad::Yes => "yes",
        }
    }
}

/// The module's settings.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Address of the target: `unix:PATH` or `tcp:HOST:PORT`.
    pub(crate) address: String,
    /// The options of the target.
    pub(crate) target: TargetConfig,
    /// Time for which the target still polls after work.
    pub(crate) linger: Duration,
    /// Whether the server's loop never sleeps.
    pub(crate) spin: bool,
    /// The server's user as which links act.
    pub(crate) user: String,
    /// Names of keys of links, and the users as which links with these keys act.
    pub(crate) key_users: Vec<(String, String)>,
    pub(crate) load: MayLoad,
    /// File with the key that authenticates code in keys.
    pub(crate) code_key: Option<PathBuf>,
    /// Time of a turn after which the log reports it.
    pub(crate) limit: Duration,
}

/// Time of functions after which the log reports them.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(1);
/// Longest time to linger: commands of clients wait meanwhile.
const LONGEST_LINGER: Duration = Duration::from_millis(1);

/// An argument of the module's own.
struct Own {
    name: &'static str,
    /// Stand for its values, which are a word each.
    placeholders: &'static [&'static str],
    /// Whether it may be given several times.
    repeats: bool,
    /// Sets it from as many values as there are placeholders.
    set: fn(&mut Options, Vec<String>) -> Result<(), ConfigFault>,
}

impl Own {
    const PLAIN: Own = Own { name: "", placeholders: &[], repeats: false, set: |_, _| Ok(()) };
}

/// The arguments of the module's own.
static OWN: [Own; 7] = [
    Own {
        name: "linger",
        placeholders: &["T"],
        set: |options, values| {
            options.linger = parse_linger(&values[0])?;
            Ok(())
        },
        ..Own::PLAIN
    },
    Own {
        name: "spin",
        set: |options, _| {
            options.spin = true;
            Ok(())
        },
        ..Own::PLAIN
    },
    Own {
        name: "user",
        placeholders: &["USER"],
        set: |options, values| {
            options.user = values.concat();
            Ok(())
        },
        ..Own::PLAIN
    },
    Own { name: "key-user", placeholders: &["KEY", "USER"], repeats: true, set: add_key_user },
    Own {
        name: "load",
        placeholders: &["no|local|yes"],
        set: |options, values| {
            let named = MayLoad::ALL.into_iter().find(|may_load| may_load.name() == values[0]);
            options.load = named.ok_or_else(|| {
                ConfigFault::Malformed(format!("`{}` is unknown: write no, local or yes", values[0]))
            })?;
            Ok(())
        },
        ..Own::PLAIN
    },
    Own {
        name: "code-key",
        placeholders: &["FILE"],
        set: |options, values| {
            options.code_key = Some(values.concat().into());
            Ok(())
        },
        ..Own::PLAIN
    },
    Own {
        name: "limit",
        placeholders: &["T"],
        set: |options, values| {
            options.limit = parse_limit(&values[0])?;
            Ok(())
        },
        ..Own::PLAIN
    },
];

fn add_key_user(options: &mut Options, values: Vec<String>) -> Result<(), ConfigFault> {
    let [key, user] = <[String; 2]>::try_from(values).expect("it has two placeholders");
    if options.key_users.iter().any(|(named, _)| *named == key) {
        return Err(ConfigFault::Malformed(format!("the key {key} is given twice: a link acts as one user")));
    }
    options.key_users.push((key, user));
    Ok(())
}

impl Options {
    /// Parses arguments on a machine with this number of processors. Returns the settings, and warnings.
    ///
    /// # Errors
    /// The fault in an argument, and a remedy.
    pub(crate) fn parse(args: &[Vec<u8>], processors: usize) -> Result<(Options, Vec<String>), String> {
        let mut words = args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned());
        let address = words.next().ok_or(
            "no address is given: write `loadmodule farjump-kv.so unix:/run/redis/farjump.sock`, or tcp:HOST:PORT",
        )?;
        if !(address.starts_with("unix:") || address.starts_with("tcp:")) {
            return Err(format!(
                "the first argument is {address:?}: give the address there, as unix:PATH or tcp:HOST:PORT"
            ));
        }
        let mut options = Options::at(address);
        let mut given = BTreeMap::new();
        while let Some(word) = words.next() {
            options
                .take(&word, &mut words, &mut given)
                .map_err(|fault| argument_error(&word, fault).to_string())?;
        }
        options.check().map_err(|error| error.to_string())?;
        let mut warnings = Vec::new();
        if processors < 2 && (options.spin || !options.linger.is_zero()) {
            (options.spin, options.linger) = (false, Duration::ZERO);
            warnings.push(
                "linger and spin are off: with one processor they would keep sources from running".to_owned(),
            );
        }
        Ok((options, warnings))
    }

    /// The defaults, at this address.
    fn at(address: String) -> Options {
        Options {
            address,
            target: TargetConfig { arena_size: 1 << 20, mailbox_size: 256 << 10, ..TargetConfig::default() },
            linger: Duration::ZERO,
            spin: false,
            user: "default".to_owned(),
            key_users: Vec::new(),
            load: MayLoad::No,
            code_key: None,
            limit: DEFAULT_LIMIT,
        }
    }

    /// Sets the argument named `word`, whose values are the next of `rest`. `given` has the text of each argument so
    /// far.
    fn take(
        &mut self,
        word: &str,
        rest: &mut impl Iterator<Item = String>,
        given: &mut BTreeMap<&'static str, String>,
    ) -> Result<(), ConfigFault> {
        if let Some(own) = OWN.iter().find(|own| own.name == word.replace('_', "-")) {
            let values = own.placeholders.iter().map(|placeholder| value(rest, placeholder));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            if given.insert(own.name, String::new()).is_some() && !own.repeats {
                return Err(ConfigFault::Twice);
            }
            return (own.set)(self, values);
        }
        let row = TargetConfig::row(word, Interfaces::MODULE).map_err(|fault| match fault {
            ConfigFault::Unknown { .. } => unknown(word),
            fault => fault,
        })?;
        let info = &row.info;
        let value = value(rest, info.placeholder)?;
        let text = match given.remove(info.name) {
            None => value,
            Some(earlier) if matches!(info.shape, Shape::List | Shape::Pairs) => format!("{earlier},{value}"),
            Some(_) => return Err(ConfigFault::Twice),
        };
        let origin = Origin::Argument(word.to_owned());
        let set = self.target.set_from(info.name, &Given::Text(&text), origin, Interfaces::MODULE);
        set.map_err(|error| error.fault)?;
        given.insert(info.name, text);
        Ok(())
    }

    /// Checks that the arguments fit each other and the address.
    fn check(&self) -> Result<(), ConfigError> {
        self.target.check(|name| Origin::Argument(name.to_owned()))?;
        let has_keys = self.target.key_file.is_some();
        if has_keys && !self.address.starts_with("tcp:") {
            let why = "unix: addresses take no keys: leave it out, or listen at tcp:HOST:PORT";
            return Err(argument_error("key-file", ConfigFault::Malformed(why.to_owned())));
        }
        if !self.key_users.is_empty() && !has_keys {
            return Err(argument_error("key-user", ConfigFault::Needs { needed: "key-file" }));
        }
        Ok(())
    }

    /// Warnings of keys that `key-user` names and the key file does not have. A file that cannot be read keeps the
    /// target from listening, which is reported elsewhere.
    pub(crate) fn unknown_keys(&self) -> Vec<String> {
        let file = self.target.key_file.as_ref();
        let Some((file, keys)) = file.and_then(|file| Some((file, Keys::read(file).ok()?))) else {
            return Vec::new();
        };
        let has = |name: &str| keys.iter().any(|key| key.name.as_deref() == Some(name));
        let unknown = self.key_users.iter().filter(|(name, _)| !has(name));
        let warn = |(name, user): &(String, String)| {
            format!(
                "key-user {name} {user}: {} had no key of that name when the module was loaded: add one by `farjump key`, \
                 or correct the name",
                file.display()
            )
        };
        unknown.map(warn).collect()
    }
}

/// The options of the target that are arguments of the module.
pub(crate) fn target_options() -> impl Iterator<Item = &'static OptionInfo> {
    let infos = TargetConfig::rows().iter().map(|row| &row.info);
    infos.filter(|info| info.shown.contains(Interfaces::MODULE))
}

/// Reads the time to linger.
///
/// # Errors
/// It is malformed or too long.
pub(crate) fn parse_linger(text: &str) -> Result<Duration, ConfigFault> {
    let time = parse_time(text, "us")?;
    if time > LONGEST_LINGER {
        let [value, least, most] = [time, Duration::ZERO, LONGEST_LINGER].map(shown_time);
        return Err(ConfigFault::Range { value: value.into(), least: least.into(), most: Some(most.into()) });
    }
    Ok(time)
}

/// Reads the time after which functions are reported.
///
/// # Errors
/// It is malformed.
pub(crate) fn parse_limit(text: &str) -> Result<Duration, ConfigFault> {
    parse_time(text, "ms")
}

/// Formats a time of the module's own settings so that it is read back.
pub(crate) fn shown_time(time: Duration) -> String {
    if time.is_zero() { "0".to_owned() } else { shown_duration(time) }
}

/// Reads a time, which may be 0. `unit` is that of numbers in earlier versions, which had none.
fn parse_time(text: &str, unit: &str) -> Result<Duration, ConfigFault> {
    if matches!(text, "0" | "0us" | "0ms" | "0s") {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let text = format!("`{text}` has no unit, which was {unit} before: write {text}{unit}");
        return Err(ConfigFault::Malformed(text));
    }
    parse_duration(text).map_err(ConfigFault::Malformed)
}

/// The next word, as the value for which `placeholder` stands.
fn value(rest: &mut impl Iterator<Item = String>, placeholder: &str) -> Result<String, ConfigFault> {
    let missing = || ConfigFault::Malformed(format!("a value is missing: write {placeholder} behind it"));
    rest.next().ok_or_else(missing)
}

/// The fault of a name that no argument has.
fn unknown(name: &str) -> ConfigFault {
    let names = OWN.iter().map(|own| own.name).chain(target_options().map(|info| info.name));
    ConfigFault::Unknown { subject: "the module", nearest: nearest(name, names) }
}

fn argument_error(name: &str, fault: ConfigFault) -> ConfigError {
    ConfigError::new(Origin::Argument(name.to_owned()), name, fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "edc1169992d9aed8ae348fa14a32de94";

    fn parse(args: &str) -> Result<Options, String> {
        let words: Vec<_> = args.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Options::parse(&words, 2).map(|(options, _)| options)
    }

    #[test]
    fn options_of_the_target_have_the_modules_defaults() {
        let options = parse("unix:s").unwrap();
        let own = TargetConfig { arena_size: 1 << 20, mailbox_size: 256 << 10, ..TargetConfig::default() };
        assert_eq!(options.target, own);
    }

    #[test]
    fn options_of_the_target_are_set_by_their_names() {
        let given = "tcp:127.0.0.1:0 key-file keys arena-size 2M mailbox_size 64K max-sources 7 clear yes";
        let options = parse(given).unwrap();
        let expected = TargetConfig {
            key_file: Some("keys".into()),
            arena_size: 2 << 20,
            mailbox_size: 64 << 10,
            max_sources: 7,
            clear: true,
            ..TargetConfig::default()
        };
        assert_eq!(options.target, expected);
    }

    #[test]
    fn arguments_of_the_modules_own_are_set_by_their_names() {
        let given = "tcp:127.0.0.1:0 key-file k linger 50us spin user u key-user a x key-user b y load local \
                     code-key seal limit 1.5s";
        let options = parse(given).unwrap();
        assert_eq!((options.linger, options.limit), (Duration::from_micros(50), Duration::from_millis(1500)));
        assert_eq!((options.spin, options.load, &*options.user), (true, MayLoad::Local, "u"));
        assert_eq!(options.code_key, Some("seal".into()));
        let key_users = [("a", "x"), ("b", "y")].map(|(key, user)| (key.to_owned(), user.to_owned()));
        assert_eq!(options.key_users, key_users);
    }

    #[test]
    fn lists_may_be_repeated_and_other_arguments_not() {
        let zero = "0".repeat(32);
        let options = parse(&format!("unix:s allow-code {ID},{ID} allow-code {zero}")).unwrap();
        let shown = options.target.get("allow-code").unwrap();
        assert_eq!(shown, Some(format!("{ID},{ID},{zero}")));
        for twice in ["arena-size 1M arena_size 1M", "limit 1s limit 1s", "spin spin"] {
            let error = parse(&format!("unix:s {twice}")).unwrap_err();
            assert!(error.ends_with(" is given twice: give it once"), "{error}");
        }
        let error = parse("tcp:127.0.0.1:0 key-file k key-user a x key-user a y").unwrap_err();
        assert_eq!(error, "key-user: the key a is given twice: a link acts as one user");
    }

    #[test]
    fn old_names_are_errors_that_name_the_present_ones() {
        for (old, now) in [
            ("key", "key-file"),
            ("code-room", "arena-size"),
            ("mailbox", "mailbox-size"),
            ("max-links", "max-sources"),
            ("allow", "allow-code"),
        ] {
            let error = parse(&format!("unix:s {old} 1")).unwrap_err();
            assert_eq!(error, format!("{old} is called `{now}` now"));
        }
    }

    #[test]
    fn an_unknown_argument_names_the_nearest_one_of_all() {
        for (unknown, nearest) in [("lingr", "linger"), ("arena_siz", "arena-size"), ("key_usr", "key-user")]
        {
            let error = parse(&format!("unix:s {unknown} 1")).unwrap_err();
            assert_eq!(error, format!("{unknown} is no option of the module: did you mean `{nearest}`?"));
        }
        assert_eq!(parse("unix:s prefault yes").unwrap_err(), "prefault is no option of the module");
    }

    #[test]
    fn times_need_their_unit() {
        let error = |args: &str| parse(&format!("unix:s {args}")).unwrap_err();
        assert_eq!(error("linger 50"), "linger: `50` has no unit, which was us before: write 50us");
        assert_eq!(error("limit 50"), "limit: `50` has no unit, which was ms before: write 50ms");
        assert_eq!(error("linger 2ms"), "linger: 2ms is out of range: give 0 to 1ms");
        assert!(error("limit soon").contains("`soon` is no duration"));
        for text in ["0", "50us", "1ms"] {
            assert_eq!(shown_time(parse_linger(text).unwrap()), text);
        }
        assert_eq!(shown_time(parse_limit("forever").unwrap()), "forever");
    }

    #[test]
    fn arguments_without_a_value_or_a_needed_one_are_refused() {
        for (args, fault) in [
            ("unix:s linger", "linger: a value is missing: write T behind it"),
            ("unix:s key-user a", "key-user: a value is missing: write USER behind it"),
            ("unix:s arena-size", "arena-size: a value is missing: write BYTES behind it"),
            (
                "tcp:127.0.0.1:0 key-user a b",
                "key-user has no effect without `key-file`: give that too, or leave this out",
            ),
        ] {
            assert_eq!(parse(args).unwrap_err(), fault);
        }
    }

    #[test]
    fn with_one_processor_lingering_and_spinning_are_off() {
        for args in [&["unix:s", "spin"][..], &["unix:s", "linger", "50us"]] {
            let args: Vec<_> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
            let (options, warnings) = Options::parse(&args, 1).unwrap();
            assert!(!options.spin && options.linger.is_zero() && warnings.len() == 1, "{warnings:?}");
        }
    }
}
