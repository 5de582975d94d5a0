//! Checks that the keyword arguments in the stubs of the Python package are the options of the tables.
//!
//! After a change there, `FARJUMP_WRITE_OPTIONS=1 cargo test -p farjump --test python_stubs` writes them anew.

use std::fs;
use std::path::Path;

use farjump::config::{
    ClientConfig, Config, Interfaces, LinkConfig, PublisherConfig, Shape, SubscriberConfig, TargetConfig,
};

const END: &str = "        # The end of the options.\n";
/// Options that also take objects of Python. The stubs state them by hand.
const WITH_OBJECTS: [&str; 2] = ["local", "data"];
/// Limits that `None` removes. With any other option, `None` is the default.
const REMOVABLE: [&str; 3] = ["connect-timeout", "send-timeout", "timeout"];

/// The keyword arguments of a configuration, a line for each.
fn keywords<C: Config>() -> String {
    let options = C::rows()
        .iter()
        .map(|row| &row.info)
        .filter(|option| option.shown.contains(Interfaces::PYTHON) && !WITH_OBJECTS.contains(&option.name));
    let line = |option: &farjump::config::OptionInfo| {
        let kind = match option.shape {
            Shape::Bytes | Shape::Count => "int | str",
            Shape::Duration => "float | str",
            Shape::Flag => "bool | str",
            Shape::Path => "str | PathLike[str]",
            Shape::List => "Iterable[str | PathLike[str]] | str",
            Shape::Pairs => "Mapping[str, str] | str",
            _ => "str",
        };
        let default = match C::default().get(option.name) {
            Ok(Some(value)) if REMOVABLE.contains(&option.name) => format!("\"{value}\""),
            _ => "None".to_owned(),
        };
        format!("        {}: {kind} | None = {default},\n", option.field())
    };
    options.map(line).collect()
}

/// Returns the stubs with the keyword arguments of a configuration as the table has them.
fn with_keywords<C: Config>(stubs: &str) -> String {
    let begin = format!("        # Options of {}, which farjump/tests/python_stubs.rs writes.\n", C::SUBJECT);
    let (before, behind) = stubs.split_once(&begin).expect("the stubs have the part");
    let (_, after) = behind.split_once(END).expect("the part has an end");
    format!("{before}{begin}{}{END}{after}", keywords::<C>())
}

#[test]
fn the_stubs_of_python_list_the_options_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/python/farjump/_native.pyi");
    let kept = fs::read_to_string(&path).unwrap();
    let made = [
        with_keywords::<TargetConfig>,
        with_keywords::<LinkConfig>,
        with_keywords::<ClientConfig>,
        with_keywords::<PublisherConfig>,
        with_keywords::<SubscriberConfig>,
    ];
    let made = made.iter().fold(kept.clone(), |stubs, with_keywords| with_keywords(&stubs));
    if std::env::var_os("FARJUMP_WRITE_OPTIONS").is_some() {
        fs::write(&path, &made).unwrap();
        return;
    }
    let line = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "{} is not what the tables make, from line {} on: FARJUMP_WRITE_OPTIONS=1 cargo test -p farjump --test \
         python_stubs writes it",
        path.display(),
        line.unwrap_or(0) + 1
    );
}
