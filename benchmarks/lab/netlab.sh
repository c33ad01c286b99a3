#!/bin/bash
# netlab.sh: N pretend hosts on one switch, each with its own network stack, host name, /dev/shm and SysV IPC,
# and a full-duplex link whose two directions are rate-limited on their own.  Needs root, iproute2, util-linux.
#
#   netlab.sh up LAB N [-r RATE] [-q MS] [-b BYTES] [-m MTU] [-C CC] [-p PREFIX]
#         RATE   tc rate for every direction of every link (1gbit, 25gbit, 300mbit); without it, links are unshaped
#         MS     length of each queue in milliseconds at RATE (default 10)       BYTES  token bucket (default below)
#         CC     TCP congestion control in the hosts (default reno; "" = the machine's own)
#         PREFIX first three octets of the hosts' addresses (default 10.201.0); host i is PREFIX.i
#   netlab.sh rate LAB I UP [DOWN]     change one host: UP = what it sends, DOWN = what it receives ("none" = unshaped)
#   netlab.sh exec LAB I CMD...        run CMD in host I (stays in the foreground, passes the exit status on)
#   netlab.sh addr LAB I               print host I's address
#   netlab.sh stat LAB                 bytes sent, drops and backlog of every direction
#   netlab.sh down LAB [-k]            remove everything; refuses while processes run in the lab unless -k (ends those)
#   netlab.sh list
#
# Everything is inside namespaces named LAB-sw, LAB-1..LAB-N: nothing is added to the machine's own network,
# no route leads out, and no address of the machine changes.
set -euo pipefail
ST=/run/bs-netlab; K=
die(){ echo "netlab: $*" >&2; exit 2; }
bits(){ local v=${1,,} n u; n=${v%%[a-z]*}; u=${v#"$n"}; case $u in bit|"") ;; kbit) n=$((n*1000));; mbit) n=$((n*1000000));; gbit) n=$((n*1000000000));; *) die "rate $1: use bit, kbit, mbit or gbit, whole numbers";; esac; echo "$n"; }
conf(){ [ -e "$ST/$LAB/conf" ] || die "no lab $LAB"; . "$ST/$LAB/conf"; }
host(){ [[ ${I:-} =~ ^[0-9]+$ ]] && [ "$I" -ge 1 ] && [ "$I" -le "$N" ] || die "host must be 1..$N"; }
# one direction: tbf on the sending side.  Bucket: 1 ms of the rate, no less than two 64 KB GSO packets,
# so a burst is short against any transfer we time and the average is exact; queue: MS of the rate.
shape(){ local ns=$1 dev=$2 rate=$3 bps b lim; tc -n "$ns" qdisc del dev "$dev" root 2>/dev/null || true
  [ "$rate" = none ] && return 0
  bps=$(bits "$rate"); b=${BURST:-$((bps/8/1000))}; [ -n "$BURST" ] || [ "$b" -ge 131072 ] || b=131072
  lim=$((bps/8000*QMS)); [ "$lim" -ge $((2*b)) ] || lim=$((2*b))
  tc -n "$ns" qdisc add dev "$dev" root tbf rate "$bps"bit burst "$b" limit "$lim"; }
up(){ N=$1; shift; [[ $LAB =~ ^[a-z][a-z0-9]{0,7}$ ]] || die "lab name: up to 8 of a-z 0-9"; [[ $N =~ ^[0-9]+$ ]] && [ "$N" -ge 1 ] && [ "$N" -le 100 ] || die "N 1..100"
  local rate=none mtu=1500 cc=reno PREFIX=10.201.0; QMS=10 BURST=
  while getopts r:q:b:m:C:p: o; do case $o in r) rate=$OPTARG;; q) QMS=$OPTARG;; b) BURST=$OPTARG;; m) mtu=$OPTARG;; C) cc=$OPTARG;; p) PREFIX=$OPTARG;; *) exit 2;; esac; done
  [ -e "$ST/$LAB" ] && die "lab $LAB exists"; [ "$rate" = none ] || bits "$rate" >/dev/null
  mkdir -p "$ST/$LAB"; mount --bind "$ST/$LAB" "$ST/$LAB"; mount --make-private "$ST/$LAB"
  trap 'LABERR=1; K=1; down || true' ERR
  printf 'N=%s QMS=%s BURST=%s PREFIX=%s\n' "$N" "$QMS" "$BURST" "$PREFIX" >"$ST/$LAB/conf"
  ip netns add "$LAB-sw"; ip -n "$LAB-sw" link add br0 type bridge stp_state 0 mcast_snooping 0; ip -n "$LAB-sw" link set br0 up mtu "$mtu"
  local i h; for ((i=1;i<=N;i++)); do h=$LAB-$i; ip netns add "$h"
    ip netns exec "$h" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    # a namespace may choose only among net.ipv4.tcp_allowed_congestion_control of the machine
    [ -z "$cc" ] || ip netns exec "$h" sysctl -qw net.ipv4.tcp_congestion_control="$cc"
    ip -n "$h" link set lo up
    ip -n "$h" link add eth0 mtu "$mtu" type veth peer name "p$i" mtu "$mtu" netns "$LAB-sw"
    ip -n "$h" addr add "$PREFIX.$i/24" dev eth0; ip -n "$h" link set eth0 up
    ip -n "$LAB-sw" link set "p$i" master br0 up
    shape "$h" eth0 "$rate"; shape "$LAB-sw" "p$i" "$rate"
    for k in mnt uts ipc; do : >"$ST/$LAB/$i.$k"; done
    nsenter --net="/run/netns/$h" unshare --mount="$ST/$LAB/$i.mnt" --uts="$ST/$LAB/$i.uts" --ipc="$ST/$LAB/$i.ipc" --propagation private \
      sh -c "mount -t sysfs sysfs /sys; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; echo '$h' >/proc/sys/kernel/hostname"
  done; trap - ERR; }
