#!/bin/sh
# What CI runs: compile what is listed and not yet in the store, for each architecture, and sign and publish it. With
# SCOPE=pr/17 and a key of its own it does so for a change that nobody has looked at yet, into a store that releases do not
# read. EXECUTOR=dask://host:8786 has a cluster compile, which sees ROOT; only this machine has the key.
set -eu
: "${STORE:?such as http://farm:password@kernels.example/cuda}" "${KEY:?the file of the private key}"
LIST=${LIST:-kernels.jsonl}

# A directory of its own: what other jobs have left in that of the machine is not signed.
TEMPORARY=$(mktemp -d)
trap 'rm -rf "$TEMPORARY"' EXIT

set --
for arch in ${ARCHES:-sm_90 sm_100}; do set -- "$@" --arch "$arch"; done
cujit farm build "$LIST" "$@" --executor "${EXECUTOR:-processes}" --root "${ROOT:-$TEMPORARY}" \
  --store "$STORE" --key "$KEY" --scope "${SCOPE:-main}"
