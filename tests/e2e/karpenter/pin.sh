#!/bin/sh
# Write go.mod and go.sum again, for another version: tests/e2e/karpenter/pin.sh [KARPENTER]
# Karpenter asks for a patch release of Go that only its own builds need. It is built in its own folder, by its own go.mod with our release.
set -eu
cd "$(dirname "$0")"
version=v${1:-1.15.0}
# The command fails where Go is older than the module asks for, and unpacks the module anyway.
go mod download -json "sigs.k8s.io/karpenter@$version" >/dev/null || true
module=$(go env GOMODCACHE)/sigs.k8s.io/karpenter@$version
{
	echo "// Written by pin.sh: Karpenter $version, with the libraries that it was released with."
	sed 's/^go .*/go 1.26.0/' "$module/go.mod"
} >go.mod
cat "$module/go.sum" >go.sum
