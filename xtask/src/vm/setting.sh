# The beginning of every script of table.rs.
set -e
cd /job
export FARJUMP_DEVICE=rxe0:1
# An emulated machine is a hundred times slower, and shares its processors with its own device.
export CONFORMANCE_LIBRARIES=/job/libraries CONFORMANCE_VOLUME=2000 CONFORMANCE_LIMIT=240
# GID 0: with an IPv4 GID UCX 1.13 loses datagrams ("unhandled timeout error").
over_ucx() { UCX_TLS=rc_v,ud_v,self UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0 "$@"; }
# Options of a target over a device. If the processors have other work, its source takes seconds to open its endpoint. That is
# more than a target allows by default.
PATIENT='--handshake-timeout 20s'
# Runs a program over the device. UCX 1.13 may abort a process when its peer goes away (docs/design/vm-test.md). Such a run says
# nothing about farjump.
unless_ucx_aborts() {
    status=0
    over_ucx "$@" >/tmp/printed 2>/tmp/said || status=$?
    cat /tmp/printed
    cat /tmp/said >&2
    if [ $status != 0 ] && grep -q 'ib_device.c.*wait_ctx->cb_id.*failed' /tmp/printed /tmp/said; then
        echo 'skipped: UCX aborted by an assertion of its own (openucx/ucx#10432)' >&2
        exit 77
    fi
    return $status
}
# Runs a program over the device with a UCX that chooses lanes by the newer protocols.
newer() {
    [ -e /newer/libucp.so.0 ] || { echo 'skipped: there is no newer UCX'; exit 77; }
    LD_LIBRARY_PATH=/newer over_ucx "$@"
}
# Runs a program that serves, and continues when it listens at TCP port $1, or at the socket $1.
serves() {
    port=$(printf ':%04X' "$1" 2>/dev/null || true) socket=$1
    shift
    # A killed program leaves its socket.
    [ ! -S "$socket" ] || rm "$socket"
    "$@" &
    trap 'kill -s KILL $! 2>/dev/null || true' EXIT
    for _ in $(seq 300); do
        { [ -S "$socket" ] || grep -q "$port 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; } && return 0
        sleep 0.1
    done
    echo "$1 does not listen at $socket"
    return 1
}
# Injects three functions with the options $@, and compares their replies with those of a target over shared memory.
same_answers() {
    # It belongs to this script alone: the target of another script has ended with that.
    reference=/tmp/reference.$$
    if ! [ -S $reference ]; then
        serves $reference farjump serve --listen unix:$reference --transport shm --data /bin/busybox
    fi
    for name in histogram grep crc32; do
        farjump inject libraries/lib$name.so --to unix:$reference --transport shm --args busybox >expected
        farjump inject libraries/lib$name.so --args busybox --repeat 5 "$@" >reply
        [ -s expected ] && cmp expected reply || return 1
    done
}
# Checks that the transport $2 reads objects of a target at TCP port $1 from the target's memory. $3, if given, comes before
# each command.
reads_objects() {
    owner=tcp:127.0.0.1:$1 transport=$2 before=$3
    printf %064d 7 >key
    chmod 600 key
    head -c 9000000 /dev/urandom >object
    $before serves "$1" farjump serve $PATIENT --listen "$owner" --key-file key --transport "$transport" --objects 64M
    $before farjump put object --to "$owner" --key-file key --transport "$transport" >handle
    for _ in 1 2; do
        $before farjump get handle --key-file key --transport "$transport" --out copy >shown
        grep "9 000 000 B, read from the owner's memory by $transport" shown || { cat shown; return 1; }
        cmp object copy || return 1
    done
    # A short object is not worth a loan.
    head -c 100 object >short
    $before farjump put short --to "$owner" --key-file key --transport "$transport" >handle
    $before farjump get handle --key-file key --transport "$transport" --out copy >shown
    grep "100 B, in frames by $transport" shown && cmp short copy
}
# Checks that the command in the other arguments fails, and prints $1.
refuses() {
    text=$1
    shift
    if "$@" >said 2>&1; then
        echo "it works: $*"
        return 1
    fi
    grep -q -e "$text" said || { echo "$* does not say '$text' but:"; cat said; return 1; }
}
as_user() { su user -c "export PATH=$PATH FARJUMP_DEVICE=$FARJUMP_DEVICE; $*"; }
