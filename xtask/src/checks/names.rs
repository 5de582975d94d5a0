//! Checks the names of functions, types and tests: they have the glossary's words, and few of them.

use std::fs;

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// Most words of a function's name. Those of tests are the long ones: each is a claim.
const MOST_WORDS: usize = 12;

/// Words that `docs/reference/glossary.md` replaces, as far as one word shows the wrong sense.
const REPLACED: [&str; 33] = [
    "room",
    "rooms",
    "side",
    "sides",
    "meet",
    "meets",
    "meeting",
    "met",
    "answer",
    "answers",
    "answered",
    "question",
    "questions",
    "ask",
    "asks",
    "asked",
    "tell",
    "tells",
    "told",
    "bigger",
    "enlarge",
    "enlarged",
    "who",
    "whose",
    "he",
    "him",
    "somebody",
    "nobody",
    "heed",
    "heeds",
    "door",
    "way",
    "ways",
];

/// Names that keep such a word, with the reason.
const KEPT: &[(&str, &str)] = &[
    ("kv_answer_integer", FOR_CLIENTS),
    ("kv_answer_double", FOR_CLIENTS),
    ("kv_answer_string", FOR_CLIENTS),
    ("kv_answer_array", FOR_CLIENTS),
    ("NOBODY", "the system's user of that name"),
];
const FOR_CLIENTS: &str =
    "a symbol of farjump_kv.h, where `kv_reply` is what a command of the server replies";

/// The keywords before a name that is checked, in Rust.
const NAMING: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static"];

/// The keywords before a name that is checked, in Python.
const PYTHON_NAMING: [&str; 2] = ["def", "class"];

/// Words that may stand before such a keyword, or between it and the name.
const BEFORE: [&str; 8] = ["pub", "unsafe", "async", "extern", "C", "default", "mut", "ref"];

/// Reads the names in all files of Rust and Python, and those of C's functions.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let (mut names, mut faults, mut kept) = (0, Vec::new(), vec![false; KEPT.len()]);
    for file in tracked_files(&["*.rs", "*.py", "*.pyi", "*.c", "*.h"], interrupt)? {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let name_in: fn(&str) -> Option<&str> = match file.rsplit('.').next() {
            Some("rs") => name_in,
            Some("py" | "pyi") => name_in_python,
            _ => name_in_c,
        };
        let lines = text.lines().zip(1..);
        for (line, name) in lines.filter_map(|(text, line)| Some((line, name_in(text)?))) {
            names += 1;
            if let Some(index) = KEPT.iter().position(|(word, _)| *word == name) {
                kept[index] = true;
            } else if let Some(fault) = fault(name) {
                faults.push(format!("{file}:{line}: `{name}` {fault}"));
            }
        }
    }
    faults.extend(
        KEPT.iter()
            .zip(&kept)
            .filter(|(_, found)| !**found)
            .map(|((name, _), _)| format!("nothing is named `{name}`")),
    );
    say!("{names} names");
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(faults.join("\n"))),
    }
}

/// The name of the item that a line of Rust begins.
fn name_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    // Without the place that sees it: `pub(in crate::serve)`.
    let line = line.strip_prefix("pub(").and_then(|rest| rest.split_once(')')).map_or(line, |(_, rest)| rest);
    name_behind(&NAMING, line.trim_start())
}

/// The name of the function or class that a line of Python begins. A test's has `test_` before its claim.
fn name_in_python(line: &str) -> Option<&str> {
    let name = name_behind(&PYTHON_NAMING, line.trim_start())?;
    Some(name.strip_prefix("test_").unwrap_or(name))
}

/// The name of the function that a line of C declares.
fn name_in_c(line: &str) -> Option<&str> {
    let (before, _) = line.split_once('(')?;
    let (kind, name) = before.rsplit_once([' ', '*'])?;
    // A call or a macro stands alone, or behind something that is no type.
    let is_type = |letter: char| letter.is_alphanumeric() || " _*".contains(letter);
    (kind.starts_with(|first: char| first.is_ascii_alphabetic()) && kind.chars().all(is_type)).then_some(name)
}

