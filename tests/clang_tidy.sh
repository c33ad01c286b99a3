#!/bin/sh
# clang-tidy over the engine's sources.  $1: `files` reads each source alone, unless it passed unchanged; `folders` the
# sources of a folder as one, as BUILD compiles them, in a fifth of the time.  The rest: options of clang-tidy, for
# example other checks.
set -eu
build=${BUILD:-build/release}
unit=$1
shift
root=$(pwd -P)
here=$(printf %s "$root" | sed 's/[][().*+?^$|{}\\]/\\&/g')  # as a pattern
files="$here/(src|3rdparty/ps-lite/src)/.*\.cc"
commands=$build/clang-tidy
# Without precompiled headers: clang-tidy reads those of its own version alone.
mkdir -p "$commands"
sed -e 's/-Winvalid-pch -include [^ ]*//' \
  -e 's/-Winvalid-pch -Xclang -include-pch -Xclang [^ ]* -Xclang -include -Xclang [^ ]*//' \
  "$build/compile_commands.json" >"$commands/compile_commands.json"
set -- -extra-arg=-Wthread-safety "$@"
if [ "$unit" = folders ]; then
  files="$files|$here/.*/Unity/unity_+(src|3rdparty_ps_lite_src)_.*\.cxx"
  # A finding in a source of the folder counts as one in a header.
  set -- run-clang-tidy.py -quiet -j "${JOBS:-2}" -p "$commands" -header-filter="^$here/.*\.(cc|h)$" "$@" "^($files)$"
else
  set -- python tests/lanes/lint_sources.py --jobs "${JOBS:-2}" --commands "$commands" --sources "^($files)$" "$@"
fi
"$@" >"$build/clang-tidy.log" 2>&1 || {
  grep -E '(warning|error):' "$build/clang-tidy.log" | sort -u >&2
  echo "clang-tidy found the above; the whole report: $build/clang-tidy.log" >&2
  exit 1
}
[ "$unit" = folders ] || tail -n 1 "$build/clang-tidy.log"
