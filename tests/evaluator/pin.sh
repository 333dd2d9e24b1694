#!/bin/sh
# Write go.mod and go.sum again, with the versions of the cluster in tests/e2e: tests/evaluator/pin.sh
set -eu
cd "$(dirname "$0")"
{
	echo "// Written by pin.sh: the API server's own code, by which the fallback is judged."
	sed -n '/^module/d; /^tool/,/^)/d; /^\/\/ Written/d; s/^go 1.*/module slicewarden.dev\/tests\/evaluator\n\n&/p; /^replace (/,/^)/p' ../e2e/go.mod
	sed -n 's|^\s*\(k8s.io/kubernetes v[^ ]*\).*|\nrequire \1|p' ../e2e/go.mod
} >go.mod
cp ../e2e/go.sum go.sum
go mod tidy
