//! Options of the table as arguments of a command. Variables of the environment and a file set the options that the
//! command line does not.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use farjump::Error;
use farjump::config::{
    ClientConfig, Config, ConfigError, ConfigFault, Given, Interfaces, LinkConfig, OptionInfo, Origin, Row,
    Shape, TargetConfig,
};

use crate::program::failure::Failure;

/// A choice among the options of a configuration.
pub trait Selection: 'static {
    /// Returns whether the command has the option with this name.
    fn has(name: &str) -> bool;
}

/// The choice of all options.
#[derive(Clone, Copy, Debug)]
pub enum AllOptions {}

impl Selection for AllOptions {
    fn has(_: &str) -> bool {
        true
    }
}

/// The options `S` of the configuration `C` on the command line, as text.
pub struct ConfigArguments<C, S = AllOptions> {
    /// The options given, each with the texts of its occurrences.
    given: Vec<(&'static str, Vec<OsString>)>,
    of: PhantomData<fn() -> (C, S)>,
}

impl<C, S> fmt::Debug for ConfigArguments<C, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ConfigArguments").field(&self.given).finish()
    }
}

/// A value of an option from a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The name as it was written.
    pub name: String,
    /// The value.
    pub value: SettingValue,
    /// The place.
    pub origin: Origin,
}

/// The value of a [`Setting`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingValue {
    /// Text. For a list, its items with commas between them.
    Text(String),
    /// The items of a list.
    Items(Vec<OsString>),
}

impl SettingValue {
    fn given(&self) -> Given<'_> {
        match self {
            SettingValue::Text(text) => Given::Text(text),
            SettingValue::Items(items) => Given::Items(items),
        }
    }
}

/// A configuration, and the origin of each value in it.
#[derive(Clone, Debug)]
pub struct Resolved<C> {
    /// The configuration.
    pub config: C,
    origins: Vec<(&'static str, Origin)>,
}

/// The rows that a command shows.
fn rows<C: Config, S: Selection>() -> impl Iterator<Item = &'static Row<C>> {
    C::rows().iter().filter(|row| row.info.shown.contains(Interfaces::COMMAND_LINE) && S::has(row.info.name))
}

/// Returns whether an option may be given several times.
fn is_list(option: &OptionInfo) -> bool {
    matches!(option.shape, Shape::List | Shape::Pairs)
}

/// Makes the argument of an option. The table parses and checks its values, clap does neither.
fn argument<C: Config>(option: &OptionInfo) -> Arg {
    let argument = Arg::new(option.name)
        .long(option.name)
        .value_name(option.placeholder)
        .help(help::<C>(option))
        .value_parser(clap::value_parser!(OsString))
        .action(ArgAction::Append);
    let without_value = |text: &'static str| {
        argument.clone().num_args(0..=1).require_equals(true).default_missing_value(text)
    };
    match (option.name, option.shape) {
        (_, Shape::Flag) => without_value("yes"),
        ("bitcode", _) => without_value("fallback"),
        // `-inject` takes a right away.
        ("rights", _) => argument.allow_hyphen_values(true),
        _ => argument,
    }
}

/// Returns the help of an option: its sentence and its default, with `--NAME` for the names of other options.
fn help<C: Config>(option: &OptionInfo) -> String {
    let mut text = option.sentence();
    text.truncate(text.trim_end_matches('.').len());
    if is_list(option) {
        text += "; may be repeated";
    }
    // Help that says so of each flag and each list has no further information.
    if !matches!(option.default, "no" | "none") {
        text += &format!(" [default: {}]", option.default);
    }
    for row in C::rows().iter().filter(|row| row.info.shown.contains(Interfaces::COMMAND_LINE)) {
        text = text.replace(&format!("`{}`", row.info.name), &format!("--{}", row.info.name));
    }
    text
}

