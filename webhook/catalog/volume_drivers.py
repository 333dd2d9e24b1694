"""Tables of the drivers that mount volumes of a pod by what the pod says.

Sources are given as repository and file.
"""

from webhook.catalog.names import Names

FILE = "file.csi.azure.com"

SOURCES = ("csi", "flexVolume")
"""Sources of volumes in which a pod names a driver and gives it attributes.

Drivers pass them to mount(8) or to a FUSE program, which run as root: `smb.csi.k8s.io` (kubernetes-csi/csi-driver-smb
pkg/smb/nodeserver.go), `file.csi.azure.com` (kubernetes-sigs/azurefile-csi-driver pkg/azurefile), `nfs.csi.k8s.io`
(kubernetes-csi/csi-driver-nfs pkg/nfs/nodeserver.go) and `blob.csi.azure.com` (kubernetes-sigs/blob-csi-driver
pkg/blob). With the option `bind` mount(8) mounts a folder of the node, and it may stand in a Secret of the pod's
namespace, where no webhook sees it. In a PersistentVolume or a StorageClass an administrator writes the same.
"""

IN_TREE = {"azureFile": FILE}
"""Sources of volumes that stand for a driver (kubernetes csi-translation-lib plugins/azure_file.go)."""

HARMLESS = Names(
    (
        "secrets-store.csi.k8s.io",
        "secrets-store-gke.csi.k8s.io",
        "csi.cert-manager.io",
        "spiffe.csi.cert-manager.io",
        "csi.spiffe.io",
        "csi.sharedresource.openshift.io",
        "gcsfuse.csi.storage.gke.io",
        "csi.oneagent.dynatrace.com",
        "k8s.csi.datadoghq.com",
    )
)
"""Drivers that write files of their own, or mount what they choose: no attribute becomes an option of a mount.

gcsfuse runs in the pod itself, and its driver takes options of mount(2) from a short list
(GoogleCloudPlatform/gcs-fuse-csi-driver pkg/csi_mounter). Dynatrace's and Datadog's mount folders of their own.
"""
