//! Options of the program in place of the Rust names in texts of the libraries.
//!
//! The libraries name methods of their Rust interface as remedies. A user of the program has options instead.

use farjump::config::{Config, Interfaces, LinkConfig, TargetConfig};

/// Each Rust name that a text of a library may have as a remedy and that is no option of the table, and the option that
/// does the same. `None`: no command has it.
pub const OPTIONS: &[(&str, Option<&str>)] = &[
    ("BackendOptions::with_ucx_tcp", Some("--ucx-tcp")),
    ("Client::wait", None),
    ("Link::drive", None),
    ("Options::bitcode", Some("`farjump build --bitcode`")),
    ("Options::carry_source", Some("`farjump build --carry-source`")),
    ("Options::cc", Some("`farjump build --cc`")),
    ("Options::name", Some("`farjump build --name`")),
    ("Options::target_ccs", Some("`farjump build --target-cc`")),
    ("PublisherConfig::overflow", None),
    ("StoreOptions::capacity", Some("`farjump serve --objects`")),
    ("StoreOptions::spill", Some("`farjump serve --objects-spill-folder`")),
    ("Target::export", None),
    ("verbs::choose_device", Some("--device")),
];

/// The option of the program that does the same as a Rust name.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Known {
    /// The option, as texts name it.
    Option(String),
    /// No command has one.
    Nowhere,
}

/// Returns the option for a Rust name; `None` if the name is no remedy that is known.
fn known(name: &str) -> Option<Known> {
    if let Some((_, option)) = OPTIONS.iter().find(|(known, _)| *known == name) {
        return Some(option.map_or(Known::Nowhere, |option| Known::Option(option.to_owned())));
    }
    match name.split_once("::")? {
        ("TargetBuilder" | "TargetConfig", field) => {
            of_row::<TargetConfig>(field, |name| format!("`farjump serve --{name}`"))
        }
        ("LinkBuilder" | "LinkConfig", field) => of_row::<LinkConfig>(field, |name| format!("--{name}")),
        _ => None,
    }
}

/// Returns the option that has this field.
fn of_row<C: Config>(field: &str, written: impl Fn(&str) -> String) -> Option<Known> {
    let info = C::row(field, Interfaces::all()).ok()?.info;
    let is_shown = info.shown.contains(Interfaces::COMMAND_LINE);
    Some(if is_shown { Known::Option(written(info.name)) } else { Known::Nowhere })
}

/// Puts options of the program in place of the Rust names in `text`, an error of a library or a refusal of a target. A
/// name is replaced as a whole or stays as it is. A name that no command has is removed, with its brackets if it stands
/// alone in them.
pub fn in_flags(text: impl Into<String>) -> String {
    let mut text = text.into();
    let mut from = 0;
    while let Some((start, end)) = next_path(&text, from) {
        from = match known(&text[start..end]) {
            None => end,
            Some(Known::Option(option)) => {
                text.replace_range(start..end, &option);
                start + option.len()
            }
            Some(Known::Nowhere) => {
                let (start, end) = with_punctuation(&text, start, end);
                text.replace_range(start..end, "");
                start
            }
        };
    }
    text
}

/// Returns the bounds of the next path of identifiers joined by `::`, at or after `from`.
fn next_path(text: &str, from: usize) -> Option<(usize, usize)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut from = from;
    loop {
        let start = from + text[from..].find(is_part)?;
        let run = text[start..].find(|letter| !is_part(letter)).map_or(text.len(), |len| start + len);
        // A colon behind a name is punctuation.
        let end = start + text[start..run].trim_end_matches(':').len();
        if text[start..end].contains("::") {
            return Some((start, end));
        }
        from = run;
    }
}

