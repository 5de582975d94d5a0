use std::fmt::Write;
use std::path::Path;

use super::*;

/// The page of all options.
const PAGE: &str = "../docs/reference/options.md";
/// Writes the page if it is set.
const WRITE: &str = "FARJUMP_WRITE_OPTIONS";

const INTERFACES: [(Interfaces, &str); 5] = [
    (Interfaces::RUST, "Rust"),
    (Interfaces::C, "C"),
    (Interfaces::PYTHON, "Python"),
    (Interfaces::COMMAND_LINE, "command line"),
    (Interfaces::MODULE, "module"),
];

/// The sections of options of one configuration.
fn section<C: Config>(page: &mut String, name: &str, sets: &str) {
    write!(page, "\n## {name}\n\n{sets}\n").unwrap();
    for Row { info, .. } in C::rows() {
        write!(page, "\n### `{}`\n\n", info.name).unwrap();
        let text = info.lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line));
        let text = text.collect::<Vec<_>>().join("\n");
        // Links of rustdoc mean nothing here: [`Name`](crate::Name).
        let mut parts = text.split("](crate::");
        let mut plain = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let at = plain.rfind("[`").unwrap();
            plain.remove(at);
            plain.push_str(part.split_once(')').unwrap().1);
        }
        let shown = INTERFACES.iter().filter(|(one, _)| info.shown.contains(*one)).map(|(_, name)| *name);
        let shown = shown.collect::<Vec<_>>().join(", ");
        write!(page, "{plain}\n\nValue: `{}`, default: {}. ", info.placeholder, info.default).unwrap();
        if let Some((least, most)) = info.range.filter(|range| *range != (1, u64::MAX)) {
            let show = C::rows().iter().find(|row| row.info.name == info.name).unwrap().show_amount;
            write!(page, "From {} to {}. ", show(least), show(most)).unwrap();
        }
        if info.memory {
            page.push_str("At most the memory that the process may use. ");
        }
        if !info.needs.is_empty() {
            let needs = info.needs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ");
            write!(page, "Needs {needs}. ").unwrap();
        }
        writeln!(page, "In: {}.", if shown.is_empty() { "Rust".to_owned() } else { shown }).unwrap();
    }
}

/// The page.
fn page() -> String {
    let mut page = "# Options\n\n\
        This page is made from the table in [`farjump/src/config`](../../farjump/src/config/mod.rs). An option has one name \
        in all interfaces; Rust and Python write it with underscores. Numbers of bytes have no unit or K, M or G (1024, \
        1024 K, 1024 M); times have ns, us, ms, s or m, or are `forever`; flags are `yes` or `no`; the items of a list have \
        commas between them, and a comma within one is written `\\,`. \
        Values that C sets, and lines of a file, are UTF-8; other interfaces take paths of any bytes.\n\n\
        | interface | how |\n|---|---|\n\
        | Rust | a field of the configuration, a method of the builder, or `config.set(\"max-payload\", \"64M\")` |\n\
        | C | `farjump_target_config_set(config, \"max-payload\", \"64M\")` and its kin |\n\
        | Python | a keyword argument, `max_payload=64 << 20` or `max_payload=\"64M\"`; a number for a time is in seconds |\n\
        | command line | `--max-payload 64M`; before the environment, and that before the file |\n\
        | environment | `FARJUMP_MAX_PAYLOAD`, for the program `farjump` alone: options of the command line |\n\
        | file | `max-payload = \"64M\"` in the TOML file of `farjump serve --config`: options of a target |\n\
        | module | `max-payload 64M` behind the address in `loadmodule` |\n"
        .to_owned();
    section::<TargetConfig>(
        &mut page,
        "Target",
        "`TargetConfig`, `farjump_target_config_t`, `farjump.Target`, `farjump serve`.",
    );
    section::<LinkConfig>(
        &mut page,
        "Link",
        "`LinkConfig`, `farjump_link_config_t`, `farjump.Link`, `farjump inject`.",
    );
    section::<ClientConfig>(&mut page, "Client of a store", "`ClientConfig`, `farjump_client_config_t`.");
    section::<StoreConfig>(&mut page, "Store", "`StoreConfig`, `farjump_store_config_t`.");
    section::<PublisherConfig>(&mut page, "Publisher", "`PublisherConfig`, `farjump_publisher_config_t`.");
    section::<SubscriberConfig>(
        &mut page,
        "Subscriber",
        "`SubscriberConfig`, `farjump_subscriber_config_t`.",
    );
    page
}

