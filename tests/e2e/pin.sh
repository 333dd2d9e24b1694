#!/bin/sh
# Write go.mod and go.sum again, for other versions: tests/e2e/pin.sh [KUBERNETES [ETCD [KWOK]]]
# Kubernetes wants its own libraries from its own tree; outside of it they are replaced by what was published of them.
set -eu
cd "$(dirname "$0")"
kubernetes=${1:-1.37.1} etcd=${2:-3.7.3} kwok=${3:-0.8.0}
upstream=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')

cat >go.mod <<GO
// Written by pin.sh: the programs of the cluster that the tests in this folder start.
module slicewarden.dev/tests/cluster

$(grep '^go ' "$upstream")

replace (
$(sed -n "s|=> \./staging/src/\(.*\)|=> \1 v0.${kubernetes#1.}|p" "$upstream")
)
GO
rm -f go.sum
go get -tool \
	"go.etcd.io/etcd/server/v3@v$etcd" \
	"k8s.io/kubernetes/cmd/kube-apiserver@v$kubernetes" \
	"k8s.io/kubernetes/cmd/kube-controller-manager@v$kubernetes" \
	"k8s.io/kubernetes/cmd/kube-scheduler@v$kubernetes" \
	"k8s.io/kubernetes/cmd/kubectl@v$kubernetes" \
	"sigs.k8s.io/kwok/cmd/kwok@v$kwok"
go mod tidy
