"""The user of a program that connects is read from the kernel's tables of sockets."""

import os
import socket
from pathlib import Path

import pytest

from webhook.ui import peers

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
HERE, THERE = ("127.0.0.1", 0xC001), ("127.0.0.1", 0x1F90)


def row(local: str, remote: str, uid: int, state: str = "01") -> str:
    queues = f"{state} 00000000:00000000 00:00000000 00000000"
    return f"   0: {local} {remote} {queues}  {uid:>4}        0 4711 2 0 20 0 0 10 -1\n"


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_row_of_both_addresses_has_the_user(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, mapped = ("0100007F", "FFFF0000") if order == "little" else ("7F000001", "0000FFFF")
    monkeypatch.setattr(peers, "_word", lambda data: f"{int.from_bytes(data, order):08X}")  # type: ignore[arg-type]
    monkeypatch.setattr(peers, "_MAPPED", peers._word(bytes(4)) * 2 + peers._word(b"\0\0\xff\xff"))
    client, server = f"{one}:C001", f"{one}:1F90"
    wide = "0" * 16 + mapped
    others = [HEAD, row(server, client, 1), row(client, f"{one}:1F91", 2), row(client, "0" * 8 + ":0000", 3)]
    assert peers.owner([*others, row(client, server, 4)], HERE, THERE) == 4
    assert peers.owner([*others, row(wide + client, wide + server, 5)], HERE, THERE) == 5
    assert peers.owner([*others, row("1" + (wide + client)[1:], wide + server, 5)], HERE, THERE) is None
    assert peers.owner(others, HERE, THERE) is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_says_that_this_process_connects(family: socket.AddressFamily) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(family) as client:
        port = listening.getsockname()[1]
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        accepted, peer = listening.accept()
        with accepted:
            assert peers.user(peer, accepted.getsockname()) == os.geteuid()


@pytest.mark.parametrize(
    ("state", "uid", "user"), [("01", 0, 0), ("08", 0, 0), ("05", 1000, 1000), ("05", 0, peers.CLOSED)]
)
def test_a_socket_that_its_program_has_closed_is_nobodys(state: str, uid: int, user: int) -> None:
    """The kernel shows it as one of root, who may ask."""
    client, server = peers._written(HERE), peers._written(THERE)
    assert peers.owner([HEAD, row(client, server, uid, state)], HERE, THERE) == user
    assert peers.CLOSED not in peers.ours()


def test_a_system_without_tables_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "TABLES", (tmp_path / "tcp",))
    assert peers.user(HERE, THERE) is None


def test_the_caller_of_sudo_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for uid, caller, users in ((1000, "1001", {0, 1000}), (0, "1001", {0, 1001}), (0, "x", {0}), (0, "", {0})):
        monkeypatch.setattr("os.getuid", lambda uid=uid: uid)
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        monkeypatch.setenv("SUDO_UID", caller)
        assert peers.ours() == users
