//! Addresses other than a Unix socket, and ways to wait.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use farjump::{Key, Link};

use crate::server::{Start, on_each, run_ops};

#[test]
fn links_come_over_tcp_with_a_key() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        let key = Key::create(&folder.path().join("keys")).unwrap();
        let server = Start::new(program)
            .only(&["tcp:127.0.0.1:0", "key-file", "keys", "transport", "tcp"])
            .run_in(folder);
        let mut client = server.client();
        let address = client.info("farjump", "farjump_address").unwrap();
        assert_ne!(address, "tcp:127.0.0.1:0", "the port is the one that the system chose");
        let link = Link::builder(&address).transport("tcp").key(key).connect().unwrap();
        assert_eq!(run_ops(&link, "set k v; get k"), ["0", " v0"]);
        assert!(Link::builder(&address).transport("tcp").key(Key::draw().unwrap()).connect().is_err());
        assert_eq!(run_ops(&link, "get k"), [" v0"]);
        drop(server.shut_down());
    });
}

#[test]
fn servers_that_linger_or_spin_serve_links_and_clients() {
    on_each(|program| {
        for args in ["linger 50us", "spin", "spin linger 20us"] {
            let server = Start::new(program).args(args).run();
            let (mut client, link) = (server.client(), server.link());
            for round in 0..50 {
                client.say(&format!("SET k {round}")).worked();
                assert_eq!(run_ops(&link, "get k"), [format!(" {round}0")], "{args}");
            }
            let warned = client.info("farjump", "farjump_warning").is_some();
            let spins = client.info("farjump", "farjump_spin").as_deref() == Some("yes");
            assert!(warned || spins == args.contains("spin"), "{args}");
            drop(server.shut_down());
        }
    });
}

#[test]
fn a_client_that_keeps_a_spinning_server_busy_keeps_no_source_out() {
    on_each(|program| {
        let server = Start::new(program).args("spin").run();
        let pipeline = UnixStream::connect(server.path("s")).unwrap();
        // In each turn the server reads 16 KiB of a client. With so much between two sleeps, each turn has one, and the
        // next one has come by the end of the turn.
        let mut requests = Vec::new();
        for word in [&b"DEBUG"[..], b"SLEEP", b"0.004", b"ECHO", &[b'x'; 16 << 10]] {
            let head = if matches!(word, b"DEBUG") {
                "*3\r\n"
            } else if matches!(word, b"ECHO") {
                "*2\r\n"
            } else {
                ""
            };
            requests.extend(format!("{head}${}\r\n", word.len()).into_bytes());
            requests.extend([word, b"\r\n"].concat());
        }
        thread::scope(|scope| {
            let (mut writer, mut reader) = (&pipeline, &pipeline);
            scope.spawn(move || while writer.write_all(&requests).is_ok() {});
            let mut begin = [0];
            reader.read_exact(&mut begin).unwrap();
            scope.spawn(move || io::copy(&mut reader, &mut io::sink()));
            let links = catch_unwind(AssertUnwindSafe(|| {
                let first = server.link();
                assert_eq!(run_ops(&first, "set k v; get k"), ["0", " v0"]);
                // Also with a link.
                assert_eq!(run_ops(&server.link(), "get k"), [" v0"]);
            }));
            pipeline.shutdown(Shutdown::Both).unwrap();
            links.unwrap_or_else(|panic| resume_unwind(panic));
        });
        drop(server.shut_down());
    });
}

#[test]
fn many_links_are_served_at_once_and_each_gets_its_own_replies() {
    on_each(|program| {
        let server = Start::new(program).run();
        let links: Vec<_> = (0..80).map(|_| server.link()).collect();
        for (index, link) in links.iter().enumerate() {
            assert_eq!(run_ops(link, &format!("set k{index} {index}")), ["0"]);
        }
        for (index, link) in links.iter().enumerate().rev() {
            assert_eq!(run_ops(link, &format!("get k{index}")), [format!(" {index}0")]);
        }
        assert_eq!(server.client().info("farjump", "farjump_links").as_deref(), Some("80"));
        drop(links);
        drop(server.shut_down());
    });
}
