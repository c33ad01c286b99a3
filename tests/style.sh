#!/bin/sh
# Formatters, linters of Python and Cython, types, schemas, house rules: seconds each.
set -eu
clang-format --dry-run -Werror $(git ls-files '*.h' '*.cc')
# These have no release for Python 3.8 and 3.9.
if python -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  cython-lint --max-line-length 100 python/
  check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
  kubernetes-validate --strict --quiet example/kubernetes/*.yaml
fi
ruff format --check .
ruff check .
mypy
pytest -q -p no:cacheprovider ${RESULTS:+--junitxml=$RESULTS/tidy.xml} tests/tidy
