//! Settings that change while a server runs.

use crate::resp::{Client, Value};
use crate::server::{Start, on_each, run_ops, until};

#[test]
fn lingering_and_the_limit_of_functions_change_while_the_server_runs() {
    on_each(|program| {
        let server = Start::new(program).args("linger 20").run();
        let mut client = server.client();
        let value = |client: &mut Client, name: &str| {
            let pair = client.say(&format!("CONFIG GET farjump.{name}")).worked();
            pair.elements()[1].text().to_owned()
        };
        assert_eq!((value(&mut client, "linger"), value(&mut client, "limit")), ("20".into(), "1000".into()));
        client.say("CONFIG SET farjump.linger 0 farjump.limit 10").worked();
        assert_eq!((value(&mut client, "linger"), value(&mut client, "limit")), ("0".into(), "10".into()));
        assert_eq!(client.info("farjump", "farjump_linger_us").as_deref(), Some("0"));
        assert_eq!(client.info("farjump", "farjump_limit_ms").as_deref(), Some("10"));
        assert_eq!(run_ops(&server.link(), "spin 50"), ["0"]);
        until("the report of the long function", || server.log().contains("functions (ops of "));
        let refused = client.say("CONFIG SET farjump.linger 1001");
        assert!(matches!(&refused, Value::Error(text) if text.contains("between 0 and 1000")), "{refused:?}");
        assert_eq!(value(&mut client, "linger"), "0");
        drop(server.shut_down());
    });
}

#[test]
fn the_servers_configuration_sets_them_over_the_modules_arguments() {
    on_each(|program| {
        let server = Start::new(program).options("--farjump.limit 77").args("limit 10").run();
        let mut client = server.client();
        assert_eq!(client.info("farjump", "farjump_limit_ms").as_deref(), Some("77"));
        drop(server.shut_down());
    });
}
