#!/bin/sh
# Process 1 of a virtual machine: makes the RDMA device rxe0, runs /job, and switches the machine off.
# The host reads its lines that begin with `@@ ` (log.rs).
export PATH=/job/programs:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs -o mode=1777 tmp /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp

uptime() { cut -d. -f1 /proc/uptime; }
# Prints the value of the key $1 on the kernel's command line.
told() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
# Ends the machine. QEMU ends with twice this status and one.
off() {
    printf "\\$(printf %o "$1")" | dd of=/dev/port bs=1 seek=244 count=1 conv=notrunc 2>/dev/null
    poweroff -f
}
# Signals the other machine, which waits with `await` and the same number, for at most 3 minutes.
tell() {
    for _ in $(seq 60); do
        nc -w 2 "$there" $((7000 + $1)) </dev/null >/dev/null 2>&1 && return 0
        sleep 1
    done
    return 1
}
await() { timeout -s KILL "$2" nc -l -p $((7000 + $1)) </dev/null >/dev/null 2>&1; }
# Ends a machine that has lost the other one: each would wait for it at every command.
apart() {
    echo "@@ the other machine does not answer $1"
    off 1
}
# Waits until a process listens at port $1.
listening() {
    port=$(printf ':%04X' "$1")
    for _ in $(seq 600); do
        grep -q "$port 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return 0
        sleep 0.1
    done
    echo "nothing listens at port $1"
    return 1
}

# Runs the script $2, and kills it and all its processes after $1 seconds, or when it has ended.
bounded() {
    setsid sh "$2" &
    group=$!
    { sleep "$1" && kill -s KILL -- "-$group"; } 2>/dev/null &
    guard=$!
    wait $group
    ended=$?
    kill $guard 2>/dev/null
    kill -s KILL -- "-$group" 2>/dev/null
    return $ended
}

for module in $(cat /modules/order); do
    insmod "/modules/$module" || echo "module $module is refused"
done
here=$(told vm.here) there=$(told vm.there) device=$(told vm.device)
export HERE="$here" THERE="${there:-$here}"
ip link set lo up
if [ -z "$there" ]; then
    ip link add "$device" type dummy
else
    # The cable. Its driver may still be at work.
    for _ in $(seq 60); do
        [ -e "/sys/class/net/$device" ] && break
        sleep 1
    done
fi
# An interface without IPv6 addresses that are still being tried.
echo 0 >"/proc/sys/net/ipv6/conf/$device/accept_dad"
ip addr add "$here/24" dev "$device"
ip link set "$device" up
rdma link add rxe0 type rxe netdev "$device" || { dmesg | tail -n 20; echo "@@ no rxe0"; off 1; }
chmod 666 /dev/infiniband/*
echo "@@ up $(uptime) $(uname -r)"

cd /job || off 1
if [ -n "$there" ]; then
    # Whether the cable carries anything.
    if [ "$(told vm.serves)" = yes ]; then await 999 120; else tell 999; fi || apart "before the first command"
fi
number=0
while [ -e "$number.sh" ]; do
    echo "@@ begin $number"
    limit=$(cat "$number.limit") port=$(cat "$number.port" 2>/dev/null)
    if [ -z "$there" ] || [ -z "$port" ]; then
        bounded "$limit" "$number.sh"
        status=$?
    elif [ "$(told vm.serves)" = yes ]; then
        # In a group of its own, to end all of it.
        setsid sh "$number.there.sh" &
        child=$!
        listening "$port"
        tell "$number" || apart "at command $number"
        # The other one has so long for the command, and to find this one.
        await $((number + 500)) $((limit + 60)) || apart "at the end of command $number"
        # It ends by itself, or is ended: the machine that makes requests has the verdict.
        for _ in $(seq 50); do
            kill -0 $child 2>/dev/null || break
            sleep 0.1
        done
        status=0
        kill -s KILL -- -$child 2>/dev/null || { wait $child; status=$?; }
    else
        await "$number" $((limit + 60)) || apart "at command $number"
        bounded "$limit" "$number.sh"
        status=$?
        tell $((number + 500)) || apart "at the end of command $number"
    fi
    case $status in
        0 | 77) ;;
        *) dmesg | tail -n 20 ;;
    esac
    echo "@@ end $number $status $(uptime)"
    number=$((number + 1))
done
echo "@@ done"
off 0
