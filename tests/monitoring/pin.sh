#!/bin/sh
# Write go.mod and go.sum again, for another release of Prometheus: tests/monitoring/pin.sh [VERSION]
# Without the clients of clouds by which a server finds what to scrape; promtool reads and tests rules without them.
set -eu
cd "$(dirname "$0")"
cat >go.mod <<GO
// Written by pin.sh: the program that checks the alerts and the dashboard.
module slicewarden.dev/tests/monitoring

go 1.26
GO
rm -f go.sum
GOFLAGS=-tags=remove_all_sd go get -tool "github.com/prometheus/prometheus/cmd/promtool@v0.${1:-313.0}"
