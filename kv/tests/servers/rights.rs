//! Users of the server, as which functions run.

use farjump::{Keys, Link};
use farjump_fixtures::process::PATIENCE;

use crate::resp::Value;
use crate::server::{Start, library, on_each, ops, run_ops, until};

#[test]
fn links_act_as_the_user_that_the_module_names() {
    on_each(|program| {
        let server = Start::new(program).args("user app").run();
        let mut client = server.client();
        client.say("MSET app:k v other:k v").worked();
        client.say("ZADD app:z 1 m").worked();
        let link = server.link();
        let text = run_ops(&link, "get app:k; error");
        assert_eq!(text[0], "-2");
        assert!(text[1].contains("no user \"app\"") && text[1].contains("ACL SETUSER"), "{text:?}");
        client.say("ACL SETUSER app on ~app:* %R~ro:* +@all -flushall").worked();
        assert_eq!(
            run_ops(&link, "get app:k; get other:k; set app:n v; set other:n v"),
            [" v0", "-2", "0", "-2"]
        );
        client.say("SET ro:k v").worked();
        assert_eq!(run_ops(&link, "get ro:k; set ro:k w; del ro:k"), [" v0", "-2", "-2"]);
        assert_eq!(
            run_ops(&link, "command get other:k; command get app:k; command flushall async"),
            ["-2", "0 v0", "-2"]
        );
        assert_eq!(run_ops(&link, "zrange other:z 0 1 0; zrange app:z 0 9 0; znext"), ["-2", "0", " m 10"]);
        let text = &run_ops(&link, "get other:k; error")[1];
        assert!(text.contains("the user \"app\" may not run get \"other:k\""), "{text}");
        // The check does not look for missing arguments.
        assert_eq!(
            run_ops(&link, "command eval x; command sort; command dbsize; command zunionstore d"),
            ["-9", "-9", "2 50", "-9"]
        );
        client.say("ACL SETUSER app -@all +get").worked();
        assert_eq!(
            run_ops(&link, "get app:k; set app:k v; zscore app:z m; type app:k"),
            [" v0", "-2", "-2", "-2"]
        );
        client.say("ACL SETUSER app off").worked();
        let off = run_ops(&link, "get app:k; set app:k w; command get app:k; error");
        assert_eq!(off[..3], ["-2", "-2", "-2"]);
        assert!(off[3].contains("is off"), "{off:?}");
        client.say("ACL SETUSER app on ~* +@all").worked();
        assert_eq!(run_ops(&link, "get other:k; set other:k w"), [" v0", "0"]);
        client.say("ACL DELUSER app").worked();
        assert_eq!(run_ops(&link, "get app:k"), ["-2"]);
        assert!(server.runs());
        drop(server.shut_down());
    });
}

#[test]
fn rules_hold_for_keys_that_a_command_does_not_name() {
    const SORTS: [&str; 9] = [
        "order app:l by nosort get secret:*",
        "order app:l GET #",
        "sort_ro app:l get app:w:*",
        "SORT_RO app:l By secret:*",
        "order app:l limit 0 1 get secret:*",
        "order app:l store app:get",
        "order app:l store get",
        "sort_ro app:l by nosort limit 0 1",
        "order app:l alpha",
    ];
    on_each(|program| {
        // The same rules apply to a renamed command.
        let server = Start::new(program).options("--rename-command SORT order").args("user app").run();
        let mut client = server.client();
        client.say("MSET secret:7 42 app:w:7 1").worked();
        client.say("RPUSH app:l 7").worked();
        let (link, mut own) = (server.link(), server.client());
        for rules in ["~app:* +@all", "~app:* +@all (~* +get)", "~app:* %R~* +@all", "~* +@all -flushall"] {
            client.say(&format!("ACL SETUSER app reset on >secret {rules}")).worked();
            own.say("AUTH app secret").worked();
            for sort in SORTS {
                let is_let = !matches!(own.say(sort), Value::Error(_));
                let by_function = run_ops(&link, &format!("command {sort}; error"));
                let expected = match (is_let, sort.contains("store")) {
                    (false, _) => "-2",
                    (true, false) => "3 0",
                    (true, true) => "2 10",
                };
                assert_eq!(by_function[0], expected, "{rules}: {sort}: {by_function:?}");
            }
        }
        // Words as the server reads them, up to a zero.
        client.say("ACL SETUSER app reset on ~app:* +@all").worked();
        for sort in ["sort_ro app:l get\0x secret:*", "sort_ro app:l by\0 secret:*"] {
            assert_eq!(run_ops(&link, &format!("command {sort}")), ["-2"]);
        }
        assert!(server.runs());
        drop(server.shut_down());
    });
}