/// Extends the bounds of a name by the brackets or the comma that would be left of its list.
fn with_punctuation(text: &str, start: usize, end: usize) -> (usize, usize) {
    let (before, behind) = (&text[..start], &text[end..]);
    match () {
        () if before.ends_with(" (") && behind.starts_with(')') => (start - 2, end + 1),
        () if before.ends_with(", ") => (start - 2, end),
        () if behind.starts_with(", ") => (start, end + 2),
        () => (start, end),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn a_name_is_replaced_as_a_whole_or_not_at_all() {
        for (text, shown) in [
            ("more (StoreOptions::capacity)", "more (`farjump serve --objects`)"),
            (
                "one (Options::cc, Options::target_ccs)",
                "one (`farjump build --cc`, `farjump build --target-cc`)",
            ),
            ("MyOptions::cc, Options::cc_of", "MyOptions::cc, Options::cc_of"),
            ("TargetBuilder::max_frames", "TargetBuilder::max_frames"),
            ("crate::TargetBuilder::modes", "crate::TargetBuilder::modes"),
            ("TargetBuilder::modes: of", "`farjump serve --modes`: of"),
            ("more (LinkBuilder::reply_mailbox_size)", "more (--reply-mailbox-size)"),
            ("wait longer (LinkBuilder::send_timeout)", "wait longer"),
            ("call (TargetBuilder::expose_callers)", "call"),
            ("wait for them (Client::wait), or", "wait for them, or"),
            ("(Client::wait, Options::cc)", "(`farjump build --cc`)"),
            ("(Options::cc, Client::wait)", "(`farjump build --cc`)"),
            ("::1 and a::b", "::1 and a::b"),
            ("Options::cc", "`farjump build --cc`"),
            ("", ""),
        ] {
            assert_eq!(in_flags(text), shown, "{text}");
        }
    }

    /// Names that are part of a remedy for authors of Rust programs, which no user of the program sees.
    const FOR_AUTHORS: &[&str] =
        &["ExecutorBuilder::allow_code", "Library::load", "Library::open", "TargetBuilder::load_libraries"];

    #[test]
    fn each_rust_name_in_library_texts_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let crates = [
            "core",
            "control",
            "farjump",
            "handles",
            "loader",
            "loader/builder",
            "loader/compiler",
            "os",
            "transports",
            "transports/ucx-sys",
        ];
        let (mut texts, mut met, mut unknown) = (0, Vec::new(), Vec::new());
        for file in crates.iter().flat_map(|one| sources(&root.join(one).join("src"))) {
            let source = fs::read_to_string(&file).expect("a source can be read");
            for literal in literals(&source) {
                texts += 1;
                for name in rust_names(&literal) {
                    if known(&name).is_none() && !FOR_AUTHORS.contains(&&*name) {
                        unknown.push(format!("{}: {name} in {literal:?}", file.display()));
                    }
                    met.push(name);
                }
                let shown = in_flags(&*literal);
                if shown != literal {
                    let torn =
                        ["()", "(,", "( ", ", )", "``", "; )"].iter().find(|torn| shown.contains(*torn));
                    assert_eq!(torn, None, "{}: {shown}", file.display());
                }
            }
        }
        assert_eq!(unknown, [""; 0], "names that the table lacks");
        assert!(texts > 1000 && met.len() > 30, "{texts} texts, {} names", met.len());
        for (name, _) in OPTIONS {
            assert!(met.iter().any(|one| one == name), "no text has {name}");
        }
    }

    /// Returns the sources in a folder and below, without tests.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries =
            fs::read_dir(folder).expect("the crate is there").map(|entry| entry.expect("an entry").path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let own = files.into_iter().filter(|path| {
            path.extension().is_some_and(|ending| ending == "rs")
                && path.file_name() != Some("tests.rs".as_ref())
        });
        let below = folders.iter().filter(|path| path.file_name() != Some("tests".as_ref()));
        own.chain(below.flat_map(|folder| sources(folder))).collect()
    }

    /// Returns the paths in a text whose last part is a method, and whose first is a type or the module `verbs`.
    fn rust_names(text: &str) -> Vec<String> {
        let (mut names, mut from) = (Vec::new(), 0);
        while let Some((start, end)) = next_path(text, from) {
            from = end;
            let (first, last) = text[start..end].split_once("::").expect("it is a path");
            let is_type = first.starts_with(|letter: char| letter.is_ascii_uppercase()) || first == "verbs";
            if is_type && last.starts_with(|letter: char| letter.is_ascii_lowercase()) {
                names.push(text[start..end].to_owned());
            }
        }
        names
    }

    /// Returns the literals of strings before the tests of a source, without notes of the compiler to authors.
    fn literals(source: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines: Vec<_> =
            source.lines().filter(|line| !line.trim_start().starts_with("#[must_use")).collect();
        let source = lines.join("\n");
        let (mut literals, mut letters) = (Vec::new(), source.chars().peekable());
        let mut before = ' ';
        while let Some(letter) = letters.next() {
            match letter {
                '/' if letters.peek() == Some(&'/') => {
                    letters.by_ref().find(|letter| *letter == '\n');
                }
                // A character, of which a quotation mark is one; a lifetime has no end.
                '\'' => match letters.next() {
                    Some('\\') => _ = letters.by_ref().skip(1).find(|letter| *letter == '\''),
                    _ => _ = letters.next_if_eq(&'\''),
                },
                '"' if before == '#' || before == 'r' => {
                    let text: String = letters.by_ref().take_while(|letter| *letter != '"').collect();
                    literals.push(text);
                }
                '"' => {
                    let mut text = String::new();
                    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                        match (letter, letters.peek()) {
                            ('\\', Some('\n')) => {
                                while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
                            }
                            ('\\', Some(_)) => text.extend(letters.next()),
                            _ => text.push(letter),
                        }
                    }
                    literals.push(text);
                }
                _ => {}
            }
            before = letter;
        }
        literals
    }
}
