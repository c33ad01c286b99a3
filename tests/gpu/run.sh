#!/bin/sh
# Trains with two workers on one GPU, and compares with one process; makes the calls of
# torch.distributed there; then trains with one worker whose sums PyTorch's own NCCL makes.  It
# builds and downloads nothing, and takes less than seven minutes:
#
#     make wheel                       # on a machine that builds; dist/ then travels with the tree
#     tests/gpu/run.sh                 # on the machine with a GPU; its python3 has PyTorch
#     tests/gpu/run.sh --double        # without a GPU: the same steps on the tests' double
#
# --installed takes the package that this Python has, in the place of a wheel of dist/.  PYTHON names
# another Python, OUT a folder for the timelines.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
out=${OUT:-$here/../../build/gpu}
double='' installed=''
for option; do
  case $option in
    --double) double=--double ;;
    --installed) installed=1 ;;
    *) echo "run.sh: $option is no option; want --double or --installed" >&2; exit 2 ;;
  esac
done

target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT
if [ -z "$installed" ]; then
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  wheel=$(ls "$here"/../../dist/bytescheduler-*-"$tag"-*.whl 2>/dev/null | tail -n 1)
  if [ -z "$wheel" ]; then
    echo "run.sh: dist/ has no wheel for $tag; run make wheel where that Python is, and bring it" >&2
    exit 2
  fi
  "$python" "$here/check.py" --wheel "$wheel"
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$target" "$wheel"
  export PYTHONPATH="$target"
fi
mkdir -p "$out"
# Sums and weights are compared bit for bit, so each kernel must do the same each time.
export CUBLAS_WORKSPACE_CONFIG=:4096:8 BYTESCHEDULER_DETERMINISTIC=1
timeout 400 "$python" "$here/check.py" $double --out "$out"
