//! The command line program, beside this one or in the path, on a port that is down.

use std::process::{Command, Stdio};

use crate::endpoints::says;
use crate::helper::libraries;
use crate::machine::Machine;
use crate::source::link;
use crate::target::Played;
use crate::{Done, Skip};

pub(crate) fn down(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let beside = std::env::current_exe().unwrap().with_file_name("farjump");
    if !beside.exists() {
        return Err(Skip(format!("there is no {}", beside.display())));
    }
    let target = Played::start(backend);
    let inject = || {
        let mut command = Command::new(&beside);
        command.args(["inject", "--to", &target.address, "--transport", backend, "--args", "x"]);
        command.arg(libraries().join("libecho.so")).stdin(Stdio::null());
        command.output().unwrap()
    };
    let ended = inject();
    assert!(ended.status.success() && ended.stdout == b"x", "{ended:?}");
    let down = machine.down();
    let ended = inject();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && ended.stdout.is_empty() && said.lines().count() == 1, "{said}");
    says(&said, &["error: ", &machine.device, "is down", "ip link set"]);
    let ended = Command::new(&beside).arg("transports").stdin(Stdio::null()).output().unwrap();
    says(&String::from_utf8_lossy(&ended.stdout), &["is down", "ip link set"]);
    drop(down);
    let ended = inject();
    assert!(ended.status.success() && ended.stdout == b"x", "{ended:?}");
    drop(link(backend, &target.address).connect().unwrap());
    Ok(())
}
