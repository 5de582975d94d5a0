//! Doors other than a Unix socket, and ways to wait.

use farjump::{Key, Link};

use crate::server::{Start, on_each, run_ops};

#[test]
fn links_come_over_tcp_with_a_key() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        let key = Key::create(&folder.path().join("keys")).unwrap();
        let server =
            Start::new(program).only(&["tcp:127.0.0.1:0", "key", "keys", "transport", "tcp"]).run_in(folder);
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
        for args in ["linger 50", "spin", "spin linger 20"] {
            let server = Start::new(program).args(args).run();
            let (mut client, link) = (server.client(), server.link());
            for round in 0..50 {
                client.say(&format!("SET k {round}")).worked();
                assert_eq!(run_ops(&link, "get k"), [format!(" {round}0")], "{args}");
            }
            let warned = client.info("farjump", "farjump_warning").is_some();
            let spins = client.info("farjump", "farjump_spin").as_deref() == Some("1");
            assert!(warned || spins == args.contains("spin"), "{args}");
            drop(server.shut_down());
        }
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
