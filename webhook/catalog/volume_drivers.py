"""Tables of the drivers that mount volumes of a pod by what the pod says.

Sources are given as repository and file.
"""

from webhook.catalog.names import Names

HARMLESS = Names(
    (
        "secrets-store.csi.k8s.io",
        "secrets-store-gke.csi.k8s.io",
        "csi.cert-manager.io",
        "spiffe.csi.cert-manager.io",
        "csi.spiffe.io",
        "csi.sharedresource.openshift.io",
    )
)
"""Drivers that mount a file system of their own making: nothing in a pod or its Secret becomes a source or an option.

Sources: kubernetes-sigs/secrets-store-csi-driver pkg/secrets-store/nodeserver.go, cert-manager/csi-lib
driver/nodeserver.go and storage/filesystem.go, spiffe/spiffe-csi pkg/driver/driver.go, and
openshift/csi-driver-shared-resource pkg/csidriver. Drivers of buckets and of agents are not here: releases of the last
year followed links or names of a tenant (GoogleCloudPlatform/gcs-fuse-csi-driver before 1.24,
Dynatrace/dynatrace-operator before 1.9, DataDog/datadog-csi-driver 1.2).
"""

SOURCES = {"csi": HARMLESS, "flexVolume": Names(())}
"""Sources of volumes in which a pod names a driver and gives it attributes, each with the drivers that pass.

Drivers pass them to mount(8) or to a FUSE program, which run as root: `smb.csi.k8s.io` (kubernetes-csi/csi-driver-smb
pkg/smb/nodeserver.go), `file.csi.azure.com` (kubernetes-sigs/azurefile-csi-driver pkg/azurefile), `nfs.csi.k8s.io`
(kubernetes-csi/csi-driver-nfs pkg/nfs/nodeserver.go) and `blob.csi.azure.com` (kubernetes-sigs/blob-csi-driver
pkg/blob). With the option `bind` mount(8) mounts a folder of the node, and it may stand in a Secret of the pod's
namespace, where no webhook sees it. In a PersistentVolume or a StorageClass an administrator writes the same.
"""

IN_TREE = {"azureFile": "file.csi.azure.com"}
"""Sources of volumes that stand for a driver (kubernetes csi-translation-lib plugins/azure_file.go)."""
