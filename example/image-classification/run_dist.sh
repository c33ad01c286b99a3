#!/usr/bin/env bash
# Train on several hosts, over ssh or by hand; needs bash 4.4 or newer here.
#
#   ./run_dist.sh HOSTS [arguments of the training script]
#   ./run_dist.sh --print HOSTS [...]     print the command for each host instead of running it
#
# HOSTS is a file with one role and the address of its host a line; exactly one scheduler:
#
#   scheduler 10.0.0.1
#   server    10.0.0.1
#   server    10.0.0.2
#   worker    10.0.0.1
#   worker    user@10.0.0.2
#
# Every host needs the package, this folder at the same path, and ssh without a password.
# The first role that fails ends the others, and its exit code is this script's; so does Ctrl-C.
#
# Variables: PORT of the scheduler node (default 9091), SCRIPT (default train_mnist.py),
# PYTHON (default python3) and BSLAUNCH (default bslaunch) as they are called on every host,
# SSH (default ssh), GRACE (default 10): seconds in which, after a failure, the others may end by
# themselves.  Every variable BYTESCHEDULER_* is passed on.
#
# What the roles get (docs/user/running.md says more):
#   DMLC_ROLE                         what this process is
#   DMLC_PS_ROOT_URI, _PORT           where the scheduler node listens
#   DMLC_NUM_WORKER, DMLC_NUM_SERVER  how many there are, the same everywhere
#   DMLC_NODE_HOST                    this host's address, as the others reach it; for a host
#                                     name it is left out, and the node looks for its address
set -euo pipefail

fail() { echo "run_dist.sh: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "$0" | grep '^#' | cut -c3- >&2; exit 2; }
quote() { printf " '%s'" "${@//\'/\'\\\'\'}"; }

print=
if [ "${1:-}" = --print ]; then print=1; shift; fi
[ $# -ge 1 ] || usage
hosts=$1; shift
[ -f "$hosts" ] && [ -r "$hosts" ] || fail "cannot read the hosts file $hosts"

roles=() places=() number=0 root= workers=0 servers=0 schedulers=0
while read -r role place more || [ -n "$role" ]; do
  number=$((number + 1))
  case $role in
    '') continue ;;
    scheduler) schedulers=$((schedulers + 1)); root=${place#*@} ;;
    server) servers=$((servers + 1)) ;;
    worker) workers=$((workers + 1)) ;;
    *) fail "$hosts:$number: $role is no role; want scheduler, server or worker and an address" ;;
  esac
  [ -n "$place" ] || fail "$hosts:$number: $role has no address"
  [ -z "$more" ] || fail "$hosts:$number: $more comes after the address; want one role a line"
  roles+=("$role") places+=("$place")
done < <(tr -d '\r' <"$hosts" | sed 's/#.*//')
[ $schedulers = 1 ] && [ $servers -ge 1 ] && [ $workers -ge 1 ] ||
  fail "$hosts has $schedulers scheduler, $servers server and $workers worker lines;" \
    "want one scheduler, and one or more of the others"

folder=$(cd "$(dirname "$0")" && pwd)
settings=()
for name in $(compgen -e | grep '^BYTESCHEDULER_' || true); do settings+=("$name=${!name}"); done

# The command for role $1 at address $2.
command_for() {
  local env=("DMLC_ROLE=$1" "DMLC_PS_ROOT_URI=$root" "DMLC_PS_ROOT_PORT=${PORT:-9091}"
    "DMLC_NUM_WORKER=$workers" "DMLC_NUM_SERVER=$servers")
  [[ ! $2 =~ ^[0-9.]+$ ]] || env+=("DMLC_NODE_HOST=$2")
  local run=("${BSLAUNCH:-bslaunch}")
  shift 2
  [ "${env[0]}" != DMLC_ROLE=worker ] || run+=("${PYTHON:-python3}" "${SCRIPT:-train_mnist.py}" "$@")
  echo "cd$(quote "$folder") && exec env$(quote "${env[@]}" ${settings[@]+"${settings[@]}"} "${run[@]}")"
}

if [ -n "$print" ]; then
  for i in "${!roles[@]}"; do
    printf '# on %s\n%s\n' "${places[i]}" "$(command_for "${roles[i]}" "${places[i]#*@}" "$@")"
  done
  exit 0
fi

# Every role runs in a process group of its own (set -m) and writes its end into this pipe.
set -m
ends=$(mktemp -u)
mkfifo -m 600 "$ends"
exec 3<>"$ends"
rm "$ends"

pids=() timer=
# shellcheck disable=SC2329 # called by the trap
stop() {
  trap '' INT TERM HUP
  for pid in ${pids[@]+"${pids[@]}"} $timer; do kill -TERM -- "-$pid" 2>/dev/null || true; done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Role $1 at $2, by the command $3.  -tt: when ssh here ends, the remote processes end too.
run_role() {
  local code=0
  ${SSH:-ssh} -tt -o BatchMode=yes "$2" "$3" </dev/null 2>&1 3>&- |
    sed -u "s/\r*\$//; s/.*\r//; s/^/[$1 ${2//\//\\/}] /" 3>&- || code=$?
  echo "$1 $code" >&3
}
for i in "${!roles[@]}"; do
  run_role "${roles[i]}" "${places[i]}" "$(command_for "${roles[i]}" "${places[i]#*@}" "$@")" &
  pids+=($!)
done

result=0
for _ in "${pids[@]}"; do
  read -r role code <&3
  [ "$role" != timer ] || break
  [ "$code" != 0 ] || continue
  # A node that lost a worker may end before that worker has quite ended: the worker is the cause.
  if [ $result = 0 ] || { [ "$role" = worker ] && [ "$cause" != worker ]; }; then
    result=$code cause=$role
  fi
  if [ -z "$timer" ]; then
    echo "run_dist.sh: a $role ended with exit code $code; ending the others" >&2
    { sleep "${GRACE:-10}"; echo "timer 0" >&3; } &
    timer=$!
  fi
done
exit "$result"
