//! Reading.

use crate::server::{Start, on_each, run_ops, try_ops};

#[test]
fn functions_read_keys_of_each_type() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        for command in [
            "SET s text",
            "SET n 12345",
            "RPUSH l one two three",
            "HSET h f1 v1 f2 v2",
            "SADD e m1 m2",
            "ZADD z 1 low 2 mid 3 high",
            "XADD x 5-1 a 1 b 2",
            "XADD x 6-1 c 3",
        ] {
            client.say(command).worked();
        }
        let link = server.link();
        let types = run_ops(&link, "type none; type s; type l; type h; type e; type z; type x");
        assert_eq!(types, ["0", "1", "2", "3", "4", "5", "7"]);
        assert_eq!(
            run_ops(&link, "get s; get n; get none; len l; len none"),
            [" text0", " 123450", "1", "30", "1"]
        );
        assert_eq!(run_ops(&link, "hget h f2; hget h none; hget none f"), [" v20", "1", "1"]);
        assert_eq!(run_ops(&link, "lindex l 0; lindex l -1; lindex l 3"), [" one0", " three0", "1"]);
        assert_eq!(run_ops(&link, "zscore z mid; zscore z none"), ["20", "1"]);
        let members = "znext; znext; znext";
        assert_eq!(run_ops(&link, &format!("zrange z 2 9 0; {members}")), ["0", " mid 20", " high 30", "1"]);
        assert_eq!(run_ops(&link, &format!("zrange z 1 2 1; {members}")), ["0", " mid 20", " low 10", "1"]);
        let entries = run_ops(&link, "xrange x 0; xnext; pair; pair; pair; xnext; pair; xnext");
        assert_eq!(entries, ["0", " 5 20", " a 10", " b 20", "1", " 6 10", " c 30", "1"]);
        assert_eq!(run_ops(&link, "xrange x 1; xnext; xnext"), ["0", " 6 10", " 5 20"]);
        let mut fields = run_ops(&link, "fields h; pair; pair; pair");
        fields[1..3].sort();
        assert_eq!(fields, ["0", " f1 v10", " f2 v20", "1"]);
        let mut members = run_ops(&link, "members e; name; name; name");
        members[1..3].sort();
        assert_eq!(members, ["0", " m10", " m20", "1"]);
        for wrong in [
            "get h",
            "hget s f",
            "lindex h 0",
            "zscore h m",
            "zrange l 0 1 0",
            "xrange s 0",
            "fields z",
            "members h",
        ] {
            assert_eq!(run_ops(&link, wrong), ["-1"], "{wrong}");
        }
        drop(server.shut_down());
    });
}

#[test]
fn a_scan_finds_names_by_prefix_and_takes_pattern_bytes_literally() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        for index in 0..500 {
            client.say(&format!("SET user:{index} x")).worked();
            client.say(&format!("SET us*r:{index} x")).worked();
        }
        let link = server.link();
        assert_eq!(run_ops(&link, "scan us*r: 100000; count"), ["0", "5001"]);
        assert_eq!(run_ops(&link, "scan none 100000; name"), ["0", "1"]);
        // A bound of about ten keys returns far fewer than all.
        let some = run_ops(&link, "scan us 10; count");
        let count: usize = some[1].strip_suffix('1').unwrap().parse().unwrap();
        assert!((1..500).contains(&count), "{some:?}");
        drop(server.shut_down());
    });
}

#[test]
fn cursors_end_with_their_call_and_with_a_write() {
    on_each(|program| {
        let server = Start::new(program).run();
        server.client().say("ZADD z 1 low 2 high").worked();
        let link = server.link();
        assert_eq!(run_ops(&link, "zrange z 0 9 0; znext; set k v; znext"), ["0", " low 10", "0", "-7"]);
        assert_eq!(
            run_ops(&link, "zrange z 0 9 0; znext; close; znext; close"),
            ["0", " low 10", "0", "-7", "-7"]
        );
        // The number that the last call kept in its statics is stale.
        assert_eq!(run_ops(&link, "zrange z 0 9 0"), ["0"]);
        assert_eq!(run_ops(&link, "znext; element 0"), ["-7", "-7"]);
        let text = run_ops(&link, "znext; error")[1].clone();
        assert!(text.contains("cursor") && text.contains("open it again"), "{text}");
        // A call that panics with a cursor open leaves none.
        for _ in 0..100 {
            let error = try_ops(&link, "zrange z 0 9 0; zrange z 0 9 0; panic").unwrap_err().to_string();
            assert!(error.contains("asked to"), "{error}");
        }
        assert_eq!(run_ops(&link, "zrange z 0 9 0; znext"), ["0", " low 10"]);
        // A reply ends with the next command.
        let replies = run_ops(&link, "command zrange z 0 -1; element 1; element 2; set k v; element 0");
        assert_eq!(replies, ["3 0", " high0", "1", "0", "-7"]);
        // The server refuses cursors of other kinds, and too many cursors.
        assert_eq!(run_ops(&link, "zrange z 0 9 0; xnext"), ["0", "-9"]);
        let many = vec!["zrange z 0 9 0"; 65].join("; ");
        assert_eq!(run_ops(&link, &many)[63..], ["0", "-10"]);
        drop(server.shut_down());
    });
}

#[test]
fn copies_are_bounded_for_each_call() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        let value = vec![b'v'; 24 << 20];
        client.run(&[b"HSET", b"h", b"f", &value]).worked();
        let link = server.link();
        let len = value.len();
        let reply = try_ops(&link, "hget h f; hget h f; hget h f");
        // The reply itself may be too long for the link. Only the number counts.
        if let Ok(reply) = reply {
            assert!(reply.len() > 2 * len && reply.ends_with("-10\n"), "{}", reply.len());
        }
        assert_eq!(run_ops(&link, "type h; len h"), ["3", "10"]);
        drop(server.shut_down());
    });
}
