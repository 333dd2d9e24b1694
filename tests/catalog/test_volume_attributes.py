"""Attributes of volumes: those with which a driver mounts a folder of its node, and those of honest pods."""

import pytest

from webhook.catalog.volume_attributes import local


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("mountOptions", "bind", "bind"),
        ("mountoptions", "vers=3.0,rbind,ro", "rbind"),
        ("MOUNTOPTIONS", "ro\tbind", "bind"),
        ("mountOptions", "a,move", "move"),
        ("otherOpts", "-o allow_other -o bind", "bind"),
        ("options", "'bind'", "bind"),
        ("mountOptions", "--config-file=/mnt/a", "--config-file"),
        ("mountOptions", "-o rw --config-file /mnt/a", "--config-file"),
        ("mountOptions", "--tmp-path=/etc/cron.d", "/etc/"),
        ("mountOptions", "--tmp-path //var", "//var"),
        ("mountOptions", "--log-file-path=/home/a", "/home/"),
        ("source", "/var/lib/kubelet", "/var/"),
        ("Source", "//var/lib/kubelet", "//var/"),
        ("source", "./var", "./var"),
        ("networkPath", "etc/kubernetes", "etc/"),
        ("source", "//nas/../var", "/../"),
        ("server", "var", "var"),
        ("source", "//csi", "//csi"),
        ("server", "--verbose", "-"),
    ],
)
def test_what_mounts_a_folder_of_the_node(name: str, value: str, part: str) -> None:
    assert local(name, value) == part


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mountOptions", "dir_mode=0777,file_mode=0777,uid=1000,cache=strict,mfsymlinks,nobrl"),
        ("mountOptions", "x-bind,bindings,nomove,bind=1,only-dir=bind/move"),
        ("mountOptions", "-o allow_other --file-cache-timeout-in-seconds=120 --tmp-path=/mnt/blobfuse"),
        ("mountOptions", "implicit-dirs,only-dir=var/models"),
        ("source", "//nas.example.com/var/lib"),
        ("source", "//variance/etc"),
        ("server", "var.example.com"),
        ("server", "fd00::2"),
        ("share", "/var/nfs"),  # the server's folder
        ("shareName", "etc"),
        ("objects", "array:\n  - bind"),
        ("bucketName", "var"),
    ],
)
def test_what_an_honest_pod_writes(name: str, value: str) -> None:
    assert local(name, value) == ""
