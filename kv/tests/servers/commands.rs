//! The commands.

use std::fs;

use crate::resp::Value;
use crate::server::{Start, library_file, on_each};

#[test]
fn the_internal_command_is_for_the_module_alone() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        assert!(client.say("FJ._RUN x").error().contains("for the module itself"));
        client.say("MULTI").worked();
        client.say("FJ._RUN x").worked();
        assert!(client.say("EXEC").elements()[0].error().contains("for the module itself"));
        drop(server.shut_down());
    });
}

#[test]
fn keys_of_calls_are_known_to_the_server() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        let keys = client.say("COMMAND GETKEYS FJ.CALL name 2 k1 k2 arg");
        assert_eq!(keys.elements(), [Value::Bulk(b"k1".into()), Value::Bulk(b"k2".into())]);
        client.say("ACL SETUSER app on nopass ~app:* +@all").worked();
        for (command, allowed) in
            [("FJ.CALL n 1 app:k", true), ("FJ.CALL n 2 app:k other:k", false), ("FJ.CALL_RO n 1 o", false)]
        {
            let dry = client.say(&format!("ACL DRYRUN app {command}"));
            assert_eq!(dry == Value::Status("OK".to_owned()), allowed, "{command}: {dry:?}");
        }
        for wrong in ["FJ.CALL n x", "FJ.CALL n -1", "FJ.CALL n 2 k", "FJ.CALL_RO n 18446744073709551615"] {
            assert!(matches!(client.say(wrong), Value::Error(_)), "{wrong}");
        }
        assert!(client.say("FJ.CALL none 0").error().starts_with("NOCODE "));
        assert!(client.info("errorstats", "errorstat_NOCODE").is_some());
        drop(server.shut_down());
    });
}

#[test]
fn code_is_loaded_where_the_module_lets_it() {
    let code = fs::read(library_file("chase")).unwrap();
    on_each(|program| {
        let server = Start::new(program).run();
        let error = server.client().run(&[b"FJ.LOAD", b"chase", &code]);
        assert!(error.error().contains("`load no`"), "{error:?}");
        drop(server.shut_down());
        for load in ["local", "yes"] {
            let server = Start::new(program).args(&format!("load {load}")).run();
            let mut client = server.client();
            let loaded = client.run(&[b"FJ.LOAD", b"a name", &code]).worked();
            assert_eq!(loaded.elements()[0].text().len(), 32);
            assert!(loaded.elements()[1].text().contains("in memory until the server ends"));
            assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(b"a name".into())]);
            assert_eq!(client.say("FJ.STATS").elements().len(), 1);
            assert_eq!(client.run(&[b"FJ.DELETE", b"a name"]), Value::Integer(1));
            assert_eq!(client.run(&[b"FJ.DELETE", b"a name"]), Value::Integer(0));
            assert!(client.run(&[b"FJ.LOAD", b"x", b"no library"]).error().contains("farjump build"));
            assert!(
                client.run(&[b"FJ.LOAD", b"x", &code[..code.len() / 2]]).error().contains("farjump build")
            );
            assert_eq!(client.say("DBSIZE"), Value::Integer(0), "nothing is in the keyspace");
            drop(server.shut_down());
        }
    });
}

#[test]
fn code_in_a_key_is_sealed() {
    let code = fs::read(library_file("chase")).unwrap();
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        fs::write(folder.path().join("seal"), b"a key of more than sixteen bytes").unwrap();
        let options = "--appendonly yes --appendfsync always";
        let server = Start::new(program).options(options).args("load yes code-key seal").run_in(folder);
        let mut client = server.client();
        let loaded = client.run(&[b"FJ.LOAD", b"chase", &code]).worked();
        assert!(loaded.elements()[1].text().contains("farjump:code"));
        let server = server.kill_and_start_again();
        let mut client = server.client();
        assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(b"chase".into())]);
        let known = client.say("FJ.CALL chase 1 none");
        assert!(
            !matches!(&known, Value::Error(text) if text.starts_with("NOCODE") || text.starts_with("BADCODE")),
            "{known:?}"
        );
        // A client that may write keys cannot load code by writing them.
        client.run(&[b"HSET", b"farjump:code", b"c:forged", &code, b"s:forged", &[7; 40]]).worked();
        client.run(&[b"HSET", b"farjump:code", b"c:bare", &code]).worked();
        let seal = client.say("HGET farjump:code s:chase");
        let Value::Bulk(seal) = seal else { panic!("{seal:?}") };
        client.run(&[b"HSET", b"farjump:code", b"c:moved", &code, b"s:moved", &seal]).worked();
        for name in ["forged", "bare", "moved"] {
            let error = client.say(&format!("FJ.CALL {name} 0"));
            assert!(error.error().starts_with("BADCODE "), "{name}: {error:?}");
        }
        drop(server.shut_down());
    });
}
