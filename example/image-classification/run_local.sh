#!/bin/sh
# Train on this host: WORKERS workers and SERVERS servers; all arguments go to the training script.
#
#   ./run_local.sh                                   two workers, one server, train_mnist.py
#   WORKERS=4 SERVERS=2 ./run_local.sh --network mlp --num-epochs 5
#   SCRIPT=train_gluon.py ./run_local.sh
#
# PYTHON (default python3) and BSLAUNCH (default bslaunch) name the programs.
set -eu
exec "${BSLAUNCH:-bslaunch}" --local -w "${WORKERS:-2}" -s "${SERVERS:-1}" -- \
  "${PYTHON:-python3}" "$(dirname "$0")/${SCRIPT:-train_mnist.py}" "$@"
