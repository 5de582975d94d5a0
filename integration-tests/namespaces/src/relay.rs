//! A cable with delay: a tun device in each namespace, and threads of this process that move packets from one to the
//! other later.
//!
//! The kernel of a container has no netem. The packets are those that TCP passes to a device: up to 64 KiB
//! each, not yet segmented and without checksums.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Most bytes on their way in one direction: a device's queue holds later ones, and drops the rest.
const MAX_IN_FLIGHT: usize = 64 << 20;
/// The longest packet, with the header before it.
const LONGEST: usize = (64 << 10) + 64;
/// Packets taken at a time.
const AT_A_TIME: usize = 64;
/// Time that a thread waits before it checks whether to continue.
const NAP: Duration = Duration::from_millis(100);

/// The threads, which end with this value, and the devices with them.
#[derive(Debug)]
pub(crate) struct Relay {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Makes a device named `device` in each of the namespaces with these files, and passes packets on after
    /// `delay`.
    pub(crate) fn start(namespaces: [&Path; 2], device: &str, delay: Duration) -> Result<Relay, String> {
        let [left, right] = namespaces.map(|namespace| tun(namespace, device));
        let (left, right) = (Arc::new(left?), Arc::new(right?));
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (from, to) in [(left.clone(), right.clone()), (right, left)] {
            let over = over.clone();
            threads.push(thread::spawn(move || pass(&from, &to, delay, &over)));
        }
        Ok(Relay { over, threads })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed a message.
            let _ = thread.join();
        }
    }
}

/// Makes a tun device in a namespace. It exists as long as the file is open.
fn tun(namespace: &Path, device: &str) -> Result<File, String> {
    // In a thread of its own, because the thread stays in the namespace.
    let made = thread::scope(|scope| {
        let make = || -> std::io::Result<File> {
            move_into_link_name_space(File::open(namespace)?.as_fd(), Some(LinkNameSpaceType::Network))?;
            let tun = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/net/tun")?;
            name(&tun, device)?;
            Ok(tun)
        };
        scope.spawn(make).join()
    });
    match made {
        Ok(Ok(tun)) => Ok(tun),
        Ok(Err(error)) => Err(format!("no tun device can be made here: {error}")),
        Err(_) => Err("the thread that makes a tun device panicked".to_owned()),
    }
}

/// Makes the device of this file, for packets with a header each, which need neither segmentation nor
/// checksums.
fn name(tun: &File, device: &str) -> std::io::Result<()> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let offloaded = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: the first call reads and writes `request`; the second takes a number. Both use this file.
    let done = unsafe {
        libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) == 0
            && libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloaded)) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Moves packets from `from` to `to` when they are due, until `over`.
fn pass(mut from: &File, mut to: &File, delay: Duration, over: &AtomicBool) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut bytes = 0;
    let mut space = vec![0; LONGEST];
    while !over.load(Relaxed) {
        let mut taken = 0;
        while taken < AT_A_TIME && bytes < MAX_IN_FLIGHT {
            // A device that is down has no packets, and returns an error.
            let Ok(len) = from.read(&mut space) else { break };
            bytes += len;
            taken += 1;
            under_way.push_back((Instant::now() + delay, space[..len].to_vec()));
        }
        let now = Instant::now();
        while under_way.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, packet)) = under_way.pop_front() else { break };
            bytes -= packet.len();
            // Packets that a device does not take are lost, as on any cable.
            let _ = to.write(&packet);
        }
        if taken == AT_A_TIME {
            continue;
        }
        let due = under_way.front().map_or(NAP, |(due, _)| due.saturating_duration_since(now).min(NAP));
        let wait = Timespec { tv_sec: 0, tv_nsec: due.as_nanos() as i64 };
        let full = bytes >= MAX_IN_FLIGHT;
        let mut devices = [PollFd::new(&from, if full { PollFlags::empty() } else { PollFlags::IN })];
        // Both are checked again, interrupted or not.
        let _ = poll(&mut devices, Some(&wait));
    }
}
