#!/bin/sh
# Train on several hosts, over ssh: ./run_dist.sh HOST[:SLOTS],... WORKERS SERVERS [arguments of the script]
# SCRIPT (default train_mnist.py), PYTHON and SSH name the programs; docs/user/ssh.md says what hosts need.
hosts=$1 workers=$2 servers=${3:?"want HOST[:SLOTS],... WORKERS SERVERS"} && shift 3
cd "$(dirname "$0")" && exec bslaunch -H "$hosts" -w "$workers" -s "$servers" --ssh "${SSH:-ssh}" -- \
  "${PYTHON:-python3}" "${SCRIPT:-train_mnist.py}" "$@"
