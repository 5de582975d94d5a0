//! Loading and unloading, and arguments.

use std::fs;

use crate::resp::Value;
use crate::server::{Start, library, library_file, module, on_each, ops, run_ops, until};
use farjump_fixtures::process::PATIENCE;

#[test]
fn one_file_loads_into_each_server_and_links_get_replies() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        client.say("MSET a b b c c end").worked();
        let reply = server.link().inject(&library("chase"), b"a").unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, [&3_u64.to_le_bytes()[..], b"end"].concat());
        assert_eq!(client.info("farjump", "farjump_listening").as_deref(), Some("1"));
        assert_eq!(client.info("farjump", "farjump_calls").as_deref(), Some("1"));
        assert!(client.info("commandstats", "cmdstat_FJ._RUN").is_some(), "runs are counted by the server");
        let socket = server.path("fj.sock");
        assert!(socket.exists());
        drop(server.shut_down());
        assert!(!socket.exists(), "SHUTDOWN leaves no socket");
    });
}

#[test]
fn wrong_arguments_appear_in_info_log_and_errors_without_ending_the_server() {
    let cases: [(&[&str], &str); 15] = [
        (&[], "no address is given"),
        (&["fj.sock"], "give the address there, as unix:PATH or tcp:HOST:PORT"),
        (&["unix:fj.sock", "lingr", "5"], "lingr is no option of the module: did you mean `linger`?"),
        (&["unix:fj.sock", "linger"], "linger: a value is missing"),
        (&["unix:fj.sock", "linger", "soon"], "`soon` is no duration"),
        (&["unix:fj.sock", "linger", "50"], "write 50us"),
        (&["unix:fj.sock", "linger", "2s"], "linger: 2s is out of range: give 0 to 1ms"),
        (&["unix:fj.sock", "limit", "1s", "limit", "2s"], "limit is given twice"),
        (&["unix:fj.sock", "load", "maybe"], "write no, local or yes"),
        (&["unix:fj.sock", "key-file", "file"], "unix: addresses take no keys"),
        (&["unix:fj.sock", "key", "file"], "key is called `key-file` now"),
        (&["unix:fj.sock", "allow-code", "xyz"], "32 hexadecimal digits"),
        (&["unix:fj.sock", "transport", "pigeon"], "pigeon"),
        (&["unix:/no/such/folder/fj.sock"], "/no/such/folder"),
        (&["unix:fj.sock", "code-key", "/no/such/key"], "/no/such/key"),
    ];
    on_each(|program| {
        for (args, problem) in cases {
            let server = Start::new(program).only(args).run();
            let mut client = server.client();
            let in_info = client.info("farjump", "farjump_problem");
            assert!(in_info.as_ref().is_some_and(|text| text.contains(problem)), "{args:?}: {in_info:?}");
            assert_eq!(client.info("farjump", "farjump_listening").as_deref(), Some("0"), "{args:?}");
            assert!(server.log().contains(problem), "{args:?}: {}", server.log());
            for command in
                ["FJ.LIST", "FJ.STATS", "FJ.LOAD a b", "FJ.CALL a 0", "FJ.CALL_RO a 0", "FJ.DELETE a"]
            {
                let answer = client.say(command);
                let error = answer.error();
                assert!(error.starts_with("NOTARGET ") && error.contains(problem), "{command}: {error}");
            }
            drop(server.shut_down());
        }
    });
}

#[test]
fn the_module_is_unloaded_and_loaded_again_while_the_server_runs() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        let path = module();
        for round in 0..3 {
            let link = server.link();
            assert_eq!(run_ops(&link, "set k v; get k"), ["0", " v0"], "{round}");
            client.say("MODULE UNLOAD farjump").worked();
            assert!(!server.path("fj.sock").exists());
            assert!(client.say("FJ.LIST").error().contains("unknown command"));
            let load = [b"MODULE", &b"LOAD"[..], path.as_os_str().as_encoded_bytes(), b"unix:fj.sock"];
            client.run(&load).worked();
            until("the target to listen", || server.path("fj.sock").exists());
            drop(link);
        }
        assert_eq!(run_ops(&server.link(), "get k"), [" v0"]);
        drop(server.shut_down());
    });
}

