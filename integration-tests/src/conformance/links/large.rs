//! Payloads that the mailbox is too small for.

use farjump::Error;
use farjump_core::transport::InboxKind;

use super::volume::witness_args;
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::host::{Args, PATIENCE, Stage};

/// Beside the payload a frame has less than this, in bytes, with the code of `witness`.
const AROUND: usize = 16 << 10;
/// Seed of the patterns.
const SEED: u64 = 47;

/// They go through a bigger one, in their order among small ones. A transport without mailboxes says how much it takes.
pub(in crate::conformance) fn large(stage: &Stage) -> Counted {
    let mut host = stage.host(Args::Word)?;
    let link = host.link()?;
    let witness = &stage.libraries.witness;
    let capabilities = stage.subject().make().source.capabilities();
    let mailbox = link.max_frame();
    if capabilities.inbox != InboxKind::OneSided {
        let long = link.inject(witness, &witness_args(SEED, 0, mailbox + 1));
        ensure!(
            matches!(long, Err(Error::TooLarge { .. })),
            "a payload of {mailbox} bytes and one gives {long:?}"
        );
        link.send(witness, &witness_args(SEED, 0, 40))?;
        link.flush(PATIENCE)?;
        return Ok(2);
    }
    let most = capabilities.max_frame.min(3 * mailbox) - AROUND;
    let lengths = [40, mailbox + 1, 16, 700, most, most - 4096, 24, mailbox - 72, mailbox - 71, 5000, most];
    let mut sent = 0;
    for len in lengths {
        link.send(witness, &witness_args(SEED, sent, len))?;
        sent += 1;
    }
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == sent, "{sent} calls were sent, and {word} have run in their order");
    Ok(sent)
}
