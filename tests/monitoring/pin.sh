#!/bin/sh
# Write go.mod and go.sum again, for another release of Prometheus: tests/monitoring/pin.sh [VERSION]
# It finds targets by Kubernetes alone: the clients of clouds are half of the server.
set -eu
cd "$(dirname "$0")"
cat >go.mod <<GO
// Written by pin.sh: the program that checks the alerts and the dashboard, and the server that evaluates them.
module slicewarden.dev/tests/monitoring

go 1.26
GO
rm -f go.sum
GOFLAGS=-tags=remove_all_sd,enable_kubernetes_sd go get -tool "github.com/prometheus/prometheus/cmd/promtool@v0.${1:-313.0}" \
	"github.com/prometheus/prometheus/cmd/prometheus@v0.${1:-313.0}"
