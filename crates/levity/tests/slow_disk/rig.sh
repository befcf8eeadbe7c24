#!/bin/sh
# A disk that takes its time: an image behind nbdkit, which holds back every read, shown as a file by
# nbdfuse, as a block device by a loop device and as a folder by ext4.
#
# usage: rig.sh FOLDER DELAY READS_AT_ONCE
#
# FOLDER has the content in FOLDER/content and gets the mount at FOLDER/disk. Once that is there, the
# process number of nbdkit is printed: stopped, it freezes the disk. While there is a file
# FOLDER/failing, every read of it fails with EIO. When standard input ends, because the test is over or
# was killed, everything is undone.
set -eu
folder=$1 delay=$2 reads_at_once=$3
nbdkit='' nbdfuse='' loop=''

# Runs a command until it succeeds, for ten seconds at most.
persist() {
    tries=1000
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.01
    done
}

undo() {
    set +e
    exec 2>/dev/null
    [ -n "$nbdkit" ] && kill -CONT "$nbdkit"
    umount "$folder/disk" || umount --lazy "$folder/disk"
    [ -n "$loop" ] && losetup --detach "$loop"
    [ -n "$nbdfuse" ] && { persist umount "$folder/nbd" || kill "$nbdfuse"; }
    [ -n "$nbdkit" ] && kill "$nbdkit"
    wait
}
trap undo EXIT
trap 'exit 1' HUP INT TERM

mkdir "$folder/nbd" "$folder/disk"
mkfs.ext4 -q -F -m 0 -d "$folder/content" "$folder/image" 256M >/dev/null
nbdkit --foreground --pidfile "$folder/ready" --readonly --filter=error --filter=delay --unix "$folder/socket" \
    --threads "$reads_at_once" file "$folder/image" "delay-read=$delay" \
    error-pread=EIO error-pread-rate=100% "error-pread-file=$folder/failing" </dev/null >/dev/null &
nbdkit=$!
# Its socket is there before it accepts connections.
persist test -s "$folder/ready"
nbdfuse --readonly --connections 1 "$folder/nbd/image" --unix "$folder/socket" </dev/null >/dev/null &
nbdfuse=$!
persist test -s "$folder/nbd/image"
loop=$(losetup --find --show --read-only --direct-io=on "$folder/nbd/image")
mount -t ext4 -o ro,noload "$loop" "$folder/disk"
echo "$nbdkit"
read -r _ || true
