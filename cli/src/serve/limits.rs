//! The policy of `serve`, read from the command line.

use std::str::FromStr;

use farjump::{CodeId, Limits};

use super::Serve;
use farjump_benches::program::units::parse_bytes;

/// The value of `--allow-code`: one code id, or those in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AllowedCodes(pub(super) Vec<CodeId>);

impl FromStr for AllowedCodes {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedCodes, String> {
        match text.strip_prefix('@') {
            None => Ok(AllowedCodes(vec![code_id(text)?])),
            Some(path) => {
                let list = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read `{path}`: {error}"))?;
                listed(&list)
                    .map_err(|(line, error)| format!("`{path}`, line {line}: {error}"))
                    .map(AllowedCodes)
            }
        }
    }
}

/// Reads the code ids in `list`: the first word of each line, except lines that are empty or start with `#`.
fn listed(list: &str) -> Result<Vec<CodeId>, (usize, String)> {
    list.lines()
        .zip(1..)
        .filter_map(|(text, line)| Some((text.split_whitespace().next()?, line)))
        .filter(|(word, _)| !word.starts_with('#'))
        .map(|(word, line)| code_id(word).map_err(|error| (line, error)))
        .collect()
}

fn code_id(text: &str) -> Result<CodeId, String> {
    let wrong = || {
        format!(
            "`{text}` is no code id: write the 32 hexadecimal digits that `farjump inspect` shows, or @FILE"
        )
    };
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
    Ok(CodeId(number.to_be_bytes()))
}

/// Reads a limit in bytes, which is more than 0.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_limit(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        0 => Err("a limit of 0 admits nothing: leave it out for no limit".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The limits of the command line.
pub(crate) fn limits(arguments: &Serve) -> Limits {
    let default = Limits::default();
    Limits {
        payload: arguments.max_payload.unwrap_or(default.payload),
        large_payload: arguments.max_payload.unwrap_or(default.large_payload),
        image: arguments.max_image.unwrap_or(default.image),
        frame: arguments.max_frame.unwrap_or(default.frame),
        sources: arguments.max_sources.map_or(default.sources, |sources| sources as usize),
        source_memory: arguments.max_source_memory.unwrap_or(default.source_memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "edc1169992d9aed8ae348fa14a32de94";

    #[test]
    fn a_code_id_reads_back_as_it_is_shown() {
        let AllowedCodes(ids) = ID.parse().expect("it is one");
        assert_eq!(ids.iter().map(CodeId::to_string).collect::<Vec<_>>(), [ID]);
        assert_eq!(ID.to_uppercase().parse(), Ok(AllowedCodes(ids)));
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
            assert!(wrong.parse::<AllowedCodes>().unwrap_err().contains("32 hexadecimal digits"), "{wrong}");
        }
        assert!("@no/such/file".parse::<AllowedCodes>().unwrap_err().contains("`no/such/file`"));
    }

    #[test]
    fn a_code_id_list_takes_comments_and_reports_wrong_lines() {
        let zero = "0".repeat(32);
        let text = format!("# ours\n\n{ID}  libgrep.so\n   {zero}\n  # no more\n");
        let ids = listed(&text).expect("it is a list");
        assert_eq!(ids.iter().map(CodeId::to_string).collect::<Vec<_>>(), [ID, &zero]);
        assert_eq!(listed(""), Ok(Vec::new()));
        let (line, error) = listed(&format!("{ID}\n\nlibgrep.so {ID}\n")).unwrap_err();
        assert!(line == 3 && error.contains("`libgrep.so`"), "{line}: {error}");
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        assert_eq!(parse_limit("1"), Ok(1));
        assert_eq!(parse_limit("64K"), Ok(64 << 10));
        for wrong in ["0", "0K", "-1", "none", ""] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }
}
