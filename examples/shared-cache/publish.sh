#!/bin/sh
# What CI runs: compile what is listed, for each architecture, and sign and publish it. With SCOPE=pr/17 and a key of its own
# it does so for a change that nobody has looked at yet, into a store that releases do not read.
set -eu
: "${STORE:?such as http://farm:password@kernels.example/cuda}" "${KEY:?the file of the private key}"
LIST=${LIST:-kernels.jsonl}

# Into a cache of its own: what other jobs have left in that of the machine is not signed.
CUJIT_CACHE_DIR=$(mktemp -d)
export CUJIT_CACHE_DIR
unset CUJIT_REMOTE CUJIT_CACHE_ROOTS
trap 'rm -rf "$CUJIT_CACHE_DIR"' EXIT

set --
for arch in ${ARCHES:-sm_90 sm_100}; do set -- "$@" --arch "$arch"; done
cujit worklist build "$LIST" "$@"
cujit cache push "$STORE" --key "$KEY" --scope "${SCOPE:-main}"
