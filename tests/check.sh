#!/bin/sh
# What a reviewer should never have to say: formatting, lints, types, house rules.
set -eu
build=${BUILD:-build/release}
jobs=${JOBS:-2}
here=$(pwd -P | sed 's/[][().*+?^$|{}\\]/\\&/g')  # as a pattern
cpp=$(git ls-files '*.h' '*.cc')
clang-format --dry-run -Werror $cpp
run-clang-tidy.py -quiet -j "$jobs" -p "$build" -extra-arg=-Wthread-safety \
  "^$here/(src|3rdparty/ps-lite/src)/.*\.cc$" >"$build/clang-tidy.log" 2>&1 || {
  grep -E '(warning|error):' "$build/clang-tidy.log" | sort -u >&2
  echo "clang-tidy found the above; the whole report: $build/clang-tidy.log" >&2
  exit 1
}
# There is none for Python 3.8 and 3.9.
if python -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  cython-lint --max-line-length 100 python/
fi
ruff format --check .
ruff check .
mypy
pytest -q tests/tidy
