//! What runs in the machines. To have more tested, add a line.
//!
//! A line is a script for `sh -e`. It passes if it ends with 0, and is skipped if it ends with 77 and prints a line
//! `skipped: REASON`. What it can use is in [`SETTING`].

/// The kernels, by series. On the first one RDMA writes of Soft-RoCE land in order, on the second they do not.
pub(super) const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// What stands before every script. `HERE` and `THERE` are the addresses of this machine and of the other one, which is this
/// one where there is none. UCX is given the device alone, and the first GID: the datagrams with which UCX 1.13 begins get
/// lost with the others.
const SETTING: &str = "\
set -e
cd /job
export FARJUMP_DEVICE=rxe0:1
# An emulated machine is a hundred times slower, and shares its processors with its own device.
export CONFORMANCE_LIBRARIES=/job/libraries CONFORMANCE_VOLUME=2000 CONFORMANCE_LIMIT=240
over_ucx() { UCX_TLS=rc_v,ud_v,self UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0 \"$@\"; }
# Runs a program that serves, and goes on when it listens at TCP port $1, or at the socket $1.
serves() {
    port=$(printf ':%04X' \"$1\" 2>/dev/null || true) socket=$1
    shift
    \"$@\" &
    trap 'kill -s KILL $! 2>/dev/null || true' EXIT
    for _ in $(seq 300); do
        { [ -S \"$socket\" ] || grep -q \"$port 0*:0000 0A\" /proc/net/tcp /proc/net/tcp6; } && return 0
        sleep 0.1
    done
    echo \"$1 does not listen at $socket\"
    return 1
}
";

/// On which kernels a line runs, if not everything is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    /// On each.
    Each,
    /// On the one where writes land in disorder: it finds more.
    Disorder,
}

/// What one machine does alone: its name, where, the script, and when it is killed, in seconds.
///
/// The conformance suite has parts: the links of each mode take a minute or two here. `PARTS` says which run as a rule,
/// and is dropped where everything is to run.
const ALONE: [(&str, On, &str, u32); 9] = [
    ("the device is there", On::Each, "ibv_devinfo -d rxe0 | grep PORT_ACTIVE", 30),
    (
        "ibv_rc_pingpong",
        On::Each,
        "serves 18515 ibv_rc_pingpong -d rxe0 -g 1 -n 100; ibv_rc_pingpong -d rxe0 -g 1 -n 100 $HERE; wait $!",
        60,
    ),
    (
        "ib_write_lat",
        On::Each,
        "serves 18515 ib_write_lat -d rxe0 -x 1 -F -n 500; ib_write_lat -d rxe0 -x 1 -F -n 500 $HERE; wait $!",
        60,
    ),
    ("conformance, verbs-write", On::Each, "PARTS channels,cached,in-place; conformance verbs-write", 300),
    ("conformance, verbs-send", On::Each, "PARTS channels,cached; conformance verbs-send", 300),
    ("conformance, ucx-put over the device", On::Disorder, "PARTS cached; over_ucx conformance ucx-put", 600),
    ("conformance, ucx-am over the device", On::Disorder, "PARTS channels; over_ucx conformance ucx-am", 300),
    (
        "serve and inject, ucx-put over the device",
        On::Each,
        "over_ucx serves /tmp/target farjump serve --listen unix:/tmp/target --transport ucx-put --data /bin/busybox
         over_ucx farjump inject --to unix:/tmp/target --transport ucx-put --args busybox --repeat 20 libraries/libgrep.so >reply
         [ -s reply ]",
        60,
    ),
    (
        "serve and inject, ucx-am over the device",
        On::Each,
        "over_ucx serves /tmp/target farjump serve --listen unix:/tmp/target --transport ucx-am --data /bin/busybox
         over_ucx farjump inject --to unix:/tmp/target --transport ucx-am --args busybox --repeat 20 libraries/libgrep.so >reply
         [ -s reply ]",
        60,
    ),
];

/// What two machines do: its name, the script in the one that asks, the one in the one that serves, the TCP port where that
/// listens, and when both are killed, in seconds.
const PAIR: [(&str, &str, &str, u16, u32); 4] = [
    (
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -d rxe0 -g 1 -n 100 $THERE",
        "ibv_rc_pingpong -d rxe0 -g 1 -n 100",
        18515,
        60,
    ),
    (
        "ib_write_lat",
        "ib_write_lat -d rxe0 -x 1 -F -n 200 $THERE",
        "ib_write_lat -d rxe0 -x 1 -F -n 200",
        18515,
        60,
    ),
    (
        "ib_send_lat",
        "ib_send_lat -d rxe0 -x 1 -F -n 200 $THERE",
        "ib_send_lat -d rxe0 -x 1 -F -n 200",
        18515,
        60,
    ),
    (
        "ucx_perftest, puts over the device",
        "over_ucx ucx_perftest $THERE -t ucp_put_lat -s 64 -n 100 -w 10 -v",
        "over_ucx ucx_perftest",
        13337,
        90,
    ),
];

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// Its name in the count of tests.
    pub(super) name: String,
    /// What runs; in the machine that asks, where there are two.
    pub(super) script: String,
    /// What runs in the other machine meanwhile, and the TCP port at which it listens. It is ended when `script` has ended.
    pub(super) serving: Option<(String, u16)>,
    /// When it is killed, in seconds.
    pub(super) limit: u32,
}

impl Command {
    /// A line of a shell that somebody wants to have run.
    pub(super) fn asked(line: &str, limit: u32) -> Command {
        Command { name: line.to_owned(), script: script(line, true), serving: None, limit }
    }
}

/// What one machine does alone with a kernel of this series: the `whole` of it, or what finds most in little time.
pub(super) fn alone(series: &str, whole: bool) -> Vec<Command> {
    let runs = |on: On| whole || on == On::Each || series == KERNELS[1];
    let command = |&(name, _, line, limit): &(&str, On, &str, u32)| Command {
        name: name.to_owned(),
        script: script(line, whole),
        serving: None,
        // The whole suite has five parts.
        limit: if whole { limit * 5 } else { limit },
    };
    ALONE.iter().filter(|(_, on, ..)| runs(*on)).map(command).collect()
}

/// What two machines do.
pub(super) fn pair() -> Vec<Command> {
    let command = |&(name, line, serving, port, limit): &(&str, &str, &str, u16, u32)| Command {
        name: name.to_owned(),
        script: script(line, true),
        serving: Some((script(serving, true), port)),
        limit,
    };
    PAIR.iter().map(command).collect()
}

fn script(line: &str, whole: bool) -> String {
    let parts = if whole { "PARTS() { :; }" } else { "PARTS() { export CONFORMANCE_PARTS=$1; }" };
    format!("{SETTING}{parts}\n{line}\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command as Program;

    use super::*;

    #[test]
    fn every_script_is_one_that_a_shell_understands() {
        let mut commands = [alone(KERNELS[1], false), alone(KERNELS[0], true), pair()].concat();
        commands.push(Command::asked("true", 1));
        for command in commands {
            for script in
                [Some(command.script), command.serving.map(|(script, _)| script)].into_iter().flatten()
            {
                let checked = Program::new("sh").args(["-n", "-c", &script]).output().unwrap();
                assert!(checked.status.success(), "{}: {checked:?}", command.name);
            }
        }
    }

    #[test]
    fn the_whole_has_all_lines_on_each_kernel() {
        assert_eq!(alone(KERNELS[0], true).len(), ALONE.len());
        assert_eq!(alone(KERNELS[1], false).len(), ALONE.len());
        assert!(alone(KERNELS[0], false).len() < ALONE.len());
    }
}
