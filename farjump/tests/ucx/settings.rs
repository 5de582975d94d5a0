//! UCX's own environment variables: they have their usual effect through farjump.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use crate::helper::{HelperProcess, this_test};
use crate::paths::{Path, am, on_paths};
use crate::support::{PATIENCE, Place, eventually, library, ran};

/// Local addresses of the process's established TCP connections, in the form of proc(5): hexadecimal, with
/// the port.
fn connections(actor: &HelperProcess) -> BTreeSet<String> {
    let folder = format!("/proc/{}", actor.pid().as_raw_nonzero());
    let sockets: BTreeSet<String> = fs::read_dir(format!("{folder}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("{folder}/net/tcp")).unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == "01" && sockets.contains(row[9])).map(|row| row[1].to_owned()).collect()
}

/// Runs `judge` on a target that has replied on a link.
fn talk(path: &Path, place: &Place, judge: impl FnOnce(&HelperProcess)) {
    let target = path.target(place);
    let link = path.link(place).connect().unwrap();
    let reply = link.inject(&library("echo"), &[1; 10_000]).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(reply.len(), 10_000);
    judge(&target);
}

#[test]
fn ucx_tls_and_ucx_net_devices_choose_the_path_of_frames() {
    const OVER_TCP: Path = am("tcp on lo", &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")]);
    const OVER_POSIX: Path = am("posix", &[("UCX_TLS", "posix,self")]);
    const OVER_SYSV: Path = am("sysv", &[("UCX_TLS", "sysv,self")]);
    on_paths(this_test!(), &[OVER_TCP, OVER_POSIX, OVER_SYSV], |path| {
        let version = farjump_ucx_sys::Ucx::open().unwrap().version();
        if path.name == OVER_TCP.name && matches!((version.minor, version.release), (20, 0 | 1)) {
            return println!("skipped: UCX {version} cannot use TCP on lo");
        }
        talk(path, &Place::new(), |target| {
            let (connections, maps) = (connections(target), target.maps());
            let has = |name: &str| maps.iter().any(|line| line.contains(name));
            let found = (!connections.is_empty(), has("ucx_shm_posix"), has("SYSV"));
            assert_eq!(
                found,
                (path.name == OVER_TCP.name, path.name == OVER_POSIX.name, path.name == OVER_SYSV.name)
            );
            // 127.0.0.1, in the form of proc(5).
            assert!(connections.iter().all(|local| local.starts_with("0100007F:")), "{connections:?}");
        });
    });
}

#[test]
fn frames_over_ucx_rndv_thresh_wait_at_their_source() {
    const EAGER: Path = am("frames of 4 KiB at once", &[("UCX_TLS", "posix,self")]);
    const WAITING: Path =
        am("frames of 4 KiB on request", &[("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "1000")]);
    on_paths(this_test!(), &[EAGER, WAITING], |path| {
        let place = Place::new();
        let target = path.target(&place);
        let link = path.link(&place).connect().unwrap();
        assert_eq!(ran(&link), 0);
        let descriptors = target.descriptors();
        let mut source = path.source(&place);
        source.obey("send 10");
        source.obey("flush");
        target.signal(Signal::STOP);
        source.obey("post 4000");
        source.kill();
        target.signal(Signal::CONT);
        eventually(|| target.descriptors() == descriptors);
        assert_eq!(ran(&link), if path.name == EAGER.name { 11 } else { 10 });
    });
}
