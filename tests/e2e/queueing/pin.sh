#!/bin/sh
# Write go.mod and go.sum again, for another version: tests/e2e/queueing/pin.sh [KUEUE]
# Kueue was released with libraries older than the cluster's, so it has a module of its own. Its checksums are a start for ours.
set -eu
cd "$(dirname "$0")"
kueue=${1:-0.19.0}
sums=$(go mod download -json "sigs.k8s.io/kueue@v$kueue" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/go.sum

cat >go.mod <<GO
// Written by pin.sh: Kueue, with the libraries that it was released with.
module slicewarden.dev/tests/kueue

go 1.26.0
GO
cat "$sums" >go.sum
GOFLAGS=-mod=mod go get -tool "sigs.k8s.io/kueue/cmd/kueue@v$kueue"
go mod tidy
