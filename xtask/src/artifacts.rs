//! The files that a run of cargo built, from cargo's own messages. Their folders depend on the user's settings
//! (`build.target`, `CARGO_TARGET_DIR`, a profile), and a file in the usual folder may be of another build.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fetch::packages;
use crate::process::{Failed, Run};
use crate::test::report::{last, shown_lines};

/// Files that cargo built, or found up to date.
#[derive(Clone, Debug)]
pub(crate) struct Artifacts {
    /// cargo's messages of the kind `compiler-artifact`.
    messages: Vec<Value>,
}

impl Artifacts {
    /// Runs a cargo command that builds and runs nothing else (`build`, `test --no-run`).
    ///
    /// # Errors
    /// When cargo fails. The error says that `what` cannot be built, and has cargo's last lines.
    pub(crate) fn of(run: Run<'_>, what: &str) -> Result<Artifacts, Failed> {
        let mut is_shown = shown_lines(!packages::in_ci());
        let run = run.args(["--message-format", "json-render-diagnostics"]);
        let ended = run.showing(move |line| !line.starts_with('{') && is_shown(line)).run()?;
        match ended.status.success() {
            true => Ok(Artifacts::read(&ended.output)),
            false => {
                let words: Vec<_> = ended.output.lines().filter(|line| !line.starts_with('{')).collect();
                let said = last(&words.join("\n")).join("\n    ");
                Err(Failed::Because(format!("{what} cannot be built\n    {said}")))
            }
        }
    }

    /// Reads cargo's output.
    pub(crate) fn read(output: &str) -> Artifacts {
        let lines = output.lines().filter(|line| line.starts_with('{'));
        let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Artifacts { messages: messages.filter(|message| message["reason"] == "compiler-artifact").collect() }
    }

    /// The messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Value> {
        self.messages.iter()
    }

    /// The program of this name, except tests and examples.
    ///
    /// # Errors
    /// When cargo did not build it.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, Failed> {
        let named = self.messages().filter(|message| {
            let target = &message["target"];
            target["name"] == name && target["kind"][0] == "bin" && message["profile"]["test"] != true
        });
        let mut files = named.filter_map(|message| message["executable"].as_str());
        files.next().map(PathBuf::from).ok_or_else(|| lacking(name))
    }

    /// The library of this file name, such as `libfarjump_c.a`.
    ///
    /// # Errors
    /// When cargo did not build it.
    pub(crate) fn library(&self, file: &str) -> Result<PathBuf, Failed> {
        let files = self.messages().flat_map(|message| message["filenames"].as_array().into_iter().flatten());
        let mut paths = files.filter_map(|name| name.as_str().map(Path::new));
        paths
            .find(|path| path.file_name().is_some_and(|name| name == file))
            .map(Path::to_owned)
            .ok_or_else(|| lacking(file))
    }
}

fn lacking(name: &str) -> Failed {
    Failed::Because(format!("cargo did not say that it built {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_cargos_messages_wherever_they_lie() {
        let artifacts = Artifacts::read(
            r#"   Compiling farjump-cli v0.1.0
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"farjump"},"profile":{"test":true},"filenames":["/t/deps/farjump-1"],"executable":"/t/deps/farjump-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"farjump"},"profile":{"test":false},"filenames":["/t/aarch64/debug/farjump"],"executable":"/t/aarch64/debug/farjump"}
{"reason":"compiler-artifact","target":{"kind":["staticlib","lib"],"name":"farjump_c"},"profile":{"test":false},"filenames":["/t/libfarjump_c.a","/t/libfarjump_c.rlib"],"executable":null}
{"reason":"compiler-artifact","target":{"kind":["example"],"name":"store"},"profile":{"test":false},"filenames":["/t/store"],"executable":"/t/store"}
{"reason":"build-finished","success":true}"#,
        );
        let found = |found: Result<PathBuf, Failed>| found.map(|path| path.display().to_string()).ok();
        assert_eq!(found(artifacts.program("farjump")).as_deref(), Some("/t/aarch64/debug/farjump"));
        assert_eq!(found(artifacts.library("libfarjump_c.a")).as_deref(), Some("/t/libfarjump_c.a"));
        assert_eq!(found(artifacts.program("store")), None);
        assert!(artifacts.program("farjump_compiler").unwrap_err().to_string().contains("farjump_compiler"));
    }
}
