# The guest's first process on the host's files: it makes devices, runs the command, and powers off.
#
# The guest's folder on the host is /run/guest: `settings` are variables of this script, `command` is what
# runs, `output` is what that writes, and `code` is its exit code.
set -u
. /run/guest/settings

modules() {
  mkdir -p "/lib/modules/$(uname -r)"
  mount --bind "$MODULES/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
}

# Two cards with a cable to one switch each: v0 and v1 have the addresses, and p0 and p1 are the switch's
# ports, so that `ip link set p0 down` takes v0's carrier and leaves its routes.
cables() {
  ip link add br0 type bridge
  ip link set br0 up mtu 9000
  for n in 0 1; do
    ip link add v$n type veth peer name p$n
    ip link set p$n master br0
    ip link set p$n up mtu 9000
    echo 1 >/proc/sys/net/ipv4/conf/v$n/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/v$n/rp_filter
    ip addr add 10.77.0.$((n + 1))/24 dev v$n
    ip link set v$n up mtu 9000
  done
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  # Each card answers for its own address alone.
  echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
}

# Both addresses are the guest's own: without these rules packets between them would take the loopback.
routes() {
  ip rule add pref 20 lookup local
  ip rule del pref 0
  for n in 0 1; do
    ip rule add pref 10 iif lo from 10.77.0.$((n + 1)) to 10.77.0.$((2 - n)) lookup $((100 + n))
    ip rule add pref 11 iif lo from 0.0.0.0 to 10.77.0.$((2 - n)) lookup $((100 + n))
    ip route add 10.77.0.$((2 - n)) dev v$n src 10.77.0.$((n + 1)) table $((100 + n))
  done
}

soft_roce() {
  modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm || echo "guest: no soft-RoCE"
  for n in 0 1; do rdma link add rxe$n type rxe netdev v$n; done
}

modules
hostname guest
ip link set lo up
[ "$NETWORK" = 1 ] && { modprobe bridge; modprobe veth; cables; routes; }
[ "$RDMA" = 1 ] && soft_roce
ulimit -l unlimited
cd "$FOLDER" && bash /run/guest/command </dev/null >/run/guest/output 2>&1
echo $? >/run/guest/code
sync
exec /bin/busybox poweroff -f
