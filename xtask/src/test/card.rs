//! The page about targets on cards, tested with programs for aarch64 in the emulator. They are installed as the page
//! says, and serve in a network of their own.

use crate::emulated::{self, Cross, Tools};
use crate::fetch::debs::Outcome;
use crate::package::install;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::Tally;
use crate::test::suite::suite;
use crate::workspace::{BUILDING, Workspace, root};

/// The test's name in counts, and the filter for it.
pub(crate) const NAME: &str = "emulated-card";

const PLATFORM: &str = "aarch64-unknown-linux-gnu";

/// Runs the test, or reports why it cannot run.
///
/// # Errors
/// When interrupted, or something cannot be built.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let folder = emulated::folder(&Workspace::load(false, interrupt)?);
    let skipped = |why| Ok(Tally { skipped: vec![(NAME.to_owned(), why)], ..Tally::default() });
    let tools = match Tools::get(&folder, interrupt)? {
        Outcome::Here(tools) => tools,
        Outcome::Missing(why) => return skipped(why),
    };
    let cross = match Cross::for_platform(PLATFORM, &tools, &folder, interrupt)? {
        Outcome::Here(cross) => cross,
        Outcome::Missing(why) => return skipped(why),
    };
    let prefix = folder.join("prefix");
    install::for_platform(&prefix, &cross, interrupt)?;
    let test = ["test", "--package", "farjump-cli", "--test", "cli", "cards::", "--", "--show-output"];
    let run = Run::cargo(interrupt).args(test).directory(root()).limit(BUILDING);
    let run = run.env("FARJUMP_TEST_CARD", prefix.join("bin/farjump"));
    let run = run.env("FARJUMP_TEST_CARD_RUNNER", cross.runner());
    suite(NAME, run, true)
}
