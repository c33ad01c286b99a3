#!/bin/sh
# clang-tidy over the engine's sources.  $1: options of clang-tidy, for example other checks.
set -eu
build=${BUILD:-build/release}
here=$(pwd -P | sed 's/[][().*+?^$|{}\\]/\\&/g')  # as a pattern
# Without GCC's precompiled headers, which Clang cannot read.
mkdir -p "$build/clang-tidy"
sed 's/-Winvalid-pch -include [^ ]*//' "$build/compile_commands.json" >"$build/clang-tidy/compile_commands.json"
run-clang-tidy.py -quiet -j "${JOBS:-2}" -p "$build/clang-tidy" -extra-arg=-Wthread-safety "$@" \
  "^$here/(src|3rdparty/ps-lite/src)/.*\.cc$" >"$build/clang-tidy.log" 2>&1 || {
  grep -E '(warning|error):' "$build/clang-tidy.log" | sort -u >&2
  echo "clang-tidy found the above; the whole report: $build/clang-tidy.log" >&2
  exit 1
}