#[test]
fn the_page_of_options_is_that_of_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, page()).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let outdated = "docs/reference/options.md is not the table's";
    assert!(written == page(), "{outdated}: run `{WRITE}=1 cargo test -p farjump --lib config`");
}

/// Calls `check` for the rows of each configuration.
fn all_rows(check: impl Fn(&OptionInfo, Option<String>)) {
    fn of<C: Config>(check: &impl Fn(&OptionInfo, Option<String>)) {
        C::rows().iter().for_each(|row| check(&row.info, (row.get)(&C::default())));
    }
    of::<TargetConfig>(&check);
    of::<LinkConfig>(&check);
    of::<ClientConfig>(&check);
    of::<StoreConfig>(&check);
    of::<PublisherConfig>(&check);
    of::<SubscriberConfig>(&check);
}

#[test]
fn each_row_states_its_default_and_a_sentence() {
    all_rows(|info, default| {
        if let Some(default) = default {
            assert_eq!(info.default, default, "{}", info.name);
        }
        let sentence = info.sentence();
        assert!(sentence.ends_with('.') && sentence.len() > 10, "{}: {sentence}", info.name);
        assert!(!sentence.contains("](") && !sentence.contains("::"), "{}: {sentence}", info.name);
    });
}

/// A value of each shape that is no default, and reads back as it is.
fn sample(info: &OptionInfo) -> String {
    let id = "edc1169992d9aed8ae348fa14a32de94";
    match info.name {
        "listen" => "unix:a".into(),
        "rights" => "observe".into(),
        "modes" => "local,in-place".into(),
        "mode" | "forward-mode" => "always".into(),
        "allow-code" => format!("{id},{}", "0".repeat(32)),
        "cpu-level" => "baseline".into(),
        "bitcode" => "prefer".into(),
        "wait-policy" => "never".into(),
        "transport" => "shm".into(),
        "overflow" => "drop-oldest".into(),
        "destination" => "next=unix:a,last=tcp:host:1".into(),
        "address" => "unix:b,unix:@c".into(),
        "mapped" => "no".into(),
        _ => match info.shape {
            Shape::Bytes => "3M".into(),
            Shape::Count => "7".into(),
            Shape::Duration => "3s".into(),
            Shape::Flag => "yes".into(),
            Shape::Text | Shape::Path => "any".into(),
            Shape::List => "one,with\\,comma,and\\\\".into(),
            Shape::Pairs => "a=unix:a".into(),
        },
    }
}

fn reads_back<C: Config>() {
    for row in C::rows() {
        assert!(
            row.info.needs.iter().all(|name| C::row(name, Interfaces::all()).is_ok()),
            "{}",
            row.info.name
        );
        let (name, value) = (row.info.name, sample(&row.info));
        let mut config = C::default();
        config.set(name, &value).unwrap();
        assert_eq!(config.get(name), Ok(Some(value)), "{name}");
        // Underscores are as good.
        assert_eq!(config.get(&row.info.field()), config.get(name));
        assert!(row.is_set(&config), "{name}");
    }
}

#[test]
fn every_option_reads_back_as_it_was_set() {
    reads_back::<TargetConfig>();
    reads_back::<LinkConfig>();
    reads_back::<ClientConfig>();
    reads_back::<StoreConfig>();
    reads_back::<PublisherConfig>();
    reads_back::<SubscriberConfig>();
}