pids(){ local i; for i in sw $(seq 1 "$N"); do ip netns pids "$LAB-$i" 2>/dev/null || true; done; }
down(){ conf; local p i k; p=$(pids)
  if [ -n "$p" ]; then [ "${K:-}" = 1 ] || die "processes still run in $LAB: $(echo $p)  (down $LAB -k ends them)"
    kill $p 2>/dev/null || true; for i in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(pids)" ] && break; sleep 0.2; done; p=$(pids); [ -z "$p" ] || kill -9 $p 2>/dev/null || true; fi
  for ((i=1;i<=N;i++)); do for k in mnt uts ipc; do umount "$ST/$LAB/$i.$k" 2>/dev/null || true; done; ip netns del "$LAB-$i" 2>/dev/null || true; done
  ip netns del "$LAB-sw" 2>/dev/null || true; umount "$ST/$LAB" 2>/dev/null || true; rm -rf "${ST:?}/${LAB:?}"; }
[ $# -ge 1 ] || { sed -n '2,20p' "$0"; exit 2; }
cmd=$1; shift; [ "$cmd" = list ] && { ls "$ST" 2>/dev/null || true; exit 0; }
LAB=${1:?lab name}; shift; [ "$(id -u)" = 0 ] || die "needs root"
case $cmd in
 up) [ $# -ge 1 ] || die "up LAB N"; up "$@";;
 rate) conf; I=$1; host; shape "$LAB-$I" eth0 "$2"; shape "$LAB-sw" "p$I" "${3:-$2}";;
 exec) conf; I=$1; shift; host; exec nsenter --net="/run/netns/$LAB-$I" --mount="$ST/$LAB/$I.mnt" --uts="$ST/$LAB/$I.uts" --ipc="$ST/$LAB/$I.ipc" --wd="$PWD" -- "$@";;
 addr) conf; I=$1; host; echo "$PREFIX.$I";;
 stat) conf; for ((i=1;i<=N;i++)); do for x in "up $LAB-$i eth0" "down $LAB-sw p$i"; do set -- $x
     echo "$i $1 $(tc -n "$2" -s qdisc show dev "$3" | awk '/Sent/{print "bytes",$2,"drops",$7+0} /backlog/{print $1,$2}' | tr '\n' ' ')"; done; done;;
 down) [ "${1:-}" = -k ] && K=1; down;;
 *) die "unknown command $cmd";;
esac
