#!/bin/sh
# Run a command in a network of its own whose loopback is slow:  slow_link.sh RATE COMMAND...
#
# RATE as tc has it (200mbit).  Needs iproute2 and either root or unprivileged user namespaces; exits
# with 77 and a reason if neither is to be had.  Nothing of the machine's own network changes.
set -eu
PATH=$PATH:/usr/sbin:/sbin  # where tc is, also for those who are not root
if [ "${1:-}" = --inside ]; then
  shift; rate=$1; shift
  export BYTESCHEDULER_SHARED_MEMORY=0  # else what is long does not go through it
  ip link set lo mtu 1500 up
  tc qdisc add dev lo root tbf rate "$rate" burst 64kb latency 50ms
  exec "$@"
fi
command -v tc >/dev/null || { echo "tc is missing: apt-get install iproute2" >&2; exit 77; }
if [ "$(id -u)" = 0 ]; then flags=-n; else flags=-rn; fi
unshare $flags true 2>/dev/null || { echo "no network namespaces here (not root, and user namespaces are off)" >&2; exit 77; }
unshare $flags tc qdisc add dev lo root tbf rate 1mbit burst 64kb latency 50ms 2>/dev/null || {
  echo "this kernel has no tbf queue (module sch_tbf)" >&2; exit 77; }
exec unshare $flags "$0" --inside "$@"
