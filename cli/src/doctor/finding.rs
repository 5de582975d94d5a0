//! The result of a probe, as text and as JSON.

use serde_json::{Map, Value, json};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verdict {
    /// No source or no target can run here.
    Impossible,
    /// Both run, but something here costs time.
    Slow,
    /// Neither, but worth knowing.
    Note,
    /// Ideal for farjump.
    Ok,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Impossible => "impossible",
            Verdict::Slow => "slow",
            Verdict::Note => "note",
            Verdict::Ok => "ok",
        }
    }
}

/// One property of the machine.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Finding {
    /// Name of the property. `docs/guide/doctor.md` lists all names.
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// The observed state, with its number.
    pub(super) found: String,
    /// The same as JSON; names as in `docs/guide/doctor.md`.
    pub(super) figures: Map<String, Value>,
    /// Consequence for farjump.
    pub(super) means: String,
    /// The command that fixes it, if there is one. Words in capitals are placeholders.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        means: impl Into<String>,
    ) -> Finding {
        let (found, means) = (found.into(), means.into());
        Finding { name, verdict, found, figures: Map::new(), means, mend: None }
    }

    pub(super) fn mend(mut self, command: impl Into<String>) -> Finding {
        self.mend = Some(command.into());
        self
    }

    pub(super) fn figure(mut self, name: &str, value: impl Into<Value>) -> Finding {
        self.figures.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "verdict": self.verdict.word(),
            "found": self.found,
            "figures": self.figures,
            "means": self.means,
            "mend": self.mend,
        })
    }
}

/// Returns the worst of several verdicts that is more than a note; `Ok` if there is none.
pub(super) fn overall(findings: &[Finding]) -> Verdict {
    match findings.iter().map(|finding| finding.verdict).min() {
        Some(verdict @ (Verdict::Impossible | Verdict::Slow)) => verdict,
        _ => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_counts_and_notes_do_not() {
        let of = |verdicts: &[Verdict]| {
            let finding = |verdict: &Verdict| Finding::new("x", *verdict, "", "");
            overall(&verdicts.iter().map(finding).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Verdict::Ok);
        assert_eq!(of(&[Verdict::Note, Verdict::Ok]), Verdict::Ok);
        assert_eq!(of(&[Verdict::Ok, Verdict::Slow, Verdict::Note]), Verdict::Slow);
        assert_eq!(of(&[Verdict::Slow, Verdict::Impossible, Verdict::Ok]), Verdict::Impossible);
    }
}
