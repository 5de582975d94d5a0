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
# Ends the machine. The status of QEMU is then 2 * $1 + 1.
off() {
    printf "\\$(printf %o "$1")" | dd of=/dev/port bs=1 seek=244 count=1 conv=notrunc 2>/dev/null
    poweroff -f
}
# Names the missing $1, and ends the machine.
lacks() {
    echo "@@ no $1"
    off 1
}

# The machines of a pair send each other their progress, as numbers that only grow. A server receives each number, keeps
# it for `await`, and sends it back. So the sender knows that it was received. Sending a number twice does no harm.
hear() {
    mkfifo /told
    echo -1 >/last
    echo 'read -r step && echo "$step" >/told && echo "$step" >/last && echo "$step"' >/hear
    # It keeps /told open for reading, so that no number waits for a reader.
    nc -ll -p 7000 -e /bin/sh /hear <>/told &
}
# Sends the number $1 to the other machine until that responds, for at most $2 seconds.
tell() {
    until=$(($(uptime) + $2))
    while [ "$(uptime)" -le "$until" ]; do
        { echo "$1" | timeout -s KILL 5 nc -w 2 "$there" 7000 >/answer; } 2>/dev/null
        [ "$(cat /answer)" = "$1" ] && return 0
        # The other machine sends a larger number only if it received this one. Then the response was lost.
        [ "$(cat /last)" -gt "$1" ] 2>/dev/null && return 0
        sleep 1
    done
    return 1
}
# Waits until the other machine sends the number $1, for at most $2 seconds.
await() {
    { sleep "$2" && echo "late $1" >/told; } &
    guard=$!
    while read -r heard; do
        case $heard in
            "$1" | "late $1") break ;;
            # The timeout of an earlier wait, which ended just in time.
            late*) ;;
            # A number that was sent twice.
            *) [ "$heard" -lt "$1" ] || break ;;
        esac
    done </told
    kill $guard 2>/dev/null
    [ "$heard" = "$1" ] || { echo "step $1: $heard" && return 1; }
}

# Waits until a process listens at port $1.
listening() {
    port=$(printf ':%04X' "$1") until=$(($(uptime) + 60))
    while [ "$(uptime)" -le $until ]; do
        grep -q "$port 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return 0
        sleep 0.1
    done
    echo "nothing listens at port $1"
    return 1
}

# Runs the script $2. Kills it and all its processes after $1 seconds, or when it has ended.
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
# A machine of aarch64 has none (pages.rs).
if [ -n "$device" ]; then
    if [ -z "$there" ]; then
        ip link add "$device" type dummy
    else
        # The driver of the cable may still be starting.
        for _ in $(seq 60); do
            [ -e "/sys/class/net/$device" ] && break
            sleep 1
        done
    fi
    [ -e "/sys/class/net/$device" ] || lacks "$device"
    # No detection of duplicate IPv6 addresses: the addresses are usable at once.
    echo 0 >"/proc/sys/net/ipv6/conf/$device/accept_dad"
    ip addr add "$here/24" dev "$device"
    ip link set "$device" up
    rdma link add rxe0 type rxe netdev "$device" || lacks rxe0
    chmod 666 /dev/infiniband/*
    if [ -n "$there" ]; then
        # Checks that the cable works in both directions.
        hear
        tell 0 90 && await 0 30 || lacks "other machine"
    fi
fi
# The kernel was booted with one processor (machine.rs). Its first connections change its code too.
echo 1 >/sys/devices/system/cpu/cpu1/online || lacks "second processor"
# From here on the kernel reports errors alone.
echo 4 >/proc/sys/kernel/printk
echo "@@ up $(uptime) $(uname -r)"

cd /job || off 1
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
        tell $((2 * number + 1)) 60 || lacks "other machine when command $number begins"
        await $((2 * number + 2)) $((limit + 120)) || lacks "other machine when command $number ends"
        # It ends by itself, or is killed. The verdict is that of the machine that makes requests.
        for _ in $(seq 50); do
            kill -0 $child 2>/dev/null || break
            sleep 0.1
        done
        status=0
        kill -s KILL -- -$child 2>/dev/null || { wait $child; status=$?; }
    else
        # The other machine ends its part of the command before. Then it waits until its part of this command listens.
        await $((2 * number + 1)) 180 || lacks "other machine when command $number begins"
        bounded "$limit" "$number.sh"
        status=$?
        tell $((2 * number + 2)) 60 || lacks "other machine when command $number ends"
    fi
    case $status in
        0 | 77) ;;
        # Soft-RoCE logs this at each read of its port.
        *) dmesg | grep -v 'speed is unknown' | tail -n 20 ;;
    esac
    echo "@@ end $number $status $(uptime)"
    number=$((number + 1))
done
echo "@@ done"
# The machine that sent the last number may not have received the response yet.
[ -z "$there" ] || if [ "$(told vm.serves)" = yes ]; then await $((2 * number + 1)) 60; else tell $((2 * number + 1)) 5; fi
off 0
