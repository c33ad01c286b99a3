#!/usr/bin/env bash
# Train on several hosts, over ssh or by hand.
#
#   ./run_dist.sh HOSTS [arguments of the training script]
#   ./run_dist.sh --print HOSTS [...]     print the command for each host instead of running it
#
# HOSTS is a file with one role a line; the first scheduler line is the meeting point:
#
#   scheduler 10.0.0.1
#   server    10.0.0.1
#   server    10.0.0.2
#   worker    10.0.0.1
#   worker    10.0.0.2
#
# Every host needs the package, this folder at the same path, and ssh without a password.
# Variables: PORT of the scheduler node (default 9091), SCRIPT (default train_mnist.py),
# PYTHON (default python3), SSH (default ssh).  Every variable BYTESCHEDULER_* is passed on.
set -eu

usage() { sed -n '2,18p' "$0" | cut -c3- >&2; exit 2; }

print=
if [ "${1:-}" = --print ]; then print=1; shift; fi
[ $# -ge 1 ] || usage
hosts=$1; shift
[ -r "$hosts" ] || { echo "run_dist.sh: cannot read $hosts" >&2; exit 2; }
count() { awk -v role="$1" '!/^#/ && $1 == role { n++ } END { print n + 0 }' "$hosts"; }
root=$(awk '!/^#/ && $1 == "scheduler" { print $2; exit }' "$hosts")
workers=$(count worker); servers=$(count server); schedulers=$(count scheduler)
[ "$schedulers" = 1 ] && [ "$workers" -ge 1 ] && [ "$servers" -ge 1 ] || {
  echo "run_dist.sh: $hosts has $schedulers scheduler, $servers server and $workers worker lines; want one scheduler, one or more of the others" >&2
  exit 2
}
bad=$(awk '!/^#/ && NF && $1 != "scheduler" && $1 != "server" && $1 != "worker" { print NR ": " $0; exit }' "$hosts")
[ -z "$bad" ] || { echo "run_dist.sh: $hosts:$bad: want scheduler, server or worker and an address" >&2; exit 2; }

quote() { for word in "$@"; do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done; }
folder=$(cd "$(dirname "$0")" && pwd)
settings=$(env | grep '^BYTESCHEDULER_' | tr '\n' ' ' || true)
train=$(quote "${PYTHON:-python3}" "${SCRIPT:-train_mnist.py}" "$@")

pids=
stop() { [ -z "$pids" ] || kill $pids 2>/dev/null || true; }
trap stop EXIT
trap 'exit 130' INT TERM

while read -r role host _; do
  case $role in ''|'#'*) continue ;; esac
  command="cd$(quote "$folder") && env DMLC_ROLE=$role DMLC_PS_ROOT_URI=$root DMLC_PS_ROOT_PORT=${PORT:-9091} DMLC_NUM_WORKER=$workers DMLC_NUM_SERVER=$servers DMLC_NODE_HOST=$host ${settings}bslaunch"
  [ "$role" != worker ] || command="$command$train"
  if [ -n "$print" ]; then
    printf '# on %s\n%s\n' "$host" "$command"
  else
    # -tt: when we end, the remote processes end too.
    ${SSH:-ssh} -tt -o BatchMode=yes "$host" "$command" </dev/null \
      > >(sed -u "s/^/[$role $host] /") 2>&1 &
    pids="$pids $!"
  fi
done <"$hosts"
[ -z "$print" ] || exit 0
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
