//! The target beside the table.

use std::path::Path;
use std::thread;

use farjump::{Target, export};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failed;
use crate::mapped::{Args, Mapped, scan_block, scan_fault};

/// Makes a target of a mapped table at `address`, with the key in this file. Over TCP it needs one.
///
/// # Errors
/// Those of a target: the address is taken, or the key cannot be read.
pub fn target(mapped: Mapped, address: &str, key: Option<&Path>) -> Result<Target<'static>, Failed> {
    let mut target = Target::listen(address)
        .args_owned(Args::new(mapped))
        .exports([export!(scan_block(_, _)), export!(scan_fault(_))]);
    if let Some(key) = key {
        // Its measurements are over `tcp`, also in a build of the workspace, which has more transports between machines.
        target = target.key_file(key).transport("tcp");
    }
    Ok(target.build()?)
}

/// Serves until SIGTERM or SIGINT; calls `ready` with the address before.
///
/// # Errors
/// The target's.
pub fn serve(mut target: Target<'static>, ready: impl FnOnce(&str)) -> Result<(), Failed> {
    let stopper = target.stopper();
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    })?;
    ready(&target.address());
    Ok(target.run()?)
}
