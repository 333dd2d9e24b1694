"""Tables of the attributes of a pod's volume with which a driver mounts a folder of its node.

Sources are given as repository and file.
"""

import re

ATTRIBUTES = {"csi": "volumeAttributes", "flexVolume": "options"}
"""Sources of volumes in which a pod gives a driver attributes, each with the field that has them.

In a PersistentVolume or a StorageClass an administrator writes the same attributes. Drivers pass them to mount(8) or to
a FUSE program, which run as root: `smb.csi.k8s.io` (kubernetes-csi/csi-driver-smb pkg/smb/nodeserver.go),
`file.csi.azure.com` (kubernetes-sigs/azurefile-csi-driver pkg/azurefile), `nfs.csi.k8s.io` (kubernetes-csi/
csi-driver-nfs pkg/nfs/nodeserver.go) and `blob.csi.azure.com` (kubernetes-sigs/blob-csi-driver pkg/blob). Drivers take
the names of attributes in any case.
"""

SERVERS = frozenset(("source", "server", "servername", "serveraddress", "networkpath"))
"""The names of attributes, in lower case, with the server or the source of a mount."""

_TREE = "bin|boot|csi|etc|lib|lib32|lib64|proc|registration|root|run|sbin|sys|usr|var"
"""Folders at the root of a node, and of the container of a driver, which has its socket in `/csi`.

No server has such a name, so `//var/lib/kubelet` is no share of a server.
"""

LOCAL_SOURCE = rf"^-|^[./]*({_TREE})(/|$)|(^|/)[.][.](/|$)"
"""Matches an option in place of a server, and a source that is a folder of the node if its mount is a bind mount.

The option `bind` may be in a Secret, where nobody sees it: drivers write a user's name between commas.
"""

_BEGIN, _END = r"(^|[\s,'\"])-{0,2}", r"($|[\s,'\"])"

LOCAL_OPTION = (
    rf"{_BEGIN}(bind|rbind|move){_END}"
    rf"|{_BEGIN}(config[-_]file|secure[-_]config)($|[\s,=])"
    rf"|[=\s]['\"]*[./]*/(home|opt|{_TREE})(/|{_END})"
)
"""Matches options that mount a folder of the node, or that name a file of the node.

For `bind` mount(8) ignores the type of the file system. blobfuse2 reads its settings from `--config-file`, and writes
what a container stores below `--tmp-path`.
"""

_local_source, _local_option = re.compile(LOCAL_SOURCE).search, re.compile(LOCAL_OPTION, re.ASCII).search


OPTIONS = ("option", "opts")
"""Parts of the names of attributes, in lower case, that have options of a mount: `mountOptions`, `otherOpts`."""


def local(name: str, value: str) -> str:
    """Return the part of an attribute's value by which a driver may mount a folder of its node; empty if none."""
    name, found = name.lower(), None
    if any(part in name for part in OPTIONS):
        found = _local_option(value)
    elif name in SERVERS:
        found = _local_source(value)
    return found[0].strip(" ,=\n\t'\"") if found else ""
