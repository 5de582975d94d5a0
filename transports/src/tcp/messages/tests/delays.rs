//! Two endpoints on a path with delay.

use std::fs::File;
use std::os::fd::AsFd;
use std::thread;

use farjump_fixtures::namespaces::{Namespace as Place, Namespaces};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;

/// Delay of packets in each direction.
const DELAY: Duration = Duration::from_millis(5);
/// Bytes of a message.
const MESSAGE: usize = 4096;
/// Messages: 32 MiB.
const COUNT: u32 = 8192;
const FIRST: u32 = 64 << 10;
const MOST: u32 = 64 << 20;

/// Runs `act` on a thread in one of the namespaces, and returns its result.
fn within<T: Send>(namespaces: &Namespaces, place: Place, act: impl FnOnce() -> T + Send) -> T {
    let file = File::open(namespaces.file(place)).unwrap();
    let entered = move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(entered).join()).unwrap()
}

/// Two connected sockets, one in each namespace.
fn across(namespaces: &Namespaces) -> [OwnedFd; 2] {
    let listener =
        within(namespaces, Place::Right, || TcpListener::bind((Place::Right.address(), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let ours = within(namespaces, Place::Left, || TcpStream::connect(address).unwrap());
    [ours.into(), listener.accept().unwrap().0.into()]
}

#[test]
fn the_window_grows_over_a_delay_and_bounds_bytes_in_flight() {
    let namespaces = match Namespaces::delayed(DELAY) {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("skipped: {why}"),
    };
    let (mut left, mut right) = pair_on(across(&namespaces), Terms { window: FIRST, ..TERMS });
    let deadline = Instant::now() + PATIENCE;
    let (mut sent, mut came, mut windows) = (0, 0, vec![FIRST]);
    while came < COUNT {
        assert!(Instant::now() < deadline, "{came} of {sent} messages came");
        while sent < COUNT {
            match send(&mut left, MESSAGE, sent as u8) {
                Ok(()) => sent += 1,
                Err(error) if error.is_full() => break,
                Err(error) => panic!("{error}"),
            }
            let (consumed, window) = left.parts.windows.send_credit.state();
            let under_way = sent * MESSAGE as u32 - consumed;
            assert!(under_way <= window, "{under_way} B are under way in a window of {window} B");
            if windows.last() != Some(&window) {
                windows.push(window);
            }
        }
        left.progress().unwrap();
        while let Some(bytes) = take(&mut right).unwrap() {
            assert!(bytes.into_iter().eq(bytes_of(MESSAGE, came as u8)), "message {came}");
            came += 1;
        }
    }
    assert!(windows.is_sorted() && windows.iter().all(|window| *window <= MOST), "{windows:?}");
    assert!(windows.last() >= Some(&(8 * FIRST)), "{windows:?}");
}
