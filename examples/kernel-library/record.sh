#!/bin/sh
# Run the tests, and write down in kernels.jsonl what they had compiled: the kernels that the wheel brings.
set -eu
cd "$(dirname "$0")"
recorded=$(mktemp -d)
trap 'rm -rf "$recorded"' EXIT
CUJIT_RECORD="$recorded" python -m pytest -q "$@"
python -m cujit worklist merge "$recorded" -o kernels.jsonl
