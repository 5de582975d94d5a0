//! The fenced blocks of a document, and the marks by which it says how each is tested.
//!
//! A mark is an HTML comment in front of a block, which readers do not see:
//!
//! | mark | meaning |
//! |---|---|
//! | `<!-- needs: WORD, … -->` | the block runs where these are: a program, a file (`/…`), a transport, `example NAME` or `module NAME` |
//! | `<!-- saved as: FILE -->` | the block is written to a file for the commands below it |
//! | `<!-- options: REASON -->` | farjump reads each command's options and does not carry it out |
//! | `<!-- not run: REASON -->` | nothing of the block is tested |

use std::fs;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use super::root;

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Name of the document, below the root.
    pub(crate) document: String,
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    /// Words behind the opening fence.
    pub(crate) info: String,
    /// The block without its fences.
    pub(crate) text: String,
    marks: Vec<String>,
}

impl Block {
    /// Returns the value of a mark.
    pub(crate) fn mark(&self, name: &str) -> Option<&str> {
        let values = self.marks.iter().filter_map(|mark| mark.strip_prefix(name)?.strip_prefix(':'));
        values.map(str::trim).next()
    }

    /// Returns whether it is a session of commands.
    pub(crate) fn is_session(&self) -> bool {
        self.info == "console"
    }

    /// Returns `DOCUMENT:LINE`.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// Returns the commands, each with the lines that it prints.
    pub(crate) fn commands(&self) -> Vec<(String, Vec<String>)> {
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            let typed = if goes_on { Some(line) } else { line.strip_prefix("$ ") };
            match (typed, commands.last_mut()) {
                (Some(typed), Some((command, _))) if goes_on => {
                    command.push('\n');
                    command.push_str(typed);
                }
                (Some(typed), _) => commands.push((typed.to_owned(), Vec::new())),
                (None, Some((_, printed))) => printed.push(line.to_owned()),
                (None, None) => panic!("{} begins with `{line}`, which is no command", self.place()),
            }
            goes_on = typed.is_some_and(|typed| typed.ends_with('\\'));
        }
        commands
    }
}

/// Returns the fenced blocks of a document, in their order.
pub(crate) fn of(document: &str) -> Vec<Block> {
    let text =
        fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut blocks: Vec<Block> = Vec::new();
    let (mut comments, mut fenced) = (String::new(), false);
    for (event, range) in Parser::new(&text).into_offset_iter() {
        match event {
            Event::Html(html) => comments.push_str(&html),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                fenced = true;
                let line = text[..range.start].matches('\n').count() + 1;
                let (document, info, text) = (document.to_owned(), info.to_string(), String::new());
                blocks.push(Block { document, line, info, text, marks: marks(&comments) });
            }
            Event::Text(text) if fenced => {
                blocks.last_mut().expect("a block has begun").text.push_str(&text);
            }
            Event::End(TagEnd::CodeBlock) => fenced = false,
            Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
            _ => comments.clear(),
        }
        if fenced {
            comments.clear();
        }
    }
    blocks
}

/// Returns the contents of HTML comments.
fn marks(comments: &str) -> Vec<String> {
    let each = comments.split("<!--").skip(1).filter_map(|comment| comment.split_once("-->"));
    each.map(|(mark, _)| mark.trim().to_owned()).collect()
}