impl<C: Config, S: Selection> FromArgMatches for ConfigArguments<C, S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let texts = |row: &'static Row<C>| {
            let texts = matches.get_many::<OsString>(row.info.name)?;
            Some((row.info.name, texts.cloned().collect()))
        };
        Ok(ConfigArguments { given: rows::<C, S>().filter_map(texts).collect(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<C: Config, S: Selection> Args for ConfigArguments<C, S> {
    fn augment_args(command: Command) -> Command {
        command.args(rows::<C, S>().map(|row| argument::<C>(&row.info)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Config, S: Selection> ConfigArguments<C, S> {
    /// Returns the text of an option on the command line, in its last occurrence.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts(name)?.last()?.to_str()
    }

    fn texts(&self, name: &str) -> Option<&[OsString]> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, texts)| &**texts)
    }

    /// Returns the first option on the command line, as written.
    pub fn first(&self) -> Option<String> {
        self.given.first().map(|(name, _)| format!("--{name}"))
    }

    /// Returns the configuration of the command line and of the environment.
    ///
    /// # Errors
    /// As [`ConfigArguments::resolve_over`].
    pub fn resolve(&self) -> Result<Resolved<C>, Failure> {
        self.resolve_over(&[])
    }

    /// As [`ConfigArguments::resolve`], without the variables of these options.
    ///
    /// # Errors
    /// As [`ConfigArguments::resolve_over`].
    pub fn resolve_without_variables(&self, ignored: &[&'static str]) -> Result<Resolved<C>, Failure> {
        self.merge(&[], ignored, &|name| env::var_os(name)).map_err(failure)
    }

    /// Returns the configuration. The command line counts before the environment, the environment before the
    /// settings of a file, and those before the defaults.
    ///
    /// # Errors
    /// An option is unknown, given twice, malformed or out of range, or does not fit the others. The text names the
    /// place.
    pub fn resolve_over(&self, file: &[Setting]) -> Result<Resolved<C>, Failure> {
        self.merge(file, &[], &|name| env::var_os(name)).map_err(failure)
    }

    fn merge(
        &self,
        file: &[Setting],
        ignored: &[&'static str],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Resolved<C>, ConfigError> {
        let mut ignored = ignored.to_vec();
        loop {
            let resolved = self.layered(file, &ignored, variable)?;
            match resolved.config.check(|name| resolved.origin(name)) {
                // A variable is for all commands of a session, also for those without the option that it needs.
                Err(ConfigError {
                    origin: Origin::Variable(variable),
                    fault: ConfigFault::Needs { .. },
                    ..
                }) => ignored.extend(
                    rows::<C, S>()
                        .map(|row| row.info)
                        .filter(|info| info.variable() == variable)
                        .map(|info| info.name),
                ),
                checked => return checked.map(|()| resolved),
            }
        }
    }

    /// Sets each option, first from the file, then from the command line or its variable.
    fn layered(
        &self,
        file: &[Setting],
        ignored: &[&'static str],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Resolved<C>, ConfigError> {
        let mut resolved = Resolved { config: C::default(), origins: Vec::new() };
        for Setting { name, value, origin } in file {
            let row = C::row(name, Interfaces::FILE);
            if row.is_ok_and(|row| resolved.is_given(row.info.name)) {
                return Err(ConfigError::new(origin.clone(), name, ConfigFault::Twice));
            }
            resolved.set(name, &value.given(), origin.clone(), Interfaces::FILE)?;
        }
        for info in rows::<C, S>().map(|row| &row.info) {
            if let Some(texts) = self.texts(info.name) {
                let origin = Origin::Argument(format!("--{}", info.name));
                if texts.len() > 1 && !is_list(info) {
                    return Err(ConfigError::new(origin, info.name, ConfigFault::Twice));
                }
                if texts.iter().any(|text| text.is_empty()) {
                    let why = "the text is empty: leave the option out for its default";
                    return Err(ConfigError::new(origin, info.name, ConfigFault::Malformed(why.to_owned())));
                }
                match is_list(info) && info.words {
                    true => {
                        let words = texts.join(",".as_ref());
                        let words = in_utf8(words, &origin, info)?;
                        resolved.set(info.name, &Given::Text(&words), origin, Interfaces::COMMAND_LINE)?;
                    }
                    // A path or an address may have commas.
                    false => {
                        resolved.set(info.name, &Given::Items(texts), origin, Interfaces::COMMAND_LINE)?
                    }
                }
                continue;
            }
            check_former_variable(info, variable)?;
            let is_heeded = info.shown.contains(Interfaces::ENVIRONMENT) && !ignored.contains(&info.name);
            let value = is_heeded.then(|| set_variable(variable, &info.variable())).flatten();
            if let Some(value) = value {
                let origin = Origin::Variable(info.variable());
                let (one, text);
                let given = match is_list(info) {
                    true => {
                        text = in_utf8(value, &origin, info)?;
                        Given::Text(&text)
                    }
                    false => {
                        one = [value];
                        Given::Items(&one)
                    }
                };
                resolved.set(info.name, &given, origin, Interfaces::ENVIRONMENT)?;
            }
        }
        Ok(resolved)
    }
}

/// Returns the text of a value that is no path.
fn in_utf8(value: OsString, origin: &Origin, option: &OptionInfo) -> Result<String, ConfigError> {
    value.into_string().map_err(|value| {
        let why = format!("`{}` is no text in UTF-8", value.to_string_lossy());
        ConfigError::new(origin.clone(), option.name, ConfigFault::Malformed(why))
    })
}

/// Returns the value of a variable. An empty variable counts as not set.
fn set_variable(variable: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<OsString> {
    variable(name).filter(|value| !value.is_empty())
}

/// The only variable that had another name, and the option.
const FORMER_VARIABLE: (&str, &str) = ("FARJUMP_KEY", "key-file");

/// # Errors
/// The variable of the option has the name that it had before.
fn check_former_variable(
    option: &OptionInfo,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), ConfigError> {
    let (former, name) = FORMER_VARIABLE;
    if option.name != name || set_variable(variable, former).is_none() {
        return Ok(());
    }
    let fault = ConfigFault::Malformed(format!("it is called {} now", option.variable()));
    Err(ConfigError::new(Origin::Variable(former.to_owned()), option.name, fault))
}

/// Returns the options of all commands that have a variable. Options of several configurations occur several times.
fn options_with_variables() -> impl Iterator<Item = &'static OptionInfo> {
    fn of<C: Config>() -> impl Iterator<Item = &'static OptionInfo> {
        C::rows().iter().map(|row| &row.info)
    }
    let all = of::<TargetConfig>().chain(of::<LinkConfig>()).chain(of::<ClientConfig>());
    all.filter(|info| info.shown.contains(Interfaces::ENVIRONMENT))
}

/// Returns the variables of all options, each once.
pub fn variables() -> Vec<String> {
    let mut names = Vec::new();
    for name in options_with_variables().map(OptionInfo::variable) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the variables of former names of options.
pub fn former_variables() -> [&'static str; 1] {
    [FORMER_VARIABLE.0]
}

fn failure(error: ConfigError) -> Failure {
    Error::from(error).into()
}

/// Returns whether errors of the libraries may quote the value of an option, and no word in its place. Words such as
/// `cached` or `yes` also occur in texts about other things.
fn is_quoted(option: &OptionInfo) -> bool {
    match option.shape {
        Shape::Path | Shape::Pairs => true,
        Shape::List => !option.words,
        Shape::Text => matches!(option.placeholder, "ADDRESS" | "NAME" | "NAME[:PORT]"),
        _ => false,
    }
}

impl<C: Config> Resolved<C> {
    fn set(
        &mut self,
        name: &str,
        given: &Given<'_>,
        origin: Origin,
        interface: Interfaces,
    ) -> Result<(), ConfigError> {
        self.config.set_from(name, given, origin.clone(), interface)?;
        if let Ok(row) = C::row(name, interface) {
            self.origins.retain(|(known, _)| *known != row.info.name);
            self.origins.push((row.info.name, origin));
        }
        Ok(())
    }

    /// Returns the origin of an option's value.
    pub fn origin(&self, name: &str) -> Origin {
        let given = self.origins.iter().find(|(known, _)| *known == name);
        given.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Returns whether the option has a value that is not the default one.
    pub fn is_given(&self, name: &str) -> bool {
        self.origin(name) != Origin::Default
    }

    /// Returns the words for an option in messages: `--store-bytes`, or its place elsewhere.
    pub fn words_for(&self, name: &str) -> String {
        match self.origin(name) {
            Origin::Default | Origin::Program => format!("--{name}"),
            origin @ Origin::File { .. } => format!("{origin}: `{name}`"),
            origin => origin.to_string(),
        }
    }

    /// Returns the failure of a target or link that was made from this configuration. Its text names the place of the
    /// value that caused it, if that is no argument of the command line.
    pub fn failure(&self, mut error: Error) -> Failure {
        if let Error::Config(error) = &mut error {
            error.origin = self.origin(&error.name);
        }
        let failure = Failure::from(error);
        let cause = self.origins.iter().find(|(name, origin)| {
            matches!(origin, Origin::Variable(_) | Origin::File { .. }) && self.is_cause(name, &failure)
        });
        match cause {
            Some((name, Origin::Variable(variable))) => {
                let value = self.config.get(name).ok().flatten().unwrap_or_default();
                failure.blaming(variable, &format!("{variable}={value}"))
            }
            Some((_, origin)) => failure.blaming(&origin.to_string(), &origin.to_string()),
            None => failure,
        }
    }

    /// Returns whether a failure is about the value of this option.
    fn is_cause(&self, name: &str, failure: &Failure) -> bool {
        match (name, C::row(name, Interfaces::all()), self.config.get(name)) {
            // Names of transports occur in addresses too, and `ucx` stands for others.
            ("transport", ..) => failure.is_about_transport(),
            (_, Ok(row), Ok(Some(text))) if is_quoted(&row.info) => {
                text.split(',').any(|item| failure.quotes(item))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Linked = ConfigArguments<LinkConfig>;
    type Served = ConfigArguments<TargetConfig>;

    fn parsed<C: Config, S: Selection>(words: &[&str]) -> ConfigArguments<C, S> {
        let command = ConfigArguments::<C, S>::augment_args(Command::new("any").no_binary_name(true));
        let matches = command.try_get_matches_from(words).expect("clap takes the words");
        ConfigArguments::from_arg_matches(&matches).expect("it reads the words")
    }

    fn merged<C: Config>(
        words: &[&str],
        variables: &[(&str, &str)],
        file: &[(&str, &str)],
    ) -> Result<Resolved<C>, String> {
        let lines = file.iter().zip(1..);
        let settings: Vec<_> = lines
            .map(|((name, text), line)| Setting {
                name: (*name).to_owned(),
                value: SettingValue::Text((*text).to_owned()),
                origin: Origin::File { path: "t.toml".into(), line },
            })
            .collect();
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let merged = parsed::<C, AllOptions>(words).merge(&settings, &[], &variable);
        merged.map_err(|error| error.to_string())
    }

    /// A value other than the default.
    fn sample(option: &OptionInfo) -> &'static str {
        match (option.shape, option.placeholder) {
            (Shape::Bytes, _) => "64K",
            (Shape::Count, _) => "7",
            (Shape::Duration, _) => "3s",
            (Shape::Flag, _) if option.default == "yes" => "no",
            (Shape::Flag, _) => "yes",
            (Shape::Path, _) => "folder/file",
            (Shape::Text, "NAME") => "shm",
            (Shape::Text, "MODE") => "always",
            (Shape::Text, "TURNS") => "never",
            _ => "word",
        }
    }

    fn reads_back<C: Config>() {
        let rows: Vec<_> = rows::<C, AllOptions>().filter(|row| row.info.feature.is_none()).collect();
        let needs_lacking = |row: &&&Row<C>| {
            row.info.needs.iter().all(|needed| rows.iter().any(|other| other.info.name == *needed))
        };
        for row in rows.iter().filter(needs_lacking) {
            let (name, text) = (row.info.name, sample(&row.info));
            let by_argument = merged::<C>(&[&format!("--{name}={text}")], &[], &[]);
            let by_variable = merged::<C>(&[], &[(&row.info.variable(), text)], &[]);
            let by_file = merged::<C>(&[], &[], &[(name, text)]);
            for read in [by_argument, by_variable, by_file] {
                let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(read.config.get(name), Ok(Some(text.to_owned())), "{name}");
                assert!(read.is_given(name) && row.is_set(&read.config), "{name}");
            }
        }
    }

    #[test]
    fn options_are_set_by_argument_variable_and_file_and_read_back() {
        reads_back::<LinkConfig>();
        reads_back::<ClientConfig>();
    }

    #[test]
    fn the_command_line_counts_before_variables_files_and_defaults() {
        let variables = [("FARJUMP_MAX_PAYLOAD", "2M"), ("FARJUMP_MAX_SOURCES", "2")];
        let file = [("max-payload", "3M"), ("max_sources", "3"), ("max-image", "3K")];
        let merged = merged::<TargetConfig>(&["--max-payload", "1M"], &variables, &file).expect("it fits");
        let of = |name| (merged.config.get(name).expect("a row"), merged.origin(name).to_string());
        let given = |text: &str, origin: &str| (Some(text.to_owned()), origin.to_owned());
        assert_eq!(of("max-payload"), given("1M", "--max-payload"));
        assert_eq!(of("max-sources"), given("2", "the variable FARJUMP_MAX_SOURCES"));
        assert_eq!(of("max-image"), given("3K", "t.toml, line 3"));
        assert_eq!(of("arena-size"), given("16M", "the default"));
    }

    #[test]
    fn lists_may_be_repeated_and_other_options_may_not() {
        let merged = |words: &[&str]| merged::<TargetConfig>(words, &[], &[]);
        let modes = merged(&["--modes", "cached", "--modes", "always,local"]).expect("they are modes");
        assert_eq!(modes.config.get("modes"), Ok(Some("cached,always,local".to_owned())));
        let error = merged(&["--max-sources", "1", "--max-sources=2"]).unwrap_err();
        assert_eq!(error, "--max-sources is given twice: give it once");
        let error = self::merged::<TargetConfig>(&[], &[], &[("max-sources", "1"), ("max_sources", "1")]);
        assert_eq!(error.unwrap_err(), "t.toml, line 2: `max_sources` is given twice: give it once");
    }

    #[test]
    fn flags_stand_alone_or_have_a_value() {
        for (word, is_clear) in [("--clear", true), ("--clear=yes", true), ("--clear=no", false)] {
            let merged = merged::<LinkConfig>(&[word], &[("FARJUMP_CLEAR", "yes")], &[]).expect("a flag");
            assert_eq!(merged.config.clear, is_clear, "{word}");
        }
        let rights = merged::<TargetConfig>(&["--rights", "-inject"], &[], &[]).expect("rights");
        assert_eq!(rights.config.rights.to_string(), "observe,call");
        let error = merged::<LinkConfig>(&["--clear=perhaps"], &[], &[]).unwrap_err();
        assert_eq!(error, "--clear: `perhaps` is neither yes nor no");
    }

    #[test]
    fn a_variable_without_its_needed_option_has_no_effect() {
        let variables = [("FARJUMP_CC", "clang"), ("FARJUMP_KEY_FILE", "")];
        let merged_link = merged::<LinkConfig>(&[], &variables, &[]).expect("it is left out");
        assert_eq!((merged_link.config.cc, merged_link.config.key_file), (None, None));
        let error = merged::<LinkConfig>(&["--cc", "clang"], &[], &[]).unwrap_err();
        assert_eq!(error, "--cc has no effect without `compile-for-peer`: give that too, or leave this out");
    }

    #[test]
    fn a_variable_with_a_former_name_is_refused() {
        let error = merged::<LinkConfig>(&[], &[("FARJUMP_KEY", "k")], &[]).unwrap_err();
        assert_eq!(error, "the variable FARJUMP_KEY: it is called FARJUMP_KEY_FILE now");
        // The name that an option of targets had is that of an option of links.
        merged::<TargetConfig>(&[], &[("FARJUMP_MODE", "always")], &[]).expect("it is for links");
    }

    #[test]
    fn help_has_the_sentence_and_the_default() {
        let command = Served::augment_args(Command::new("serve").term_width(0));
        let help = command.clone().render_long_help().to_string();
        for part in [
            "--max-image <BYTES>\n          Largest image of a source [default: limited by the frame and the arena alone]",
            "--peer-key-file <FILE>\n          The file with the key for destinations at tcp: addresses [default: that of \
             --key-file, if its file holds only one]",
            "--clear[=<yes|no>]",
            "--bitcode[=<WHEN>]",
            "; may be repeated",
            "[default: the nearest active one, or the one that reaches the peer]",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
        command.debug_assert();
        Linked::augment_args(Command::new("inject")).debug_assert();
    }

    #[test]
    fn a_failure_names_the_place_of_the_value_that_it_quotes() {
        let of = |resolved: &Resolved<LinkConfig>| {
            let path = std::path::PathBuf::from("farm.key");
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            resolved.failure(Error::DataFile { path, source }).to_string()
        };
        let quoted = |words: &[&str], variables: &[(&str, &str)], file: &[(&str, &str)]| {
            of(&merged::<LinkConfig>(words, variables, file).expect("it fits"))
        };
        let by_variable = quoted(&[], &[("FARJUMP_KEY_FILE", "farm.key")], &[]);
        assert!(by_variable.starts_with("FARJUMP_KEY_FILE=farm.key: cannot map `farm.key`"), "{by_variable}");
        let by_file = quoted(&[], &[], &[("key-file", "farm.key")]);
        assert!(by_file.starts_with("t.toml, line 1: cannot map `farm.key`"), "{by_file}");
        for other in
            [quoted(&["--key-file", "farm.key"], &[], &[]), quoted(&[], &[("FARJUMP_KEY_FILE", "key")], &[])]
        {
            assert!(other.starts_with("cannot map `farm.key`"), "{other}");
        }
    }
}