#[test]
fn a_user_with_all_keys_has_not_all_channels() {
    on_each(|program| {
        let server = Start::new(program).args("user app").run();
        let mut client = server.client();
        client.say("ACL SETUSER app on >secret ~* +@all resetchannels &mine:*").worked();
        let (link, mut own, mut heard) = (server.link(), server.client(), server.client());
        own.say("AUTH app secret").worked();
        heard.say("PSUBSCRIBE *").worked();
        for (publish, is_let) in [
            ("publish others no", false),
            ("spublish others no", false),
            ("publish mine:c yes", true),
            ("spublish mine:c yes", true),
        ] {
            assert_eq!(!matches!(own.say(publish), Value::Error(_)), is_let, "{publish}");
            let by_function = run_ops(&link, &format!("command {publish}; error"));
            assert_eq!(by_function[0] != "-2", is_let, "{publish}: {by_function:?}");
            assert!(is_let || by_function[1].contains("the user \"app\" may not run"), "{by_function:?}");
        }
        // Once by the client, and once by the function.
        for _ in 0..2 {
            assert_eq!(heard.reply().map(|told| told.elements()[3].text()).as_deref(), Some("yes"));
        }
        // All keys and commands are permitted.
        assert_eq!(
            run_ops(&link, "set any v; get any; command get any; command dbsize; command flushall; get any"),
            ["0", " v0", "0 v0", "2 10", "0 OK0", "1"]
        );
        client.say("ACL SETUSER app allchannels").worked();
        assert_eq!(run_ops(&link, "command publish others yes"), ["2 10"]);
        drop(server.shut_down());
    });
}

#[test]
fn links_act_as_the_users_that_the_module_names_for_their_keys() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        let file = folder.path().join("keys");
        let keys = ["blue", "red", "green", "other"].map(|name| Keys::add(&file, name, None).unwrap());
        let args = ["tcp:127.0.0.1:0", "key-file", "keys", "transport", "tcp", "user", "rest"];
        let users = ["key-user", "blue", "b", "key-user", "red", "r", "key-user", "green", "nobody"];
        let users = [&users[..], &["key-user", "absent", "b"]].concat();
        let server = Start::new(program).only(&[&args[..], &users[..]].concat()).run_in(folder);
        let mut client = server.client();
        for user in ["b", "r", "rest"] {
            client.say(&format!("ACL SETUSER {user} on ~{user}:* +@all")).worked();
            client.say(&format!("SET {user}:k {user}")).worked();
        }
        let warning = client.info("farjump", "farjump_warning").unwrap();
        assert!(
            warning.contains("key-user absent b") && warning.contains("no key of that name"),
            "{warning}"
        );
        let address = client.info("farjump", "farjump_address").unwrap();
        let links = keys.map(|key| Link::builder(&address).transport("tcp").key(key).connect().unwrap());
        let all = "get b:k; get r:k; get rest:k";
        // Sent together, so that calls of several links run in one turn, each beside calls of others.
        for _ in 0..20 {
            let calls: Vec<_> =
                links.iter().map(|link| link.inject(&library("ops"), &ops(all)).unwrap()).collect();
            let replies = calls.into_iter().map(|call| call.wait(PATIENCE).unwrap());
            let replies: Vec<_> = replies.map(|reply| String::from_utf8_lossy(&reply).into_owned()).collect();
            assert_eq!(replies, [" b0\n-2\n-2\n", "-2\n r0\n-2\n", "-2\n-2\n-2\n", "-2\n-2\n rest0\n"]);
        }
        let told = |link, call: &str| run_ops(link, call)[1].clone();
        assert!(told(&links[0], "set r:k v; error").contains("the user \"b\" may not run"));
        assert!(told(&links[2], "get b:k; error").contains("no user \"nobody\""));
        client.say("ACL SETUSER r off").worked();
        assert!(told(&links[1], "get r:k; error").contains("is off"));
        assert_eq!(run_ops(&links[0], "set b:k v; get b:k"), ["0", " v0"]);
        // A link ends with its key, even if no link calls.
        let file = server.path("keys");
        let text = std::fs::read_to_string(&file).unwrap();
        let kept: Vec<_> = text.lines().filter(|line| !line.contains("blue")).collect();
        assert_eq!(kept.len(), text.lines().count() - 1, "{text}");
        std::fs::write(&file, kept.join("\n") + "\n").unwrap();
        until("the link to end", || server.client().info("farjump", "farjump_links").as_deref() == Some("3"));
        let call = links[0].inject(&library("ops"), &ops("get b:k"));
        assert!(call.and_then(|call| call.wait(PATIENCE)).is_err());
        drop(server.shut_down());
    });
}
