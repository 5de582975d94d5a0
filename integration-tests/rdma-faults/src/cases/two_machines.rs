//! Two machines with a cable between them. The other machine's link goes down and comes up again.
//!
//! The other machine runs [`fall`]: a target of each backend, and a listener for orders to take its link down. Each
//! order states a time, because no order to take the link up again could reach that machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Error, Key, Link, LinkBuilder, Target, WaitError};

use crate::endpoints::says;
use crate::helper::library;
use crate::machine::Machine;
use crate::source::{Account, FOREVER, check_replies};
use crate::{Done, cases};

/// The targets listen on the ports behind the one for orders.
const BACKENDS: [&str; 2] = ["verbs-write", "verbs-send"];
/// The key of both machines.
const KEY: [u8; 32] = [5; 32];
/// Time that a machine may be silent on a control connection. The first is longer than any operation here takes.
const PATIENT: Duration = Duration::from_secs(600);
const IMPATIENT: Duration = Duration::from_secs(4);
/// Most times that a link goes down until it does so under a request.
const ROUNDS: usize = 5;
/// The target's words once it can send them.
const CUT: &[&str] = &["it closed the link", "the target cut the link"];
/// The causes in these words: its endpoint, or a frame of which only a part arrived behind its signal before the link
/// ended.
const CAUSES: [&str; 2] = ["rxe0", "the rest of a frame did not follow its signal"];

/// The other machine's address, and its port for orders.
fn there() -> (String, u16) {
    let there = cases::there();
    let (host, port) = there.rsplit_once(':').expect("HOST:PORT");
    (host.to_owned(), port.parse().expect("a port"))
}

/// Plays the other machine, until it is killed.
pub(crate) fn fall(address: &str) {
    let (host, port) = address.rsplit_once(':').expect("HOST:PORT");
    let port: u16 = port.parse().expect("a port");
    let Ok(machine) = Machine::breakable() else { panic!("a link that can be taken down") };
    for (index, backend) in BACKENDS.into_iter().enumerate() {
        let at = format!("tcp:{host}:{}", usize::from(port) + 1 + index);
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let mut word = 0_u64;
            let target = Target::listen(&at).transport(backend).key(Key::from_bytes(KEY)).args(&mut word);
            let mut target = target.peer_timeout(PATIENT).build().unwrap();
            ready.send(()).unwrap();
            target.run().unwrap();
        });
        is_ready.recv().unwrap();
    }
    // The listener is last: once it listens, the targets listen, too.
    let listener = TcpListener::bind(address).unwrap();
    for order in listener.incoming() {
        let mut order = order.unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&order).read_line(&mut line);
        // A peer may only check that this machine listens.
        let Ok(milliseconds) = line.trim().parse() else { continue };
        order.write_all(b"down\n").unwrap();
        drop(order);
        // Lets the acknowledgement through.
        thread::sleep(Duration::from_millis(300));
        let down = machine.down();
        thread::sleep(Duration::from_millis(milliseconds));
        drop(down);
    }
}

/// Orders the other machine to take its link down in a moment, for `down`.
fn order(down: Duration) {
    let (host, port) = there();
    let mut stream = TcpStream::connect((host, port)).unwrap();
    writeln!(stream, "{}", down.as_millis()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

fn link(backend: &str, silence: Duration) -> LinkBuilder {
    let (host, port) = there();
    let index = BACKENDS.iter().position(|name| *name == backend).unwrap();
    let address = format!("tcp:{host}:{}", usize::from(port) + 1 + index);
    let link = Link::builder(&address).transport(backend).key(Key::from_bytes(KEY)).peer_timeout(silence);
    link.connect_timeout(FOREVER).send_timeout(FOREVER)
}

/// Connects to the other machine, which may still be away.
fn connect(backend: &str) -> Link {
    loop {
        match link(backend, PATIENT).connect_timeout(IMPATIENT).connect() {
            Ok(link) => return link,
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Checks that the target has reported why it cut the link.
fn says_cut(why: &str) {
    says(&why, CUT);
    assert!(CAUSES.iter().any(|cause| why.contains(cause)), "it names no cause: {why}");
}

pub(crate) fn down(backend: &str) -> Done {
    let counter = library("counter");
    for _ in 0..ROUNDS {
        let link = connect(backend);
        check_replies(&link, &counter, 4);
        order(Duration::from_secs(15));
        let account = crate::source::stream(&link, &counter, 4, |_| {});
        account.balances(account.replied);
        let error = link.inject(&counter, &[1]).unwrap_err();
        drop(link);
        check_replies(&connect(backend), &counter, 4);
        // If everything that was sent had arrived, and only replies were missing, no request of this machine lacked
        // its acknowledgement.
        if !account.why.contains("it closed the link") {
            says(&account.why, &["transport retry counter exceeded (status 12", "the peer did not answer"]);
            says(&error, &["status 12"]);
            return Ok(());
        }
        says_cut(&account.why);
    }
    panic!("the link went down {ROUNDS} times, each time when nothing was on its way to the other machine");
}

pub(crate) fn down_for_a_while(backend: &str) -> Done {
    let counter = library("counter");
    let link = link(backend, PATIENT).connect().unwrap();
    check_replies(&link, &counter, 4);
    order(Duration::from_secs(2));
    // The peer does not time out meanwhile: it returns, and its endpoint has failed if it had something to send.
    let (end, mut account) = (Instant::now() + Duration::from_secs(6), Account::default());
    while account.lost == 0 && Instant::now() < end {
        match link.inject(&counter, &[2; 1000]) {
            Ok(call) => {
                account.made += 1;
                account.settle(call);
            }
            Err(error) => {
                account.why = error.to_string();
                break;
            }
        }
    }
    account.balances(account.replied);
    match &*account.why {
        "" => check_replies(&link, &counter, 4),
        why => says_cut(why),
    }
    drop(link);
    check_replies(&connect(backend), &counter, 4);
    Ok(())
}

pub(crate) fn down_idle(backend: &str) -> Done {
    let counter = library("counter");
    let link = link(backend, IMPATIENT).connect().unwrap();
    check_replies(&link, &counter, 4);
    order(3 * IMPATIENT);
    // Nothing is sent, so no device waits for an acknowledgement.
    let error = loop {
        match link.progress() {
            Ok(()) => thread::sleep(Duration::from_millis(10)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
    says(&error, &[&format!("did not answer for {} s", IMPATIENT.as_secs())]);
    drop(link);
    check_replies(&connect(backend), &counter, 4);
    Ok(())
}
