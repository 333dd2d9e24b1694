#!/bin/sh
# Write go.mod and go.sum again, for another version: tests/signing/pin.sh [COSIGN]
set -eu
cd "$(dirname "$0")"
printf '// Written by pin.sh: cosign, which signs a statement and verifies it.\nmodule slicewarden.dev/tests/signing\n\ngo 1.26.0\n' >go.mod
rm -f go.sum
GOFLAGS=-mod=mod go get -tool "github.com/sigstore/cosign/v3/cmd/cosign@v${1:-3.1.3}"
