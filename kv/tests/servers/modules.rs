//! Other modules in the same server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::resp::Value;
use crate::server::{Start, library_file, on_each, ops, run_ops, until};

/// Builds a shared library of `tests/modules` into a folder.
pub(crate) fn build(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modules").join(format!("{name}.c"));
    let module = folder.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).args([&module, &source]);
    let done = cc.output().expect("there is a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    module
}

#[test]
fn a_call_by_another_module_needs_a_user_and_acts_as_it() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        let caller = build("caller", folder.path());
        let server = Start::new(program)
            .options(&format!("--loadmodule {}", caller.display()))
            .args("load yes")
            .run_in(folder);
        let mut client = server.client();
        let code = fs::read(library_file("ops")).unwrap();
        client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
        client.say("MSET app:k v other:k v").worked();
        client.say("ACL SETUSER app on >secret ~app:* +@all").worked();
        let operations = ops("get app:k; get other:k");
        let call: [&[u8]; 4] = [b"FJ.CALL", b"ops", b"0", &operations];
        let script: [&[u8]; 4] =
            [b"EVAL", b"return redis.call('FJ.CALL', 'ops', 0, ARGV[1])", b"0", &operations];
        for user in ["default", "app"] {
            if user == "app" {
                client.say("AUTH app secret").worked();
            }
            for command in [call, script] {
                let plain = client.run(&[&[&b"CALLER.PLAIN"[..]], &command[..]].concat());
                assert!(plain.error().contains("has no user"), "{user}: {plain:?}");
                let other = if user == "app" { "-2" } else { " v0" };
                let expected = Value::Bulk(format!(" v0\n{other}\n").into());
                assert_eq!(client.run(&[&[&b"CALLER.AS_USER"[..]], &command[..]].concat()), expected);
                assert_eq!(client.run(&command), expected);
            }
        }
        assert!(server.runs());
        drop(server.shut_down());
    });
}

#[test]
fn calls_from_a_primary_or_the_append_only_file_are_refused() {
    on_each(|program| {
        let start = |options: &str| {
            let folder = farjump_fixtures::folder();
            let caller = build("caller", folder.path());
            let options = format!("--loadmodule {} {options}", caller.display());
            Start::new(program).options(&options).args("load yes").run_in(folder)
        };
        let (server, replica) = (start("--appendonly yes --appendfsync always"), start(""));
        let mut client = server.client();
        let port = server.open_port();
        for one in [&server, &replica] {
            one.client().run(&[b"FJ.LOAD", b"ops", &fs::read(library_file("ops")).unwrap()]).worked();
        }
        replica.follow(port);
        let set = ops("set k v");
        client.run(&[b"CALLER.REPLICATE", b"FJ.CALL", b"ops", b"0", &set]).worked();
        client.say("SET after 1").worked();
        let after = Value::Bulk(b"1".into());
        until("the replica to have what came after", || replica.client().say("GET after") == after);
        let server = server.kill_and_start_again();
        for (one, why) in [(&replica, "this call has no user"), (&server, "NOTARGET")] {
            // No client gets such a reply, so the server logs it.
            let log = one.log();
            assert!(log.contains(why), "{log}");
            let mut client = one.client();
            assert_eq!(client.say("GET after"), after);
            assert_eq!(client.say("GET k"), Value::Nil);
        }
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn commands_of_other_modules_run_as_the_functions_user() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        let caller = build("caller", folder.path());
        let options = format!("--loadmodule {}", caller.display());
        let server = Start::new(program).options(&options).args("user app").run_in(folder);
        let mut client = server.client();
        client.say("MSET app:k v other:k v").worked();
        let as_user = "command caller.as_user get app:k; command caller.as_user get other:k; error";
        let runs_as_users = !client.info("server", "redis_version").unwrap().starts_with("7.0.");
        for (rules, other) in [("~* &* +@all", "0 v0"), ("resetkeys ~app:*", "-2")] {
            client.say(&format!("ACL SETUSER app on {rules}")).worked();
            let told = run_ops(&server.link(), as_user);
            match runs_as_users {
                true => assert_eq!(told[..2], ["0 v0", other], "{told:?}"),
                false => {
                    assert!(told[0] == "-8" && told[1] == "-8" && told[2].contains("no user"), "{told:?}")
                }
            }
        }
        assert!(server.runs());
        drop(server.shut_down());
    });
}
