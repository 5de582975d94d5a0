//! A peer whose UCX drops all messages: its worker has no active messages, so UCX has no handler for any of them. UCX
//! reports no error in either process.

use std::time::{Duration, Instant};

use farjump_core::transport::{Address, UnconnectedEndpoint};
use farjump_fixtures::helper_process::{passed, test_in_role};
use farjump_ucx_sys::UCP_FEATURE_TAG;

use super::*;
use crate::ucx::address::{AmAddress, EndpointAddress};
use crate::ucx::context::Context;
use crate::ucx::worker::Worker as UcxWorker;

/// UCX's transports for messages.
const TRANSPORTS: [&str; 3] = ["posix,self", "sysv,self", "tcp,self"];
/// Frames that UCX drops while there is credit.
const SENT: usize = 200;
/// Time in which no reply and no error comes.
const SHORT: Duration = Duration::from_millis(500);
/// Most lines about dropped messages in UCX's log: one at each doubling, and two about farjump's other messages.
const DROPS_REPORTED: usize = 9;

/// Sends to a worker that drops all, until there is no credit.
fn send_to_a_deaf_worker(tcp: bool) {
    let context = Box::leak(Box::new(Context::make(UCP_FEATURE_TAG, &[], true).unwrap()));
    let deaf = UcxWorker::create(context).unwrap();
    let own = UnconnectedAm::open(&OpenRequest::new(1 << 16, 1 << 16), tcp).unwrap();
    let version = context.ucx.version();
    let address = AmAddress::from_bytes(&own.address().bytes, version).unwrap();
    let address = AmAddress { worker: deaf.address().unwrap(), ..address };
    let bytes = address.to_bytes(version).unwrap();
    let mut post = own.join(Address { bytes, descriptors: Vec::new(), stream: None }).unwrap();
    let turn = |post: &mut AmMessages| {
        deaf.progress();
        assert!(post.poll().unwrap().is_none());
    };
    for _ in 0..SENT {
        send(&mut post, LINE, 7).unwrap();
        turn(&mut post);
    }
    let error = loop {
        match send(&mut post, 1 << 14, 7) {
            Ok(()) => turn(&mut post),
            Err(error) => break error,
        }
    };
    assert_eq!(error.cause(), &Cause::Full);
    let began = Instant::now();
    while began.elapsed() < SHORT {
        turn(&mut post);
    }
    assert_eq!(send(&mut post, 1 << 14, 7).unwrap_err().cause(), &Cause::Full);
}

#[test]
fn sends_find_no_credit_and_logs_stay_short_when_ucx_drops_all() {
    if let [transports] = &*role() {
        return send_to_a_deaf_worker(transports.starts_with("tcp"));
    }
    for transports in TRANSPORTS {
        let am = if transports.starts_with("tcp") { Am::with_tcp() } else { Am::new() };
        if let Err(why) = am.usable() {
            println!("skipped: {transports}: {why}");
            continue;
        }
        let mut command = test_in_role(this_test!(), &[transports]);
        let done = passed(command.env("UCX_TLS", transports).env("UCX_LOG_LEVEL", "warn"));
        let said = format!("{}{}", done.text(), done.err);
        let lines = said.lines().filter(|line| line.contains("UCX  WARN") || line.contains("UCX  ERROR"));
        let lines: Vec<_> = lines.collect();
        let dropped = lines.iter().filter(|line| line.contains("got active message id")).count();
        assert!(
            (1..=DROPS_REPORTED).contains(&dropped) && lines.len() < 2 * DROPS_REPORTED,
            "{dropped} of {lines:#?}"
        );
        assert!(!said.contains("payload ") && !said.contains("ucs_log_print_backtrace"), "{said}");
    }
}
