#!/bin/sh
# Write the go.mod and go.sum of each folder here again. For other versions, edit them below; Kubernetes' is that of tests/e2e.
# NVIDIA's Kubernetes libraries are older than the cluster's, so they share no module with it.
set -eu
cd "$(dirname "$0")"

# pinned FOLDER WHAT LINES TOOL...: a module of its own, with these lines in its go.mod, that pins these programs.
pinned() {
	folder=$1 what=$2 lines=$3
	shift 3
	mkdir -p "$folder"
	printf '// Written by pin.sh: %s.\nmodule slicewarden.dev/tests/node/%s\n\n%s\n' "$what" "$folder" "$lines" >"$folder/go.mod"
	rm -f "$folder/go.sum"
	(cd "$folder" && GOFLAGS=-mod=mod go get -tool "$@")
}

kubernetes=$(sed -n 's|^\tk8s.io/kubernetes v\([^ ]*\).*|\1|p' ../../e2e/go.mod)
pinned kubernetes "kubelet and kube-proxy of the cluster's release" "$(sed -n '/^go /,/^)/p' ../../e2e/go.mod)" \
	"k8s.io/kubernetes/cmd/kubelet@v$kubernetes" \
	"k8s.io/kubernetes/cmd/kube-proxy@v$kubernetes"
pinned runtime "what starts containers and connects them" "go 1.26.0" \
	github.com/containerd/containerd/v2/cmd/containerd@v2.4.2 \
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2 \
	github.com/containerd/containerd/v2/cmd/ctr@v2.4.2 \
	github.com/opencontainers/runc@v1.5.2 \
	github.com/containernetworking/plugins/plugins/main/bridge@v1.9.1 \
	github.com/containernetworking/plugins/plugins/main/loopback@v1.9.1 \
	github.com/containernetworking/plugins/plugins/ipam/host-local@v1.9.1
pinned nvidia "NVIDIA's device plugin, what labels nodes and switches configurations beside it, and its container runtime" "go 1.26.0" \
	github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin@v0.19.3 \
	github.com/NVIDIA/k8s-device-plugin/cmd/config-manager@v0.19.3 \
	github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery@v0.19.3 \
	github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime@v1.19.1 \
	github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@v1.19.1
pinned toolkit "the first release of NVIDIA's toolkit whose hook sets memory limits, and the hook" "go 1.26.0" \
	github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook@v1.20.1 \
	github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime@v1.20.1
pinned labels "NFD, which brings what GPU Feature Discovery finds to the nodes" "go 1.26.0

replace sigs.k8s.io/node-feature-discovery/api/nfd => sigs.k8s.io/node-feature-discovery/api/nfd v0.18.3" \
	sigs.k8s.io/node-feature-discovery/cmd/nfd-master@v0.18.3 \
	sigs.k8s.io/node-feature-discovery/cmd/nfd-worker@v0.18.3
# kube-network-policies asks for a netlink between two releases, which no checksum database knows.
pinned policies "what enforces NetworkPolicies" "go 1.26.0

replace github.com/vishvananda/netlink => github.com/vishvananda/netlink v1.3.1" \
	sigs.k8s.io/kube-network-policies/cmd/kube-network-policies/standard@v1.1.1

# Under a name below cert-manager's own, since its webhook's server is internal to it.
cat >cert-manager/go.mod <<GO
// Written by pin.sh: cert-manager's programs; main.go says how they begin.
module github.com/cert-manager/cert-manager/slicewarden

go 1.26.0
GO
rm -f cert-manager/go.sum
(cd cert-manager && go get github.com/cert-manager/cert-manager@v1.21.2 && go mod tidy)
