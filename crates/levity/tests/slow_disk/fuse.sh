#!/bin/sh
# A file system of a process: FOLDER/content shown by bindfs at FOLDER/root/slow, and again as the lower
# layer of an overlay at FOLDER/root/over.
#
# usage: fuse.sh FOLDER
#
# Once it is there, the process number of bindfs is printed: stopped, it freezes both. When standard
# input ends, because the test is over or was killed, everything is undone.
set -eu
folder=$1
bindfs=''

undo() {
    set +e
    exec 2>/dev/null
    [ -n "$bindfs" ] && kill -CONT "$bindfs"
    umount --lazy "$folder/root/late"
    umount --lazy "$folder/root/over"
    umount --lazy "$folder/root/slow"
    [ -n "$bindfs" ] && kill "$bindfs"
    wait
}
trap undo EXIT
trap 'exit 1' HUP INT TERM

mkdir -p "$folder/root/slow" "$folder/root/over" "$folder/empty"
bindfs -f -o attr_timeout=0 "$folder/content" "$folder/root/slow" </dev/null >/dev/null &
bindfs=$!
tries=1000
until mountpoint -q "$folder/root/slow"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || exit 1
    sleep 0.01
done
mount -t overlay -o "ro,lowerdir=$folder/empty:$folder/root/slow" overlay "$folder/root/over"
echo "$bindfs"
read -r _ || true
