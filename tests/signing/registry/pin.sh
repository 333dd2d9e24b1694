#!/bin/sh
# Write go.mod and go.sum again, for other versions: tests/signing/registry/pin.sh [DISTRIBUTION] [CRANE]
set -eu
cd "$(dirname "$0")"
printf '// Written by pin.sh: the registry that a release is rehearsed with, and crane, which puts images into it.\nmodule slicewarden.dev/tests/signing/registry\n\ngo 1.26.0\n' >go.mod
rm -f go.sum
export GOFLAGS=-mod=mod
go get -tool "github.com/distribution/distribution/v3/cmd/registry@v${1:-3.1.2}"
go get -tool "github.com/google/go-containerregistry/cmd/crane@v${2:-0.22.1}"
