#!/bin/sh
# Write go.mod and go.sum again, for another version: tests/e2e/flux/pin.sh [FLUX]
# Flux's controllers replace some libraries, and so has whoever builds them. Go's proxy lacks the patch release of fluxcd/pkg/artifact that they ask for.
set -eu
cd "$(dirname "$0")"
flux=${1:-1.9.6}
rm -f go.mod go.sum
for each in source-controller kustomize-controller; do
	upstream=$(go mod download -json "github.com/fluxcd/$each@v$flux" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	lines="${lines:-}$(sed -nE 's/^(replace )?\s*(\S+ => \S+\.\S+ v\S+)$/\t\2/p' "$upstream")
"
done

cat >go.mod <<GO
// Written by pin.sh: Flux's controllers of sources and of kustomizations.
module slicewarden.dev/tests/flux

go 1.26.0

replace (
	github.com/fluxcd/pkg/artifact => github.com/fluxcd/pkg/artifact v0.18.1
$(printf %s "$lines" | sort -u)
)
GO
GOFLAGS=-mod=mod go get -tool "github.com/fluxcd/source-controller@v$flux" "github.com/fluxcd/kustomize-controller@v$flux"
