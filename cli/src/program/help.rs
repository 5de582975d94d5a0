//! Long help texts, fitted to the terminal.
//!
//! The texts behind the options of a command are written as paragraphs and items. clap would break their lines
//! wherever they end, and again where the author did. Here paragraphs are joined first, and items keep their
//! indentation.

use std::env;

use clap::Command;
use rustix::termios::tcgetwinsize;

/// Widest text, in columns: longer lines are hard to read.
const WIDEST: usize = 100;
/// Narrowest text. Narrower terminals break its lines themselves.
const NARROWEST: usize = 40;
/// Least space for the description beside an item; with less it stands below.
const LEAST_DESCRIPTION: usize = 24;

/// Fits all help of a command to the terminal.
pub(crate) fn fitted(command: Command) -> Command {
    let width = width();
    fit_command(command, width).term_width(width)
}

fn fit_command(mut command: Command, width: usize) -> Command {
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(fit(&text, width));
    }
    command.mut_subcommands(|command| fit_command(command, width))
}

/// Returns the terminal's width in columns, or that of the variable COLUMNS.
fn width() -> usize {
    let terminal = [tcgetwinsize(rustix::stdio::stdout()), tcgetwinsize(rustix::stdio::stderr())];
    let terminal =
        terminal.into_iter().flatten().map(|size| usize::from(size.ws_col)).find(|width| *width != 0);
    let told = || env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(told).unwrap_or(WIDEST).clamp(NARROWEST, WIDEST)
}

/// A part of a help text.
#[derive(Debug)]
enum Part {
    Empty,
    Paragraph(String),
    /// An item of a list: a term or a command, and a description that begins in column `column`.
    Item {
        indent: usize,
        term: String,
        column: usize,
        description: String,
    },
}

/// Breaks the lines of a text anew.
fn fit(text: &str, width: usize) -> String {
    let lines: Vec<String> = parts(text).iter().flat_map(|part| part.lines(width)).collect();
    lines.join("\n")
}

/// Joins the lines of paragraphs, and of the items' descriptions.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::<Part>::new();
    for line in text.lines() {
        let words = line.trim();
        let indent = line.len() - line.trim_start().len();
        match parts.last_mut() {
            _ if words.is_empty() => parts.push(Part::Empty),
            Some(Part::Paragraph(before)) if indent == 0 => {
                before.push(' ');
                before.push_str(words);
            }
            // A line that is indented further continues the description, or is that of the term above.
            Some(Part::Item { indent: outer, column, description, .. })
                if indent > *outer && (indent == *column || description.is_empty()) =>
            {
                *column = indent;
                if !description.is_empty() {
                    description.push(' ');
                }
                description.push_str(words);
            }
            _ if indent == 0 => parts.push(Part::Paragraph(words.to_owned())),
            _ => {
                let (term, rest) = words.split_once("  ").unwrap_or((words, ""));
                let description = rest.trim_start();
                let column = line.trim_end().chars().count() - description.chars().count();
                let (term, description) = (term.to_owned(), description.to_owned());
                parts.push(Part::Item { indent, term, column, description });
            }
        }
    }
    parts
}

impl Part {
    fn lines(&self, width: usize) -> Vec<String> {
        match self {
            Part::Empty => vec![String::new()],
            Part::Paragraph(text) => wrapped(text, width),
            Part::Item { indent, term, column, description } => {
                let margin = " ".repeat(*indent);
                let one = format!("{margin}{term}");
                if description.is_empty() {
                    return broken_command(&one, *indent, width);
                }
                let beside = one.chars().count() + 2 <= *column && column + LEAST_DESCRIPTION <= width;
                let column = if beside { *column } else { indent + 4 };
                let mut lines: Vec<_> = wrapped(description, width - column)
                    .into_iter()
                    .map(|line| format!("{}{line}", " ".repeat(column)))
                    .collect();
                match lines.first_mut() {
                    Some(first) if beside => *first = format!("{one:column$}{}", first.trim_start()),
                    _ => {
                        let above = broken_command(&one, *indent, width);
                        lines.splice(0..0, above);
                    }
                }
                lines
            }
        }
    }
}

/// Breaks a text between words into lines of at most `width` columns. A longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Breaks a command that is too long in the way a shell reads it: at blanks outside of quotes, best before an
/// option or another command.
fn broken_command(line: &str, indent: usize, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > width {
        let (mut quoted, mut breaks) = (false, Vec::new());
        for (column, (at, letter)) in rest.char_indices().enumerate() {
            quoted ^= letter == '\'' || letter == '"';
            // Two columns for the backslash.
            if letter == ' ' && !quoted && column + 2 <= width && !rest[..at].trim().is_empty() {
                breaks.push(at);
            }
        }
        let starts_part = |at: &&usize| {
            let next = &rest[*at + 1..];
            next.starts_with("--") || next.starts_with("| ") || next.starts_with("&& ")
        };
        let Some(at) = breaks.iter().rfind(starts_part).or(breaks.last()) else { break };
        lines.push(format!("{} \\", &rest[..*at]));
        rest = format!("{}{}", " ".repeat(indent + 4), rest[*at..].trim_start());
        if lines.last().is_some_and(|last| last.trim() == "\\") {
            break;
        }
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_and_lists_keep_their_columns() {
        let text = "A long\nparagraph of words.\n\nList:\n  a      one, which is\n         described\n  bb     two\n\
                    The end.";
        let wide =
            "A long paragraph of words.\n\nList:\n  a      one, which is described\n  bb     two\nThe end.";
        assert_eq!(fit(text, 100), wide);
        let narrow = "A long paragraph of\nwords.\n\nList:\n  a\n      one, which is\n      described\n  bb\n      two\n\
                      The end.";
        assert_eq!(fit(text, 20), narrow);
    }

    #[test]
    fn fitting_keeps_terms_above_descriptions_and_nested_lists() {
        let text = "  a, b\n       both\n  list  of things:\n    x   the first\n    yy  the second";
        assert_eq!(fit(text, 100), text.replace("a, b\n       both", "a, b\n      both"));
    }

    #[test]
    fn a_long_command_is_broken_as_a_shell_reads_it() {
        let command = "  farjump store --to unix:store.sock --json | jq '.images[] | .id'";
        assert_eq!(fit(command, 66), command);
        assert_eq!(
            fit(command, 50),
            "  farjump store --to unix:store.sock --json \\\n      | jq '.images[] | .id'"
        );
        assert_eq!(fit(command, 60), fit(command, 50));
        assert_eq!(
            fit("  farjump serve --listen unix:a   (and so on)", 40),
            "  farjump serve --listen unix:a\n      (and so on)"
        );
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        assert_eq!(fit("a verylongword b", 5), "a\nverylongword\nb");
        assert_eq!(fit("  verylongcommand", 5), "  verylongcommand");
    }
}
