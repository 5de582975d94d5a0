//! The file of `serve --config`, and the output of `--show-config` in its form.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use farjump::Error;
use farjump::config::{Config, ConfigError, ConfigFault, Interfaces, Origin, Shape, TargetConfig};
use toml::de::{DeTable, DeValue};

use farjump_cli::program::config_arguments::{Resolved, Setting, SettingValue};
use farjump_cli::program::failure::Failure;

/// Reads the options in a file, in the order of its lines.
///
/// # Errors
/// The file cannot be read, or is no TOML; a value has a type that no option has.
pub(super) fn read(path: &Path) -> Result<Vec<Setting>, Failure> {
    // Checked before opening: opening a pipe would wait for a writer.
    let is_file = || match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    };
    let text = is_file().and_then(|()| fs::read_to_string(path));
    let text = text.map_err(|error| Failure::new(format!("cannot read `{}`: {error}", path.display())))?;
    settings(path, &text)
}

fn settings(path: &Path, text: &str) -> Result<Vec<Setting>, Failure> {
    let at = |start: usize| {
        let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        Origin::File { path: path.to_owned(), line }
    };
    let table = DeTable::parse(text).map_err(|error| {
        let origin = at(error.span().map_or(text.len(), |span| span.start));
        Failure::usage(format!("{origin}: {}", error.message()))
    })?;
    let mut lines: Vec<_> = table.get_ref().iter().collect();
    lines.sort_by_key(|(name, _)| name.span().start);
    let setting = |name: &str, value: &DeValue<'_>, origin: Origin| {
        let shape = TargetConfig::row(name, Interfaces::FILE).map(|row| row.info.shape);
        let value = match shape {
            Ok(shape) => setting_value(value, shape).map_err(ConfigFault::Malformed),
            // An unknown name is worse than its value.
            Err(fault) => Err(fault),
        };
        match value {
            Ok(value) => Ok(Setting { name: name.to_owned(), value, origin }),
            Err(fault) => Err(Error::from(ConfigError::new(origin, name, fault)).into()),
        }
    };
    lines
        .into_iter()
        .map(|(name, value)| setting(name.get_ref(), value.get_ref(), at(name.span().start)))
        .collect()
}

/// Reads the value of an option with this shape.
///
/// # Errors
/// A sentence for the user.
fn setting_value(value: &DeValue<'_>, shape: Shape) -> Result<SettingValue, String> {
    let string = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        other => Err(format!("a list or a table here has strings, and not {}", other.type_str())),
    };
    match value {
        DeValue::String(text) => Ok(SettingValue::Text(text.clone().into_owned())),
        DeValue::Integer(number) => {
            let decimal = u64::from_str_radix(number.as_str(), number.radix());
            Ok(SettingValue::Text(decimal.map_or_else(|_| number.to_string(), |number| number.to_string())))
        }
        DeValue::Boolean(yes) => Ok(SettingValue::Text(if *yes { "yes" } else { "no" }.to_owned())),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| string(item.get_ref()).map(OsString::from));
            items.collect::<Result<_, _>>().map(SettingValue::Items)
        }
        DeValue::Table(table) if shape == Shape::Pairs => table
            .iter()
            .map(|(name, value)| Ok(format!("{}={}", name.get_ref(), string(value.get_ref())?).into()))
            .collect::<Result<_, _>>()
            .map(SettingValue::Items),
        other => Err(format!(
            "{} is no value here: write a string, a whole number, true, false, or a list of strings",
            other.type_str()
        )),
    }
}

/// Shows each option with its value and its origin. [`read`] reads the text back.
pub(super) fn show(options: &Resolved<TargetConfig>) -> String {
    let mut text = String::new();
    for row in TargetConfig::rows().iter().filter(|row| row.info.shown.contains(Interfaces::FILE)) {
        let name = row.info.name;
        // Writing to a string cannot fail.
        let _ = match options.config.get(name) {
            Ok(Some(value)) => writeln!(text, "{name} = {}  # {}", quoted(&value), options.origin(name)),
            _ if row.is_set(&options.config) => writeln!(text, "{name} = []  # {}", options.origin(name)),
            _ => writeln!(text, "# {name}: {}", row.info.default),
        };
    }
    text
}

/// Returns a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted += &format!("\\u{:04X}", u32::from(letter)),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Setting>, String> {
        settings("serve.toml".as_ref(), text).map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_type_of_toml_that_an_option_may_have_is_read() {
        let text = "# a comment\nmax-payload = \"64M\"\nmax_sources = 1_0\nclear = true\n\
                    local = [\"a.so\", 'b,c.so']\ndestination = { next = \"unix:b\" }\nmax-image = 0x10\n";
        let read = of(text).expect("it is TOML");
        let value = |text: &str| SettingValue::Text(text.to_owned());
        let items = |items: &[&str]| SettingValue::Items(items.iter().map(OsString::from).collect());
        let expected = [
            ("max-payload", value("64M")),
            ("max_sources", value("10")),
            ("clear", value("yes")),
            ("local", items(&["a.so", "b,c.so"])),
            ("destination", items(&["next=unix:b"])),
            ("max-image", value("16")),
        ];
        for ((setting, (name, value)), line) in read.iter().zip(expected).zip(2..) {
            assert_eq!((&*setting.name, &setting.value), (name, &value));
            assert_eq!(setting.origin, Origin::File { path: "serve.toml".into(), line });
        }
        assert_eq!(read.len(), 6);
        let section = of("[destination]\nnext = \"unix:b\"\n").expect("it is TOML");
        assert_eq!(section[0].value, items(&["next=unix:b"]));
    }

    #[test]
    fn an_error_in_the_file_names_its_line() {
        for (text, words) in [
            ("clear = true\nmax-payload = \n", "serve.toml, line 2: "),
            ("clear = true\nclear = true\n", "serve.toml, line 2: "),
            (
                "\n\nmax-paylod = \"1M\"",
                "serve.toml, line 3: `max-paylod` is no option of a target: did you mean",
            ),
            ("key = \"k\"", "serve.toml, line 1: `key` is called `key-file` now"),
            ("[serve]\nclear = true", "serve.toml, line 1: `serve` is no option of a target"),
            ("max-sources = 1.5", "serve.toml, line 1: `max-sources`: float is no value here"),
            (
                "local = [1]",
                "serve.toml, line 1: `local`: a list or a table here has strings, and not integer",
            ),
            ("data = { a = \"b\" }", "serve.toml, line 1: `data`: table is no value here"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.starts_with(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn strings_are_quoted_so_that_toml_reads_them_back() {
        for text in ["64M", "a\\,b", "say \"no\"", "two\nlines", "ü"] {
            let file = format!("data = {}", quoted(text));
            assert_eq!(of(&file).expect("it is TOML")[0].value, SettingValue::Text(text.to_owned()));
        }
    }
}
