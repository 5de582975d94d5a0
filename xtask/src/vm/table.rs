//! Commands of the machines. To add a test, add a line.
//!
//! A line is a script for `sh -e`. It passes if it ends with 0, and is skipped if it ends with 77 and prints
//! a line `skipped: REASON`. Its variables and functions are in [`SETTING`].

/// The kernels, by series. RDMA writes of Soft-RoCE arrive in order on the first, and out of order on the second.
pub(super) const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Prefix of every script. `HERE` and `THERE` are the addresses of this machine and of the other one; without another
/// machine both are this one's. UCX gets only the device, and only the first GID: with the others, the datagrams with
/// which UCX 1.13 begins are lost.
const SETTING: &str = include_str!("setting.sh");

/// The kernels on which a line runs, unless everything runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    /// On each.
    Each,
    /// The first: the other one has more to run.
    First,
    /// The kernel on which writes arrive out of order: it finds more.
    Disorder,
    /// On none.
    None,
}

/// Name of the line that counts the hot path.
pub(super) const HOT_PATH: &str = "instructions and lines of the hot path";

/// Commands of one machine alone: name, kernels, script, and time limit in seconds.
///
/// `BRIEF` sets variables for the commands behind it, and does nothing if everything runs. Links within one process
/// are left out as a rule: those between processes find the same faults.
const ALONE: &[(&str, On, &str, u32)] = &[
    ("the device is there", On::Each, "ibv_devinfo -d rxe0 | grep PORT_ACTIVE", 30),
    (
        "ibv_rc_pingpong",
        On::Each,
        "serves 18515 ibv_rc_pingpong -d rxe0 -g 1 -n 100; ibv_rc_pingpong -d rxe0 -g 1 -n 100 $HERE; wait $!",
        60,
    ),
    (
        "ib_write_lat",
        On::None,
        "serves 18515 ib_write_lat -d rxe0 -x 1 -F -n 500; ib_write_lat -d rxe0 -x 1 -F -n 500 $HERE; wait $!",
        60,
    ),
    (
        "work requests and completions of messages that are given 16 at a time",
        On::Disorder,
        "farjump perf rate --counter libraries/libcounter.so --transports verbs-write,verbs-send --against raw --batch 16 \
             --iterations 3200 --warmup 160 --rounds 1 --csv >rows 2>errors || { cat errors; exit 1; }
         cat rows
         # Of each row: at most an eighth of a request and a 32nd of a completion for a message.
         awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
             { rows++; requests = $at[\"requests\"]; completions = $at[\"completions\"] }
             requests == \"\" || requests > 1 / 8 || completions == \"\" || completions > 1 / 32 { bad = 1 }
             END { exit bad || rows != 2 }' rows",
        90,
    ),
    (
        "work requests, bytes and completions of messages that are given one by one",
        On::Disorder,
        "farjump perf rate --counter libraries/libcounter.so --transports verbs-write,verbs-send --against raw --sizes 8,32 \
             --iterations 3200 --warmup 160 --rounds 1 --csv >rows 2>errors || { cat errors; exit 1; }
         cat rows
         # Of each row, for a message: one request in one post, the payload and 24 bytes, and a 32nd of a completion. Flushes
         # and returned credit come to less than a tenth of a request and a byte.
         awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
             { rows++; bytes = $at[\"posted_bytes\"]; completions = $at[\"completions\"] }
             $at[\"posts\"] > 1.1 || $at[\"requests\"] > 1.1 || $at[\"requests\"] < 1 { bad = 1 }
             bytes == \"\" || bytes < $at[\"size\"] || bytes > $at[\"size\"] + 25 { bad = 1 }
             completions == \"\" || completions > 1 / 32 { bad = 1 }
             END { exit bad || rows != 4 }' rows",
        90,
    ),
    (
        HOT_PATH,
        On::None,
        "farjump_guard --file hot-path.json --library libraries/libcounter.so --transports verbs-write,verbs-send --rows",
        600,
    ),
    (
        "a receiver that polls the last word of a write sees torn ones",
        On::Disorder,
        "BRIEF WRITES=4000; conformance --tear ${WRITES:-20000} verbs-write",
        300,
    ),
    (
        "no frame is torn",
        On::Disorder,
        "BRIEF FRAMES=20000; conformance --stream ${FRAMES:-1000000} verbs-write",
        1500,
    ),
    (
        "conformance, verbs-write",
        On::Disorder,
        "BRIEF CONFORMANCE_THREADS=no CONFORMANCE_PARTS=channels; conformance verbs-write",
        600,
    ),
    (
        "conformance, verbs-write, fenced",
        On::None,
        "BRIEF CONFORMANCE_PARTS=channels; conformance 'verbs-write, fenced'",
        600,
    ),
    (
        "conformance, verbs-write, checked",
        On::None,
        "BRIEF CONFORMANCE_PARTS=channels; conformance 'verbs-write, checked'",
        600,
    ),
    ("conformance, verbs-send", On::First, "BRIEF CONFORMANCE_THREADS=no CONFORMANCE_PARTS=channels; conformance verbs-send", 600),
    (
        "conformance, ucx-put over the device",
        On::None,
        // Without the channels: UCX 1.13 aborts a process that has both endpoints of a link when one ends
        // (docs/design/vm-test.md).
        "export CONFORMANCE_PARTS=cached,always,in-place,local
         unless_ucx_aborts conformance ucx-put",
        600,
    ),
    (
        "conformance, ucx-am over the device",
        On::None,
        "unless_ucx_aborts conformance ucx-am",
        600,
    ),
    (
        "serve and inject, ucx-put over the device",
        On::First,
        "over_ucx serves /tmp/target farjump serve $PATIENT --listen unix:/tmp/target --transport ucx-put --data /bin/busybox
         unless_ucx_aborts farjump inject --to unix:/tmp/target --transport ucx-put --args busybox --repeat 20 libraries/libgrep.so >reply
         [ -s reply ]",
        60,
    ),
    (
        "serve and inject, ucx-put over the device, with a newer UCX",
        On::Disorder,
        "newer true
         newer serves /tmp/newer farjump serve $PATIENT --listen unix:/tmp/newer --transport ucx-put --data /bin/busybox
         newer farjump inject --to unix:/tmp/newer --transport ucx-put --args busybox --repeat 20 libraries/libgrep.so >reply
         [ -s reply ]
         newer farjump transports --to unix:/tmp/newer --transport ucx-put >shown
         grep 'reliable RDMA over rxe0:1 (rc_verbs)' shown
         grep 'frames are puts that the device carries out' shown",
        90,
    ),
    (
        "conformance, ucx-put over the device, with a newer UCX",
        On::None,
        "BRIEF CONFORMANCE_PARTS=cached CONFORMANCE_THREADS=no; newer conformance ucx-put",
        600,
    ),
    (
        "serve and inject, ucx-am over the device",
        On::Disorder,
        "over_ucx serves /tmp/target farjump serve $PATIENT --listen unix:/tmp/target --transport ucx-am --data /bin/busybox
         unless_ucx_aborts farjump inject --to unix:/tmp/target --transport ucx-am --args busybox --repeat 20 libraries/libgrep.so >reply
         [ -s reply ]",
        60,
    ),
    (
        "demo over verbs",
        On::Disorder,
        "for transport in verbs-write verbs-send; do
             farjump demo /bin/busybox --libraries libraries --transport $transport --listen tcp:127.0.0.1:0 --json >report
             grep \"transport.*$transport\" report
         done",
        120,
    ),
    (
        "serve and inject over verbs",
        On::Disorder,
        "for transport in verbs-write verbs-send; do
             serves /tmp/$transport farjump serve $PATIENT --listen unix:/tmp/$transport --transport $transport --data /bin/busybox
             same_answers --to unix:/tmp/$transport
             same_answers --to unix:/tmp/$transport --transport $transport --mode always
             FARJUMP_DEVICE=nosuch0 same_answers --to unix:/tmp/$transport --transport $transport --device rxe0:1
             farjump transports --to unix:/tmp/$transport | grep 'over  *rxe0:1'
         done",
        180,
    ),
    (
        "the device reads objects out of their owner's memory, verbs",
        On::First,
        "reads_objects 18480 verbs-write
         reads_objects 18481 verbs-send",
        120,
    ),
    (
        "the device reads objects out of their owner's memory, ucx-put",
        On::None,
        "reads_objects 18482 ucx-put over_ucx",
        120,
    ),
    (
        "the device reads objects out of their owner's memory, ucx-put with a newer UCX",
        On::Disorder,
        "newer true
         reads_objects 18483 ucx-put newer",
        120,
    ),
    (
        "the device is listed, with what links use of it",
        On::First,
        "farjump transports --transport verbs-write >shown
         grep 'verbs-write  yes       yes ' shown
         if grep verbs-send shown; then exit 1; fi
         for line in 'device     rxe0:1, which is used' 'state      active, Ethernet' \"1: $HERE (RoCE v2), which is used\" \\
             'opened at  /dev/infiniband/uverbs0' 'packets    of up to 1024 bytes, in partition 0xffff'; do
             grep \"$line\" shown
         done
         FARJUMP_VERBS=gid=0 farjump transports | grep '0: fe80:.*which is used'
         farjump transports --json | grep '\"packet_bytes\": 1024'
         farjump doctor >shown
         grep 'ok  *libibverbs  */.*libibverbs.so.1' shown
         grep 'ok  *RDMA devices  *rxe0:1 active, Ethernet' shown
         farjump doctor --json | grep '\"usable_ports\": 1'",
        60,
    ),
    (
        "a target advertises the address that its port has now, and not the one it had when it started",
        On::First,
        "interface=$(cat /sys/class/infiniband/rxe0/parent)
         serves /tmp/target farjump serve $PATIENT --listen unix:/tmp/target --transport verbs-write --data /bin/busybox
         same_answers --to unix:/tmp/target --transport verbs-write
         ip addr del \"$HERE/24\" dev \"$interface\"
         ip addr add 10.77.0.9/24 dev \"$interface\"
         for _ in $(seq 100); do grep -q 0a4d:0009 /sys/class/infiniband/rxe0/ports/1/gids/* && break; sleep 0.1; done
         same_answers --to unix:/tmp/target --transport verbs-write
         farjump transports --to unix:/tmp/target | grep 10.77.0.9
         ip addr del 10.77.0.9/24 dev \"$interface\"
         ip addr add \"$HERE/24\" dev \"$interface\"
         for _ in $(seq 100); do grep -q 0a09:0001 /sys/class/infiniband/rxe0/ports/1/gids/* && break; sleep 0.1; done
         same_answers --to unix:/tmp/target --transport verbs-write",
        180,
    ),
    (
        "a device, port, GID or partition that is not there is refused with those that are",
        On::First,
        "try() { refuses \"$1\" farjump serve --listen unix:/tmp/none --transport verbs-write --device \"$2\"; }
         try 'no RDMA device nosuch0: it has rxe0' nosuch0
         try 'rxe0 has no port 9: it has one, rxe0:1' rxe0:9
         export FARJUMP_VERBS=gid=9
         try \"no GID 9 (gid=9 in FARJUMP_VERBS): it has GID 0 .*, GID 1 $HERE (RoCE v2)\" rxe0
         export FARJUMP_VERBS=gid=192.0.2.1
         try \"no GID of RoCE v2 with 192.0.2.1 .*: it has GID 0 .*, GID 1 $HERE (RoCE v2)\" rxe0
         export FARJUMP_VERBS=pkey=13
         try 'no partition 0x0013 (pkey=13 in FARJUMP_VERBS): it is in 0xffff' rxe0
         export FARJUMP_VERBS=retries=7
         try 'a number from 0 to 6' rxe0
         unset FARJUMP_VERBS
         [ ! -e /tmp/none ]
         serves /tmp/write farjump serve $PATIENT --listen unix:/tmp/write --transport verbs-write
         try() { refuses \"$1\" farjump inject libraries/libcrc32.so --to unix:/tmp/write --transport \"$2\"; }
         try 'the source offers verbs-send, the target has verbs-write' verbs-send
         export FARJUMP_VERBS=gid=0
         try \"the peer's GID is $HERE and that of this process fe80\" verbs-write",
        60,
    ),
    (
        "what keeps a device from being used is said with the mend",
        On::First,
        "try() {
             refuses \"$1\" as_user farjump serve --listen unix:/tmp/none --transport verbs-write
             as_user farjump transports --transport verbs-write >shown
             grep 'verbs-write  yes       no ' shown
             grep -q \"$1\" shown
             as_user farjump doctor >shown
             grep -A 2 \"note  *RDMA devices .*$1\" shown >finding
             [ -z \"$2\" ] || grep \"[$] $2\" finding
         }
         # Of this process and its children.
         ulimit -l 64
         try '4198400 bytes of memory: this process may lock 65536 bytes.*ulimit -l 65536.*LimitMEMLOCK'
         refuses 'ulimit -l 65536' as_user farjump serve --listen unix:/tmp/none --transport verbs-send
         as_user timeout 60 farjump transports >shown 2>said
         grep 'ucx-put  *yes  *yes' shown
         grep 'RDMA devices are left out of UCX: this process may lock 65536 bytes.*ulimit -l 8192' said
         UCX_TLS=rc_v,ud_v,self refuses 'UCX_TLS=rc_v,ud_v,self names nothing but RDMA' as_user timeout 60 farjump serve --listen unix:/tmp/none --transport ucx-am
         ulimit -l unlimited
         chmod 600 /dev/infiniband/uverbs0
         try 'permission (as root: chmod 666 /dev/infiniband/uverbs0)' 'sudo chmod 666 /dev/infiniband/uverbs0'
         mv /dev/infiniband/uverbs0 /dev/elsewhere
         try 'there is no /dev/infiniband/uverbs0: pass the node into this container'
         mv /dev/elsewhere /dev/infiniband/uverbs0
         chmod 666 /dev/infiniband/uverbs0
         interface=$(cat /sys/class/infiniband/rxe0/parent)
         ip link set \"$interface\" down
         try \"port 1 of rxe0 is down: .*ip link set $interface up\" \"sudo ip link set $interface up\"
         ip link set \"$interface\" up
         rdma link delete rxe0
         refuses 'this machine has no RDMA device; .*rdma link add' farjump serve --listen unix:/tmp/none --transport verbs-write
         farjump doctor | grep 'note  *RDMA devices  *none'
         rdma link add rxe0 type rxe netdev \"$interface\"
         chmod 666 /dev/infiniband/*
         as_user farjump serve $PATIENT --listen unix:/tmp/user --transport verbs-write --data /bin/busybox &
         for _ in $(seq 100); do [ -S /tmp/user ] && break; sleep 0.1; done
         as_user farjump inject /job/libraries/libgrep.so --to unix:/tmp/user --args busybox --transport verbs-write >reply
         [ -s reply ]",
        120,
    ),
    ("faults over verbs", On::First, "BRIEF VERBS_FAULTS_IN_TURN=yes; verbs-faults", 900),
];

/// Commands of two machines. Each has a name, and whether it runs by default. It has the script of the machine that
/// makes requests, that of the serving one, its TCP port, and the time limit of both in seconds.
const PAIR: &[(&str, On, &str, &str, u16, u32)] = &[
    (
        "ibv_rc_pingpong",
        On::Each,
        "ibv_rc_pingpong -d rxe0 -g 1 -n 100 $THERE",
        "ibv_rc_pingpong -d rxe0 -g 1 -n 100",
        18515,
        60,
    ),
    (
        "ib_write_lat",
        On::None,
        "ib_write_lat -d rxe0 -x 1 -F -n 200 $THERE",
        "ib_write_lat -d rxe0 -x 1 -F -n 200",
        18515,
        60,
    ),
    (
        "ib_send_lat",
        On::None,
        "ib_send_lat -d rxe0 -x 1 -F -n 200 $THERE",
        "ib_send_lat -d rxe0 -x 1 -F -n 200",
        18515,
        60,
    ),
    (
        "ucx_perftest, puts over the device",
        On::None,
        "over_ucx ucx_perftest $THERE -t ucp_put_lat -s 64 -n 100 -w 10 -v",
        "over_ucx ucx_perftest",
        13337,
        90,
    ),
    (
        "serve and inject, verbs-write",
        On::Each,
        "printf %064d 7 >key; chmod 600 key
         same_answers --to tcp:$THERE:18471 --key-file key --transport verbs-write
         same_answers --to tcp:$THERE:18471 --key-file key --mode always",
        "printf %064d 7 >key; chmod 600 key
         farjump serve $PATIENT --listen tcp:0.0.0.0:18471 --key-file key --transport verbs-write --data /bin/busybox",
        18471,
        90,
    ),
    (
        "serve and inject, verbs-send",
        On::Each,
        "printf %064d 7 >key; chmod 600 key
         same_answers --to tcp:$THERE:18471 --key-file key --transport verbs-send
         same_answers --to tcp:$THERE:18471 --key-file key --mode always",
        "printf %064d 7 >key; chmod 600 key
         farjump serve $PATIENT --listen tcp:0.0.0.0:18471 --key-file key --transport verbs-send --data /bin/busybox",
        18471,
        90,
    ),
    (
        "faults over verbs, where the other machine's link goes down",
        On::Each,
        "BRIEF VERBS_FAULTS_IN_TURN=yes; verbs-faults --to $THERE:18700",
        "verbs-faults --falls $HERE:18700",
        18700,
        300,
    ),
    (
        "conformance, verbs-write",
        On::None,
        "BRIEF CONFORMANCE_PARTS=cached; conformance --at $THERE:18600 verbs-write",
        "conformance --serve $HERE:18600",
        18600,
        600,
    ),
    (
        "conformance, verbs-write, fenced",
        On::None,
        "BRIEF CONFORMANCE_PARTS=cached; conformance --at $THERE:18600 'verbs-write, fenced'",
        "conformance --serve $HERE:18600",
        18600,
        600,
    ),
    (
        "conformance, verbs-write, checked",
        On::None,
        "BRIEF CONFORMANCE_PARTS=cached; conformance --at $THERE:18600 'verbs-write, checked'",
        "conformance --serve $HERE:18600",
        18600,
        600,
    ),
    (
        "conformance, verbs-send",
        On::None,
        "BRIEF CONFORMANCE_PARTS=cached; conformance --at $THERE:18600 verbs-send",
        "conformance --serve $HERE:18600",
        18600,
        600,
    ),
];

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// Its name in the count of tests.
    pub(super) name: String,
    /// The script. With two machines it runs in the one that makes requests.
    pub(super) script: String,
    /// The script of the other machine meanwhile, and its TCP port. It ends when `script` has ended.
    pub(super) serving: Option<(String, u16)>,
    /// Time limit in seconds.
    pub(super) limit: u32,
}

impl Command {
    /// A user's line of a shell.
    pub(super) fn shell_line(line: &str, limit: u32) -> Command {
        Command { name: line.to_owned(), script: script(line, true), serving: None, limit }
    }
}

/// Commands of one machine alone with a kernel of this series: all (`whole`), or those that find most in little time.
pub(super) fn alone(series: &str, whole: bool) -> Vec<Command> {
    let runs = |on: On| match on {
        _ if whole => true,
        On::Each => true,
        On::First => series == KERNELS[0],
        On::Disorder => series == KERNELS[1],
        On::None => false,
    };
    let command = |&(name, _, line, limit): &(&str, On, &str, u32)| Command {
        name: name.to_owned(),
        script: script(line, whole),
        serving: None,
        limit: longest(limit, whole),
    };
    ALONE.iter().filter(|(_, on, ..)| runs(*on)).map(command).collect()
}

/// Commands of two machines: all (`whole`), or fewer.
pub(super) fn pair(whole: bool) -> Vec<Command> {
    let command = |&(name, _, line, serving, port, limit): &(&str, On, &str, &str, u16, u32)| Command {
        name: name.to_owned(),
        script: script(line, whole),
        serving: Some((script(serving, whole), port)),
        limit: longest(limit, whole),
    };
    PAIR.iter().filter(|(_, on, ..)| whole || *on == On::Each).map(command).collect()
}

fn script(line: &str, whole: bool) -> String {
    let brief = if whole { "BRIEF() { :; }" } else { "BRIEF() { export \"$@\"; }" };
    format!("{SETTING}{brief}\n{line}\n")
}

/// Time limit of a line that takes `limit` in the shorter run: the whole suite has ten parts, and a rule runs five.
fn longest(limit: u32, whole: bool) -> u32 {
    if whole { limit * 5 } else { limit }
}

#[cfg(test)]
mod tests;
