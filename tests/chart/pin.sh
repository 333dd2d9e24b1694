#!/bin/sh
# Write go.mod and go.sum again, for another version of Helm: tests/chart/pin.sh [HELM]
set -eu
cd "$(dirname "$0")"
helm=${1:-4.3.1}

cat >go.mod <<GO
// Written by pin.sh: Helm, which renders the chart for the tests in this folder.
module slicewarden.dev/tests/chart

go 1.26.0
GO
rm -f go.sum
go get -tool "helm.sh/helm/v4/cmd/helm@v$helm"
go mod tidy
