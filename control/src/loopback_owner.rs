//! The effective user of the process at the other end of a loopback connection. `SO_PEERCRED` covers only
//! Unix sockets; for TCP, `/proc/net/tcp` (proc(5)) lists both endpoints if both are on one machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::peer_identity::known;

/// State of an established connection that neither process has closed.
const ESTABLISHED: &str = "01";

/// Returns the user id of the process whose socket is bound to `end` and connected to `other`. Returns `None`
/// in three cases. There is no such connection. It is not accepted yet, or closed already: the table names
/// the user only while a process has the socket. Or the system does not know the user here.
pub(crate) fn owner(end: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    // Of this thread: others may be in other network namespaces. A v4 connection is in the v6 table if its
    // socket serves both. Tables change while they are read in pieces; the second reading finds missed lines.
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    for table in tables.into_iter().chain(tables) {
        let file = match File::open(table) {
            Ok(file) => file,
            // A system without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines() {
            if let Some(uid) = owner_in(&line?, end, other) {
                return Ok(known(uid));
            }
        }
    }
    Ok(None)
}

/// Returns the user id in a table line for the connection from `end` to `other`, if a process has it.
fn owner_in(line: &str, end: SocketAddr, other: SocketAddr) -> Option<u32> {
    // sl, local address, remote address, state, queues, timer, retransmissions, uid, timeout, inode
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, ESTABLISHED, _, _, _, uid, _, inode] = fields[..] else { return None };
    let same = |text, given: SocketAddr| {
        parse(text).is_some_and(|(ip, port)| ip == given.ip().to_canonical() && port == given.port())
    };
    (inode != "0" && same(local, end) && same(remote, other)).then(|| uid.parse().ok())?
}

/// Parses an address of the table: words of 32 bits in hexadecimal, each in native byte order, and a port.
fn parse(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(words.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_owner_of_each_end_is_known_while_a_process_has_it() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                eprintln!("skipped: {host}: no such address here");
                continue;
            };
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (near, far) = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
            let own = crate::peer_identity::own_user();
            assert_eq!(owner(far, near).unwrap(), None, "nobody has accepted it");
            let (theirs, _) = listener.accept().unwrap();
            assert_eq!((owner(far, near).unwrap(), owner(near, far).unwrap()), (own, own));
            drop(ours);
            assert_eq!(owner(near, far).unwrap(), None, "nobody has it any more");
            drop(theirs);
        }
    }

    #[test]
    fn only_the_line_of_the_established_connection_names_its_owner() {
        let (end, other) = ("127.0.0.1:4660".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let ip = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let line = |local: &str, remote: &str, state: &str, inode: &str| {
            format!(
                " 1: {ip}:{local} {ip}:{remote} {state} 00000000:00000000 00:00000000 00000000  1000  0 {inode} 1 0"
            )
        };
        assert_eq!(owner_in(&line("1234", "0050", "01", "77"), end, other), Some(1000));
        for other_line in [
            line("1234", "0050", "01", "0"),
            line("1234", "0050", "06", "77"),
            line("1234", "0050", "08", "77"),
            line("0050", "1234", "01", "77"),
            line("1235", "0050", "01", "77"),
            "  sl  local_address rem_address   st tx_queue".to_owned(),
            String::new(),
        ] {
            assert_eq!(owner_in(&other_line, end, other), None, "{other_line}");
        }
    }
}
