//! Compares what a command prints with what a document shows.

/// Units behind numbers that depend on the machine or the compiler.
const UNITS: [&str; 8] = ["B", "KiB", "MiB", "ns", "us", "ms", "s", "MB"];
/// Words before such numbers.
const NAMES: [&str; 7] = ["pid", "text", "rodata", "got", "data", "bss", "to"];

/// Returns whether the lines are those of a document. A line `…` there stands for any lines. Identifiers, addresses,
/// lengths and times are not compared.
pub(crate) fn agrees(printed: &[String], shown: &[String]) -> bool {
    let mask = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().filter(|line| !line.trim().is_empty());
        lines.map(|line| masked(line)).collect()
    };
    let (mut printed, mut shown) = (mask(printed), mask(shown));
    if shown.iter().any(|line| line == "…") {
        let mut rest = printed.iter();
        return shown.iter().filter(|line| *line != "…").all(|line| rest.any(|printed| printed == line));
    }
    // Two programs of a pipeline print in any order.
    printed.sort();
    shown.sort();
    printed == shown
}

/// Returns the line with one space between words, and `#` for the parts that are not compared.
fn masked(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let bare = |word: &str| -> String { word.chars().filter(|c| c.is_alphanumeric() || *c == '.').collect() };
    let is_number = |word: &str| {
        let word = bare(word);
        !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let mut masked = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        let end = at + words[at..].iter().take_while(|word| is_number(word)).count();
        if end > at {
            let of_code = words[end..].starts_with(&["bytes", "of", "code"]);
            let measured = of_code
                || words.get(end).is_some_and(|unit| UNITS.contains(&&*bare(unit)))
                || at > 0 && NAMES.contains(&&*bare(words[at - 1]));
            masked.push(if measured { "#".to_owned() } else { words[at..end].join(" ") });
            at = end;
            continue;
        }
        let after_number = masked.last().is_some_and(|last| last == "#");
        match after_number && UNITS.contains(&&*bare(word)) {
            true => masked.push("unit".to_owned()),
            false if is_identifier(word) => masked.push("#".to_owned()),
            false => masked.push(word.to_owned()),
        }
        at += 1;
    }
    masked.join(" ")
}

/// Returns whether a word is an address, or an identifier in hexadecimal digits, perhaps cut.
fn is_identifier(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '…');
    let digits = word.strip_prefix("0x").or(word.strip_suffix('…')).unwrap_or(word);
    let hexadecimal = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    hexadecimal && (digits.len() < word.len() || word.len() == 32)
}

#[test]
fn compared_output_may_differ_in_machine_values_but_not_in_results() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same = |one: &str, other: &str| agrees(&lines(one), &lines(other));
    assert!(same("ready: unix:a (pid 12)", "ready: unix:a (pid 3456)"));
    assert!(same("linked 2 images in 61 us", "linked 2 images in 7.25 ms"));
    assert!(same(
        "x 416 B text 338 rodata 0 id a63b1f843e77f4cf16bcdf256aac3ab5",
        "x 9 B  text 1  rodata 2 id 3f…"
    ));
    assert!(same("one\ntwo\nthree", "one\n…\nthree"));
    assert!(!same("one\ntwo\nthree", "one\n…\nfour"));
    assert!(!same("26", "27"));
    assert!(!same("rows 3 sum up to 50 apples", "rows 4 sum up to 50 apples"));
    assert!(!same("linked 2 images in 61 us", "linked 3 images in 61 us"));
}
