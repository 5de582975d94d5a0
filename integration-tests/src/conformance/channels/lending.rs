//! Memory that one endpoint lends and the other reads, while the lender does nothing.

use std::ptr::NonNull;

use farjump_core::channel::Channel;
use farjump_core::transport::{Cause, Lender, Loan, ReadBytes, TransportError};

use super::connect::ChannelPair;
use super::stream::Patience;
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::Subject;

const RING: usize = 16 << 10;
/// Lengths that are read: around a page, and in more than one part.
const LENGTHS: [usize; 5] = [1, 64, 4095, 4097, (5 << 20) + 3];

/// Lends memory and reads it in both directions. Also reads by changed keys, and after a loan has ended.
pub(super) fn lending(subject: &Subject) -> Counted {
    let mut ends = ChannelPair::connect(subject, RING, RING / 2)?;
    let lends = [ends.left.lender().is_some(), ends.right.lender().is_some()];
    let reads = [ends.left.reads().is_some(), ends.right.reads().is_some()];
    ensure!(lends == reads && lends[0] == lends[1], "ends that lend: {lends:?}, that read: {reads:?}");
    let (Some(mut left), Some(mut right)) = (ends.left.lender(), ends.right.lender()) else {
        return ends.close(1);
    };
    let mut counted = 0;
    counted += read_all(&mut *left, &mut ends.right)?;
    counted += read_all(&mut *right, &mut ends.left)?;
    counted += changed_keys(&mut *left, &mut ends.right)?;
    // Last: such a read may end the link.
    ended_loan(&mut *left, &mut ends.right)?;
    let (left, right, _keep) = ends.split();
    drop((left, right));
    Ok(counted + 1)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 4093) as u8).collect()
}

/// Lends `bytes`, which the caller keeps until the loan is dropped.
fn lend(lender: &mut dyn Lender, bytes: &[u8]) -> Result<Loan, TransportError> {
    // SAFETY: each caller drops the loan before the bytes.
    unsafe { lender.lend(NonNull::from(bytes).cast(), bytes.len()) }
}

/// Reads by `key`; the lender is not called meanwhile.
fn read(reader: &mut Channel, key: &[u8], len: usize) -> Result<Result<ReadBytes, TransportError>, Failure> {
    let reads = reader.reads().ok_or_else(|| Failure::new("it does not read any more"))?;
    if let Err(error) = reads.start(key, len) {
        return Ok(Err(error));
    }
    let mut patience = Patience::new();
    loop {
        match reads.poll() {
            Ok(Some(bytes)) => return Ok(Ok(bytes)),
            Ok(None) => patience.stuck(|| format!("a read of {len} bytes"))?,
            Err(error) => return Ok(Err(error)),
        }
    }
}

fn read_all(lender: &mut dyn Lender, reader: &mut Channel) -> Counted {
    let mut counted = 0;
    let mut before: Option<(ReadBytes, Vec<u8>)> = None;
    for len in LENGTHS {
        let bytes = pattern(len);
        let loan = lend(lender, &bytes)?;
        for part in [len, len.div_ceil(2)] {
            let got = read(reader, loan.key(), part)??;
            ensure!(*got == bytes[..part], "{part} bytes of {len} came as others");
            if let Some((before, expected)) = before.replace((got, bytes[..part].to_vec())) {
                ensure!(*before == expected[..], "bytes changed that were read before");
            }
            counted += 1;
        }
    }
    Ok(counted)
}

fn changed_keys(lender: &mut dyn Lender, reader: &mut Channel) -> Counted {
    let bytes = pattern(4096);
    let loan = lend(lender, &bytes)?;
    let key = loan.key();
    for (what, key, len) in [
        ("no key", &[][..], 1),
        ("a cut key", &key[..key.len().min(9)], 1),
        ("more than was lent", key, 4097),
    ] {
        match read(reader, key, len)? {
            Err(error) if matches!(error.cause(), Cause::Address(_)) => {}
            other => return Err(Failure::new(format!("{what}: {other:?}"))),
        }
    }
    let got = read(reader, key, 4096)??;
    ensure!(*got == bytes[..], "other bytes after keys that were refused");
    Ok(4)
}

fn ended_loan(lender: &mut dyn Lender, reader: &mut Channel) -> Result<(), Failure> {
    let bytes = pattern(4096);
    let key = lend(lender, &bytes)?.key().to_vec();
    match read(reader, &key, 4096)? {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::new("memory was read whose loan had ended")),
    }
}
