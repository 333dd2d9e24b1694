#!/bin/sh
# Measures all on a machine without a network: sh bench/gpu/lease.sh WHEELS RESULTS [PART [OPTIONS]]
# WHEELS holds our wheel, those of our dependencies and nvidia-ml-py; the frameworks are those of the machine's python3.
set -eu
wheels=$1 results=$2 part=${3:-all} status=0
shift 2
[ $# -eq 0 ] || shift
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 \
    python3 -m bench.gpu "$part" --json "$results/bench.json" "$@" >"$results/bench.md" 2>&1 || status=$?
cat "$results/bench.md"
exit "$status"