/// The name behind one of these keywords, with which a line begins.
fn name_behind<'l>(naming: &[&str], line: &'l str) -> Option<&'l str> {
    // No comment.
    line.chars().next().filter(|first| first.is_ascii_lowercase())?;
    let mut is_item = false;
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    for word in words.filter(|word| !word.is_empty()) {
        if naming.contains(&word) {
            is_item = true;
        } else if !BEFORE.contains(&word) {
            return is_item.then_some(word);
        }
    }
    None
}

/// What is wrong with a name.
fn fault(name: &str) -> Option<String> {
    let words = words(name);
    if let Some(word) = words.iter().find(|word| REPLACED.contains(&word.as_str())) {
        let is_term = ["way", "ways"].contains(&word.as_str()) && words.iter().any(|other| other == "one");
        if !is_term {
            return Some(format!("has the word `{word}`: docs/reference/glossary.md has the one to use"));
        }
    }
    let is_function = name.chars().all(|letter| !letter.is_uppercase());
    (is_function && words.len() > MOST_WORDS)
        .then(|| format!("has {} words: {MOST_WORDS} are enough", words.len()))
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split('_').filter(|part| !part.is_empty()) {
        let is_camel = part.contains(char::is_lowercase);
        let mut word = String::new();
        for letter in part.chars() {
            if is_camel && letter.is_uppercase() && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            word.extend(letter.to_lowercase());
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_items_are_found_in_each_language() {
        let lines = [
            ("    pub(crate) const unsafe fn first(way: u8) {", Some("first")),
            ("pub(in crate::serve) struct HeldFrame<T> {", Some("HeldFrame")),
            ("pub unsafe extern \"C\" fn farjump_call(", Some("farjump_call")),
            ("static mut COUNT: u32 = 0;", Some("COUNT")),
            ("mod tests {", Some("tests")),
            ("// type of a thing", None),
            ("let way = ask();", None),
            ("impl Frame for Thing {", None),
        ];
        for (line, name) in lines {
            assert_eq!(name_in(line), name, "{line}");
        }
        let of_python = [
            ("    async def test_one(self):", Some("one")),
            ("class Store(Connector):", Some("Store")),
            ("    classes = ask()", None),
        ];
        for (line, name) in of_python {
            assert_eq!(name_in_python(line), name, "{line}");
        }
        let of_c = [
            ("static struct peer *meet(int way)", Some("meet")),
            ("FARJUMP_API farjump_status_t farjump_call(", Some("farjump_call")),
            ("    meet(&peer);", None),
            ("#define ASK(way) meet(way)", None),
        ];
        for (line, name) in of_c {
            assert_eq!(name_in_c(line), name, "{line}");
        }
    }

    #[test]
    fn replaced_words_and_long_claims_are_faults() {
        for name in [
            "ask_source",
            "Answer",
            "MEETING_QUEUE",
            "BothSides",
            "under_way",
            "loom_a_b_c_d_e_f_g_h_i_j_k_l",
        ] {
            assert!(fault(name).is_some(), "{name}");
        }
        for name in ["call_one_way", "task", "Passage", "answering", "SIDEWAYS", "a_b_c_d_e_f_g_h_i_j_k_l"] {
            assert_eq!(fault(name), None);
        }
    }

    #[test]
    fn every_replaced_word_is_in_the_glossary() {
        let glossary = fs::read_to_string(root().join("docs/reference/glossary.md")).unwrap();
        let (_, table) = glossary.split_once("## Words that are not used").unwrap();
        let said: Vec<&str> = table.split(|letter: char| !letter.is_alphanumeric()).collect();
        for word in REPLACED {
            // Its other forms follow.
            let stem = word.trim_end_matches("ed").trim_end_matches('s');
            assert!(said.iter().any(|said| *said == word || said.starts_with(stem)), "{word}");
        }
    }
}