#[test]
fn a_second_load_is_refused_and_what_runs_runs_on() {
    on_each(|program| {
        let server = Start::new(program).args("load local limit 77ms").run();
        let mut client = server.client();
        let link = server.link();
        assert_eq!(run_ops(&link, "set k v; get k"), ["0", " v0"]);
        let code = fs::read(library_file("ops")).unwrap();
        client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
        let (list, own) = (client.say("MODULE LIST"), module());
        // Another file of the same module shares only the name with the first.
        let copy = server.path("copy.so");
        fs::copy(&own, &copy).unwrap();
        for (number, path) in [&own, &own, &copy].into_iter().enumerate() {
            let path = path.as_os_str().as_encoded_bytes();
            let loads: [&[&[u8]]; 3] = [
                &[b"MODULE", b"LOAD", path, b"unix:other.sock", b"load", b"no"],
                &[b"MODULE", b"LOAD", path, b"unix:/no/such/folder/fj.sock"],
                &[
                    b"MODULE",
                    b"LOADEX",
                    path,
                    b"CONFIG",
                    b"farjump.limit",
                    b"5ms",
                    b"ARGS",
                    b"unix:other.sock",
                ],
            ];
            for load in loads {
                let refused = client.run(load);
                assert!(refused.error().contains("Error loading the extension"), "{number}: {refused:?}");
            }
            assert!(server.log().contains("the module is loaded already"), "{}", server.log());
            assert_eq!(client.say("MODULE LIST"), list);
            assert!(server.path("fj.sock").exists() && !server.path("other.sock").exists());
            assert_eq!(client.info("farjump", "farjump_listening").as_deref(), Some("1"));
            assert_eq!(client.info("farjump", "farjump_load").as_deref(), Some("local"));
            assert_eq!(client.info("farjump", "farjump_limit").as_deref(), Some("77ms"));
            assert_eq!(client.info("farjump", "farjump_loaded").as_deref(), Some("1"));
            // The link, the code and new links.
            assert_eq!(run_ops(&link, "get k"), [" v0"]);
            assert_eq!(client.run(&[b"FJ.CALL", b"ops", b"0", &ops("args")]), Value::Bulk(b"1\n".into()));
            assert_eq!(run_ops(&server.link(), "get k"), [" v0"]);
        }
        drop(server.shut_down());
    });
}

#[test]
fn commands_of_other_clients_arm_no_idle_target() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        let links: Vec<_> = (0..16).map(|_| server.link()).collect();
        for link in &links {
            assert_eq!(run_ops(link, "type none"), ["0"]);
        }
        let arms = |client: &mut crate::resp::Client| {
            client.info("farjump", "farjump_arms").unwrap().parse::<u64>().unwrap()
        };
        let (mut before, mut quiet) = (arms(&mut client), 0);
        // The target looks twice a second. On a slow machine that happens in many of the rounds, but not in all.
        for _ in 0..200 {
            (0..20).for_each(|_| assert_eq!(client.say("PING"), Value::Status("PONG".to_owned())));
            let now = arms(&mut client);
            quiet += u32::from(now == before);
            before = now;
        }
        assert!(quiet > 0, "each command arms the target");
        drop(links);
        drop(server.shut_down());
    });
}

#[test]
fn a_server_takes_over_the_socket_of_a_killed_one() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        assert_eq!(run_ops(&server.link(), "set k v"), ["0"]);
        let server = server.kill_and_start_again();
        assert_eq!(run_ops(&server.link(), "get k"), [" v0"]);
        assert!(fs::metadata(server.path("fj.sock")).is_ok());
        drop(server.shut_down());
    });
}
