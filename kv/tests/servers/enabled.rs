//! The script that makes Debian's service load the module. No systemd runs here: a stand-in does the script's requests,
//! and starts the server with the file that the script has written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use farjump_fixtures::process::Process;

use crate::server::{library_file, module, on_each, until};

/// Starts the server on `restart`, as the unit does except for the folders, and notes its arguments. The server ends by
/// itself if the test is ended.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >>"$FARJUMP_ROOT/asked"
[ "$1" = restart ] || exit 0
[ ! -f "$FARJUMP_ROOT/pid" ] || { kill "$(cat "$FARJUMP_ROOT/pid")"; timeout 30 tail -s 0.02 -f --pid "$(cat "$FARJUMP_ROOT/pid")" /dev/null; }
timeout 170 "$SERVER" "$FARJUMP_ROOT/etc/$NAME/$NAME.conf" --daemonize no --pidfile "$FARJUMP_ROOT/pid" --dir "$FARJUMP_ROOT" >/dev/null 2>&1 &
"#;

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Ends the server when dropped.
struct Stopped<'a>(&'a Path);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.0.join("pid")).unwrap_or_default();
        if !pid.trim().is_empty() {
            Process::start(Command::new("kill").args(["-9", pid.trim()])).finish();
        }
    }
}

#[test]
fn a_script_has_debians_service_load_the_module_and_takes_it_back() {
    on_each(|program| {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let name = if file.contains("valkey") { "valkey" } else { "redis" };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let cli = std::env::split_paths(&path).map(|folder| folder.join("redis-cli"));
        let Some(cli) = cli.into_iter().find(|cli| cli.is_file()) else {
            println!("skipped: there is no redis-cli in PATH: install redis-tools");
            return;
        };
        let folder = farjump_fixtures::folder();
        let root = folder.path();
        let _stopped = Stopped(root);
        for made in ["bin", "lib", &format!("etc/{name}"), &format!("run/{name}")] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        fs::copy(module(), root.join("lib/farjump-kv.so")).unwrap();
        write_program(&root.join("bin/systemctl"), SYSTEMCTL);
        std::os::unix::fs::symlink(&cli, root.join("bin/valkey-cli")).unwrap();
        let (settings, socket) = (root.join(format!("etc/{name}/{name}.conf")), root.join("s"));
        let before = format!("port 0\nunixsocket \"{}\"\nsave \"\"\n", socket.display());
        fs::write(&settings, &before).unwrap();
        let run = |prefix: &str| -> Output {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/debian/enable.sh");
            let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap());
            let mut command = Command::new("sh");
            command.args([script, prefix, &format!("{name}-server")]).env("PATH", path);
            command.env("FARJUMP_ROOT", root).env("SERVER", program).env("NAME", name);
            command.env("FARJUMP_SOCKET", &socket);
            if let Some(libraries) = crate::server::libraries(program) {
                command.env("LD_LIBRARY_PATH", libraries);
            }
            command.output().unwrap()
        };
        // Again, as after an update.
        for _ in 0..2 {
            let done = run(&root.display().to_string());
            let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            assert!(done.status.success() && out.contains("farjump_listening:1"), "{out}{err}");
        }
        let text = fs::read_to_string(&settings).unwrap();
        assert_eq!(text.matches("loadmodule").count(), 1, "{text}");
        let drop_in = root.join(format!("etc/systemd/system/{name}-server.service.d/farjump.conf"));
        assert_eq!(fs::read_to_string(&drop_in).unwrap(), "[Service]\nMemoryDenyWriteExecute=no\n");
        assert!(fs::read_to_string(root.join("asked")).unwrap().contains("daemon-reload"));
        // The next step of the page: a client loads a function and calls it.
        let mut client = crate::resp::Client::connect(&socket).unwrap();
        client.run(&[b"FJ.LOAD", b"chase", &fs::read(library_file("chase")).unwrap()]).worked();
        client.say("MSET a b b c c end").worked();
        assert_eq!(
            client.say("FJ.CALL chase 1 a"),
            crate::resp::Value::Bulk(b"\x03\0\0\0\0\0\0\0end".into())
        );
        let undone = run("--undo");
        assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
        assert_eq!(fs::read_to_string(&settings).unwrap(), before);
        assert!(!drop_in.exists());
        until("the server to run without the module", || {
            crate::resp::Client::connect(&socket)
                .is_some_and(|mut client| client.info("farjump", "farjump_listening").is_none())
        });
        // A module that does not listen is no success.
        fs::remove_dir(root.join(format!("run/{name}"))).unwrap();
        let failed = run(&root.display().to_string());
        assert!(!failed.status.success());
        assert!(String::from_utf8_lossy(&failed.stdout).contains("farjump_problem:"));
        let missing = run("/nowhere");
        assert!(!missing.status.success());
        assert!(String::from_utf8_lossy(&missing.stderr).contains("cargo xtask install --kv"));
    });
}
