#!/bin/sh
# clang-tidy over the engine's sources.  $1: `files` reads each source alone, `folders` the sources of a folder as one,
# as BUILD compiles them, in a fifth of the time.  The rest: options of run-clang-tidy.py, for example other checks.
set -eu
build=${BUILD:-build/release}
unit=$1
shift
root=$(pwd -P)
here=$(printf %s "$root" | sed 's/[][().*+?^$|{}\\]/\\&/g')  # as a pattern
files="$here/(src|3rdparty/ps-lite/src)/.*\.cc"
if [ "$unit" = folders ]; then
  # A finding in a source of the folder counts as one in a header.
  set -- -header-filter="^$here/.*\.(cc|h)$" "$@"
  files="$files|$here/.*/Unity/unity_+(src|3rdparty_ps_lite_src)_.*\.cxx"
fi
# Without precompiled headers: clang-tidy reads those of its own version alone.
mkdir -p "$build/clang-tidy"
sed -e 's/-Winvalid-pch -include [^ ]*//' \
  -e 's/-Winvalid-pch -Xclang -include-pch -Xclang [^ ]* -Xclang -include -Xclang [^ ]*//' \
  "$build/compile_commands.json" >"$build/clang-tidy/compile_commands.json"
run-clang-tidy.py -quiet -j "${JOBS:-2}" -p "$build/clang-tidy" -extra-arg=-Wthread-safety "$@" \
  "^($files)$" >"$build/clang-tidy.log" 2>&1 || {
  grep -E '(warning|error):' "$build/clang-tidy.log" | sort -u >&2
  echo "clang-tidy found the above; the whole report: $build/clang-tidy.log" >&2
  exit 1
}