#[test]
fn no_text_makes_an_option_panic_or_half_set() {
    let texts = [
        "",
        " ",
        "\0",
        ",",
        "\\,",
        "-1",
        "99999999999999999999",
        "64X",
        "1e999s",
        "=",
        "@",
        "@/",
        "é",
        "yes,no",
    ];
    for row in TargetConfig::rows() {
        for text in texts {
            let mut config = TargetConfig::default();
            if let Err(error) = config.set(row.info.name, text) {
                assert_eq!(config, TargetConfig::default());
                assert!(error.to_string().starts_with(&format!("`{}`", row.info.name)), "{error}");
            }
        }
    }
}

#[test]
fn errors_name_the_place_the_option_the_fault_and_a_remedy() {
    let mut config = TargetConfig::default();
    let mut text = |name: &str, value: &str, origin: Origin| {
        let set = config.set_from(name, &Given::Text(value), origin, Interfaces::all());
        set.unwrap_err().to_string()
    };
    let file = || Origin::File { path: "target.toml".into(), line: 3 };
    assert_eq!(
        text("max-paylod", "64M", file()),
        "target.toml, line 3: `max-paylod` is no option of a target: did you mean `max-payload`?"
    );
    assert_eq!(text("nothing-like-it", "1", Origin::Program), "`nothing-like-it` is no option of a target");
    assert_eq!(
        text("mailbox", "4M", Origin::Argument("--mailbox".into())),
        "--mailbox is called `mailbox-size` now"
    );
    assert_eq!(
        text("max-payload", "64X", Origin::Variable("FARJUMP_MAX_PAYLOAD".into())),
        "the variable FARJUMP_MAX_PAYLOAD: `64X` is no number of bytes: write it out, or with K, M or G, for example 64K \
         or 4M"
    );
    assert_eq!(
        text("peer_timeout", "999ms", Origin::Keyword("peer_timeout".into())),
        "peer_timeout: 999ms is out of range: give 1s to 32767s"
    );
    assert_eq!(
        text("stall-timeout", "forever", Origin::Program),
        "`stall-timeout`: forever is out of range: give 1ns to 86400s"
    );
    assert!(text("modes", "", Origin::Program).contains("name one at least"));
    assert_eq!(text("max-payload", "0", Origin::Program), "`max-payload`: 0 is out of range: give 1 or more");
    let beyond = text("objects", "4000000G", Origin::Program);
    assert!(
        beyond.starts_with("`objects`: 4000000G is more than the ") && beyond.ends_with("give less"),
        "{beyond}"
    );
}

#[test]
fn options_without_effect_are_refused_with_what_they_need() {
    let check = |config: TargetConfig| config.check(|_| Origin::Program).map_err(|error| error.to_string());
    assert_eq!(check(TargetConfig::default()), Ok(()));
    let config = TargetConfig { llvm: Some("lib.so".into()), ..TargetConfig::default() };
    let why = "`llvm` has no effect without `bitcode`: give that too, or leave this out";
    assert_eq!(check(config.clone()), Err(why.to_owned()));
    assert_eq!(check(TargetConfig { bitcode: Some(BitcodeUse::Fallback), ..config }), Ok(()));
    let config = TargetConfig { peer_timeout: std::time::Duration::ZERO, ..TargetConfig::default() };
    assert!(check(config).unwrap_err().contains("out of range"), "fields are checked too");
}

#[cfg(feature = "serde")]
#[test]
fn a_configuration_travels_through_serde() {
    let mut config = TargetConfig::default();
    for row in TargetConfig::rows() {
        config.set(row.info.name, &sample(&row.info)).unwrap();
    }
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<TargetConfig>(&text).unwrap(), config);
    let error = serde_json::from_str::<TargetConfig>(r#"{"max_paylod":"1"}"#).unwrap_err().to_string();
    assert!(error.contains("did you mean `max-payload`?"), "{error}");
}
