//! Settings: those that change while a server runs, and those that it shows.

use farjump::Key;
use farjump::config::{Config, Interfaces, TargetConfig};

use crate::resp::Client;
use crate::server::{Start, on_each, run_ops, until};

#[test]
fn lingering_and_the_limit_of_functions_change_while_the_server_runs() {
    on_each(|program| {
        let server = Start::new(program).args("linger 20us").run();
        let mut client = server.client();
        let value = |client: &mut Client, name: &str| {
            let pair = client.say(&format!("CONFIG GET farjump.{name}")).worked();
            pair.elements()[1].text().to_owned()
        };
        assert_eq!((value(&mut client, "linger"), value(&mut client, "limit")), ("20us".into(), "1s".into()));
        client.say("CONFIG SET farjump.linger 0 farjump.limit 10ms").worked();
        assert_eq!((value(&mut client, "linger"), value(&mut client, "limit")), ("0".into(), "10ms".into()));
        assert_eq!(client.info("farjump", "farjump_linger").as_deref(), Some("0"));
        assert_eq!(client.info("farjump", "farjump_limit").as_deref(), Some("10ms"));
        assert_eq!(run_ops(&server.link(), "spin 50"), ["0"]);
        until("the report of the long function", || server.log().contains("functions (ops of "));
        for (wrong, why) in [("1001us", "give 0 to 1ms"), ("20", "write 20us")] {
            let refused = client.say(&format!("CONFIG SET farjump.linger {wrong}"));
            assert!(refused.error().contains(why), "{refused:?}");
        }
        assert_eq!(value(&mut client, "linger"), "0");
        drop(server.shut_down());
    });
}

#[test]
fn the_servers_configuration_sets_them_over_the_modules_arguments() {
    on_each(|program| {
        let server = Start::new(program).options("--farjump.limit 77ms").args("limit 10ms").run();
        let mut client = server.client();
        assert_eq!(client.info("farjump", "farjump_limit").as_deref(), Some("77ms"));
        drop(server.shut_down());
    });
}

#[test]
fn a_server_shows_each_option_of_its_target_as_it_was_given() {
    let id = "edc1169992d9aed8ae348fa14a32de94";
    let given = [
        ("key-file", "keys"),
        ("peer-timeout", "20s"),
        ("clear", "yes"),
        ("allow-code", id),
        ("max-sources", "7"),
        ("mailbox-size", "128K"),
        ("arena-size", "2M"),
        ("transport", "tcp"),
    ];
    let shown = TargetConfig::rows().iter().filter(|row| row.info.shown.contains(Interfaces::MODULE));
    let names: Vec<_> = shown.map(|row| row.info.name).collect();
    let missing = names.iter().filter(|name| given.iter().all(|(given, _)| given != *name));
    assert_eq!(missing.count(), 0, "give each of {names:?} here");
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        Key::create(&folder.path().join("keys")).unwrap();
        let args = given.map(|(name, value)| [name, value]).concat();
        let server = Start::new(program).only(&[&["tcp:127.0.0.1:0"], &args[..]].concat()).run_in(folder);
        let mut client = server.client();
        assert_eq!(client.info("farjump", "farjump_problem"), None);
        for (name, value) in given {
            let field = format!("farjump_{}", name.replace('-', "_"));
            assert_eq!(client.info("farjump", &field).as_deref(), Some(value), "{name}");
        }
        drop(server.shut_down());
    });
}
