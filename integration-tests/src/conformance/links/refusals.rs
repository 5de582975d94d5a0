//! Refusals reach the source, name the reason, and harm nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farjump::{CallError, Error, InjectError, Mode, RefusalCause};

use super::calls::{fill_args, same};
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::host::{Args, Fixture, MAX_PAYLOAD, PATIENCE};
use crate::conformance::libraries::Libraries;

/// Size of the reply mailbox, in bytes.
const MAILBOX_SIZE: usize = 16 << 10;
/// Rounds.
const ROUNDS: u64 = 3;

pub(in crate::conformance) fn refusals(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let reported = Arc::new(AtomicU64::new(0));
    let count = reported.clone();
    let link = host.link_with(|builder| {
        builder.reply_mailbox_size(MAILBOX_SIZE).on_refused(move |_| _ = count.fetch_add(1, Relaxed))
    })?;
    let Libraries { echo, fill, missing, panics, .. } = fixture.libraries;
    // A target cannot have this function itself.
    let (due, word) = match fixture.mode() {
        Mode::Local => (RefusalCause::CodeMissing, "`missing`"),
        _ => (RefusalCause::UnresolvedImport, "no_such_function"),
    };
    let (mut refused, mut seen) = (0, 0);
    for round in 0..ROUNDS {
        // All are in flight together: each reply finds its own call.
        let before = link.inject(echo, b"before")?;
        let unresolved = link.inject(missing, b"")?;
        let panicked = link.inject(panics, b"on purpose")?;
        let too_long = link.inject(fill, &fill_args(2 * MAILBOX_SIZE, 1, round))?;
        let after = link.inject(echo, b"after")?;

        same(&after.wait(PATIENCE)?, b"after")?;
        match too_long.wait(PATIENCE) {
            Err(Error::Call(CallError::Refused { cause: RefusalCause::ReplyTooLarge, .. })) => {}
            other => {
                ensure!(false, "a reply of {} bytes into {MAILBOX_SIZE} gives {other:?}", 2 * MAILBOX_SIZE)
            }
        }
        match panicked.wait(PATIENCE) {
            Err(Error::Call(CallError::Panicked { ifunc, message }))
                if ifunc == "panics" && message == "on purpose" => {}
            other => ensure!(false, "a panic gives {other:?}"),
        }
        match unresolved.wait(PATIENCE) {
            Err(Error::Call(CallError::Refused { ifunc, cause, text }))
                if ifunc == "missing" && cause == due && text.contains(word) => {}
            other => ensure!(false, "an import that is not offered gives {other:?}"),
        }
        same(&before.wait(PATIENCE)?, b"before")?;
        refused += 2;
        seen += 3;

        // The handler and the next flush report refusals of one-way calls.
        link.send(missing, b"")?;
        link.send(panics, b"unasked")?;
        let flushed = link.flush(PATIENCE);
        ensure!(
            matches!(&flushed, Err(Error::Call(CallError::Refused { cause, .. })) if *cause == due),
            "a flush after two refusals gives {flushed:?}"
        );
        link.flush(PATIENCE)?;
        let handled = reported.load(Relaxed);
        ensure!(handled == 2 * (round + 1), "the handler ran {handled} times in round {round}");
        refused += 2;
        seen += 2;

        // Once, and not last: a slow device takes seconds to carry the payload to the target, which refuses it.
        if round != 1 {
            continue;
        }
        let huge = link.inject(echo, &vec![0; MAX_PAYLOAD + 1]).and_then(|call| call.wait(PATIENCE));
        match huge {
            // The source requested a large mailbox, or the frame was delivered. The target counts that it made no
            // mailbox, or ran no frame.
            Err(Error::Call(CallError::Refused { cause: RefusalCause::TooLarge, .. })) => refused += 1,
            // No frame of the transport is so long, or the target sent its limit in the handshake.
            Err(
                Error::Inject(InjectError::TooLarge { .. })
                | Error::Inject(InjectError::OverLimit { part: farjump::Part::Payload, .. }),
            ) => {}
            other => ensure!(false, "a payload over the limit gives {other:?}"),
        }
        same(&link.inject(echo, b"and on")?.wait(PATIENCE)?, b"and on")?;
    }
    let counted = host.counts()?.refusals;
    ensure!(counted == refused, "{refused} frames were refused, the target counted {counted}");
    Ok(seen)
}
