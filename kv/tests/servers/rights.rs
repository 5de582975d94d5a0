//! Users of the server, for whom functions run.

use crate::server::{Start, on_each, run_ops};

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
        // Arguments that are missing are not looked for.
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
