//! What runs in the machines. To have more tested, add a line.
//!
//! A line is a script for `sh -e`. It passes if it ends with 0, and is skipped if it ends with 77 and prints a line
//! `skipped: REASON`. `/job/programs` is in `PATH`; `HERE` and `THERE` are the addresses of this machine and of the
//! other one, which is this one where there is none; `FARJUMP_DEVICE` names the device.

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

/// UCX over the device alone. The datagrams with which UCX 1.13 begins get lost with other GIDs than the first.
const UCX: &str = "UCX_TLS=rc_v,ud_v,self UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0";

/// What the conformance suite moves. An emulated machine is a hundred times slower, and waits for its own threads besides.
const CONFORMANCE: &str = "CONFORMANCE_VOLUME=2000 CONFORMANCE_LIMIT=120";

/// What one machine does alone.
const ALONE: [(&str, &str, u32); 9] = [
    ("the device is there", "ibv_devinfo -d rxe0 && ibv_devinfo -d rxe0 | grep PORT_ACTIVE", 30),
    (
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -d rxe0 -g 1 -n 100 & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -n 100 $HERE; wait $!",
        60,
    ),
    (
        "ib_write_lat",
        "ib_write_lat -d rxe0 -x 1 -F -n 500 >/dev/null & sleep 2; ib_write_lat -d rxe0 -x 1 -F -n 500 $HERE; wait $!",
        60,
    ),
    ("conformance, shm", "conformance shm", 300),
    ("conformance, ucx-put over the device", "$OVER_UCX conformance ucx-put", 300),
    ("conformance, ucx-am over the device", "$OVER_UCX conformance ucx-am", 300),
    ("conformance, verbs-write", "conformance verbs-write", 300),
    ("conformance, verbs-send", "conformance verbs-send", 300),
    ("transports are told", "farjump transports", 60),
];

/// What two machines do: in the one that asks, in the one that serves, and the port there.
const PAIR: [(&str, &str, &str, u16, u32); 3] = [
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
];

/// Variables of all of them.
pub(super) fn environment() -> String {
    format!(
        "export FARJUMP_DEVICE=rxe0:1 CONFORMANCE_LIBRARIES=/job/libraries {CONFORMANCE}\nexport OVER_UCX='env {UCX}'\n"
    )
}

/// What one machine does alone.
pub(super) fn alone() -> Vec<Command> {
    let command = |&(name, script, limit): &(&str, &str, u32)| Command {
        name: name.to_owned(),
        script: script.to_owned(),
        serving: None,
        limit,
    };
    ALONE.iter().map(command).collect()
}

/// What two machines do.
pub(super) fn pair() -> Vec<Command> {
    let command = |&(name, script, serving, port, limit): &(&str, &str, &str, u16, u32)| Command {
        name: name.to_owned(),
        script: script.to_owned(),
        serving: Some((serving.to_owned(), port)),
        limit,
    };
    PAIR.iter().map(command).collect()
}
