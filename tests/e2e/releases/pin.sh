#!/bin/sh
# Write the go.mod and go.sum of older releases of Kubernetes again: tests/e2e/releases/pin.sh 1.30.14 [1.33.13 …]
# Each has a folder, named by its minor release. etcd, KWOK and kubectl stay those of the folder above.
# INSTEAD='k8s.io/endpointslice@v0.32.11 …' takes libraries of another patch release, where the proxy lacks some. The
# page of what ran names them.
set -eu
cd "$(dirname "$0")"
for kubernetes; do
	minor=${kubernetes%.*}
	upstream=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	mkdir -p "$minor"
	cat >"$minor/go.mod" <<GO
// Written by pin.sh: the programs of Kubernetes $minor, on which \`make versions\` runs the tests of a cluster.
module slicewarden.dev/tests/cluster

$(grep '^go ' "$upstream")

replace (
$(sed -n "s|=> \./staging/src/\(.*\)|=> \1 v0.${kubernetes#1.}|p" "$upstream")
)
GO
	rm -f "$minor/go.sum"
	(
		cd "$minor"
		for library in ${INSTEAD-}; do
			go mod edit -replace="${library%@*}=$library"
		done
		go get \
			"k8s.io/kubernetes/cmd/kube-apiserver@v$kubernetes" \
			"k8s.io/kubernetes/cmd/kube-controller-manager@v$kubernetes" \
			"k8s.io/kubernetes/cmd/kube-scheduler@v$kubernetes"
	)
done
