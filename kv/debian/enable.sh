#!/bin/sh
# Makes a server of Debian's packages load the module: sudo sh enable.sh PREFIX [redis-server|valkey-server]
# PREFIX is that of `cargo xtask install --kv`. The server restarts. `--undo` in place of PREFIX undoes all changes.
set -eu

usage="usage: sudo sh $0 PREFIX|--undo [redis-server|valkey-server]"
prefix=${1:?"$usage"}
service=${2:-redis-server}
case $service in
redis-server) name=redis cli=redis-cli ;;
valkey-server) name=valkey cli=valkey-cli ;;
*) echo "$service is no service of Debian's: $usage" >&2 && exit 2 ;;
esac

# The root of the files, and the socket of the server. The test alone sets them.
root=${FARJUMP_ROOT:-}
socket=${FARJUMP_SOCKET:-}
# Below /usr/lib: the unit allows no other files to be mapped as executable.
module=$root/usr/lib/$name/modules/farjump-kv.so
drop_in=$root/etc/systemd/system/$service.service.d/farjump.conf
settings=$root/etc/$name/$name.conf
mark='# farjump: written by enable.sh'
line="loadmodule \"$module\" \"unix:$root/run/$name/farjump.sock\" load local"

[ -f "$settings" ] || { echo "there is no $settings: install $service first" >&2 && exit 1; }
# The settings without the lines of an earlier run.
kept=$(sed "/^$mark\$/,+1d" "$settings")

# Replaces the settings by its input, in one step. Owner and mode stay.
replace_settings() {
    cp -p "$settings" "$settings.new"
    cat >"$settings.new"
    mv "$settings.new" "$settings"
}

if [ "$prefix" = --undo ]; then
    printf '%s\n' "$kept" | replace_settings
    rm -f "$module" "$drop_in"
    systemctl daemon-reload
    systemctl restart "$service"
    echo "$service runs without farjump"
    exit
fi

built=$prefix/lib/farjump-kv.so
[ -f "$built" ] || { echo "there is no $built: run cargo xtask install --kv --prefix $prefix" >&2 && exit 1; }
# As a new file: a running server has the old one mapped.
mkdir -p "$(dirname "$module")" "$(dirname "$drop_in")"
cp "$built" "$module.new"
# The server loads only modules with execute permission.
chmod 755 "$module.new"
mv "$module.new" "$module"
# The unit forbids making memory executable. Placing code does that.
printf '[Service]\nMemoryDenyWriteExecute=no\n' >"$drop_in"
printf '%s\n%s\n%s\n' "$kept" "$mark" "$line" | replace_settings
systemctl daemon-reload
systemctl restart "$service"

info() {
    "$cli" ${socket:+-s "$socket"} INFO "$1" 2>/dev/null | tr -d '\r'
}
tries=0
until info farjump | grep '^farjump_listening:1'; do
    if info farjump | grep '^farjump_problem:'; then
        exit 1
    fi
    # The module listens once the data are loaded. That may take any time.
    info persistence | grep -q '^loading:1' || tries=$((tries + 1))
    if [ $tries -ge 50 ]; then
        echo "$service does not answer with the module: see its log. If it wants a password, put it into REDISCLI_AUTH" >&2
        exit 1
    fi
    sleep 0.1
done
echo "written: $module, $drop_in, two lines of $settings"
