#!/bin/busybox sh
# The guest's first process: it reaches the host's files, puts a throw-away layer over them, and goes there.
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sys /sys
$box mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
  $box insmod "$module" || echo "guest: $module does not load"
done
nine=trans=virtio,version=9p2000.L,msize=512000
$box mount -t 9p -o $nine,cache=loose,ro hostroot /lower || { echo "guest: no host's files"; $box poweroff -f; }
$box mount -t tmpfs tmpfs /rw
$box mkdir -p /rw/upper /rw/work
$box mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /newroot ||
  { echo "guest: no overlay"; $box poweroff -f; }
for folder in proc sys dev; do $box mount -o move /$folder /newroot/$folder; done
$box mkdir -p /newroot/dev/pts /newroot/dev/shm
$box mount -t devpts devpts /newroot/dev/pts
$box mount -t tmpfs tmpfs /newroot/dev/shm
$box mount -t tmpfs tmpfs /newroot/run
$box mkdir -p /newroot/run/guest
$box mount -t 9p -o $nine,cache=none guestrun /newroot/run/guest
exec $box switch_root /newroot /bin/bash /run/guest/stage.sh
