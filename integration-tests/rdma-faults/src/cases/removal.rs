//! Devices that are removed under links, and come back.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use farjump_transports::verbs::{Send, Write};
use rustix::process::Signal;

use crate::endpoints::says;
use crate::helper::library;
use crate::machine::{Machine, comes_true, run};
use crate::source::{Account, LENGTHS, check_replies, link};
use crate::target::Played;
use crate::{Done, Skip};

/// Time that Linux may take to release an unused interface or device. For an interface it logs the event that it
/// waits for every ten seconds.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Linux's log message.
const WAITING: &str = "unregister_netdevice: waiting for";

pub(crate) fn interface(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let counter = library("counter");
    let mut target = Played::start(backend);
    let mut link = link(backend, &target.address).connect().unwrap();
    check_replies(&link, &counter, 8);
    target.process.signal(Signal::STOP);
    let mut account = Account::default();
    let calls: Vec<_> =
        LENGTHS.iter().take(3).map(|len| link.inject(&counter, &vec![1; *len]).unwrap()).collect();
    account.made = calls.len() as u64;
    let (removed, mut command) = machine.remove_interface()?;
    calls.into_iter().for_each(|call| account.settle(call));
    assert_eq!(account.lost, 3, "{account:?}");
    says(&account.why, &[&machine.device]);
    target.process.signal(Signal::CONT);
    target.gone();
    let error = link.reconnect().unwrap_err();
    says(&error, &["opening an endpoint"]);
    // The system waits until no process has the device open.
    drop(link);
    target.process.kill();
    assert!(comes_true(RELEASE_TIMEOUT, || open_nodes() == 0), "this process still has the device open");
    if !ends_well(&mut command, RELEASE_TIMEOUT) {
        let parts = run("dmesg", &[]);
        assert!(parts.contains(WAITING), "the interface does not go, and Linux does not say that it waits");
        // Dropping this would wait for ever.
        std::mem::forget(removed);
        return Err(Skip(format!(
            "all ended as claimed; then Linux did not let go of the interface, which nobody used any more ({WAITING} {}): links on a \
             new one were not tried",
            machine.interface
        )));
    }
    // Soft-RoCE unregisters its device after the command. On a busy machine that took three minutes.
    if !machine.is_without_device(RELEASE_TIMEOUT) {
        std::mem::forget(removed);
        return Err(Skip(format!(
            "all ended as claimed; then Linux kept {}, which nothing had open, for over {RELEASE_TIMEOUT:?}: links on a new one were not \
             tried",
            machine.device
        )));
    }
    drop(removed);
    target.again();
    let link = crate::source::link(backend, &target.address).connect().unwrap();
    check_replies(&link, &counter, 8);
    Ok(())
}

/// Number of RDMA devices' nodes that this process has open.
fn open_nodes() -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|to| to.starts_with("/dev/infiniband")).count()
}

/// Waits until the command has ended, at most `limit`.
///
/// # Panics
/// If it fails.
fn ends_well(command: &mut Child, limit: Duration) -> bool {
    comes_true(limit, || {
        command.try_wait().unwrap().is_some_and(|status| {
            assert!(status.success(), "{status}");
            true
        })
    })
}

pub(crate) fn device(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let counter = library("counter");
    let mut target = Played::start(backend);
    let first = link(backend, &target.address).connect().unwrap();
    check_replies(&first, &counter, 8);
    let (removed, mut command) = machine.remove_device();
    // Soft-RoCE waits until all processes have closed the device: open links work until then.
    thread::sleep(Duration::from_millis(300));
    check_replies(&first, &counter, 8);
    assert!(command.try_wait().unwrap().is_none(), "the device went while links held it");
    drop(first);
    target.process.kill();
    assert!(command.wait().unwrap().success());
    let usable =
        if backend == farjump_transports::verbs::write::NAME { Write::usable() } else { Send::usable() };
    says(&usable.unwrap_err(), &["no RDMA device", "rdma link add"]);
    drop(removed);
    target.again();
    let link = link(backend, &target.address).connect().unwrap();
    check_replies(&link, &counter, 8);
    Ok(())
}
