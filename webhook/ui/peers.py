"""Finds out on Linux which user of this machine is at the other end of a connection on loopback.

The kernel shows all sockets of the machine, with their users, in /proc/net/tcp and tcp6
(https://docs.kernel.org/networking/proc_net_tcp.html). Other systems have no such files.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The second one has programs that reach an address of IPv4 by a socket of IPv6."""

Address = tuple[str, int]
"""An address of IPv4, and a port."""

ROOT, CLOSED = 0, -1
"""The administrator; and nobody, for a socket that its program has closed. The kernel shows that as one of root."""

_OPEN = ("01", "08")
"""States of a socket that a program has open: ESTABLISHED and CLOSE_WAIT (linux include/net/tcp_states.h)."""


def ours() -> frozenset[int]:
    """Return the users who may ask: that of this process and root, which can read the page's memory anyway.

    For root it is also the user who called sudo, whose browser is no program of root.
    """
    if sys.platform == "win32":  # it has neither the tables nor users by number
        return frozenset()
    users = {ROOT, os.getuid(), os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if ROOT in (os.getuid(), os.geteuid()) and caller.isascii() and caller.isdigit():
        users.add(int(caller))
    return frozenset(users)


def user(peer: Address, own: Address) -> int | None:
    """Return the user at the other end of a connection from `own` to `peer`; None if the system does not say."""
    for table in TABLES:
        try:
            with table.open(encoding="ascii") as rows:
                found = owner(rows, peer, own)
        except OSError:
            continue
        if found is not None:
            return found
    return None


def owner(rows: Iterable[str], local: Address, remote: Address) -> int | None:
    """Return the user of the socket with these two addresses, by the rows of a table; None if there is none.

    The result is CLOSED if the program may have closed the socket.
    """
    start, end = _written(local), _written(remote)
    for row in rows:
        if start in row:
            _, here, there, state, _, _, _, uid, *_ = row.split()
            if here in (start, _MAPPED + start) and there in (end, _MAPPED + end):
                return int(uid) if int(uid) != ROOT or state in _OPEN else CLOSED
    return None


def _written(address: Address) -> str:
    """Write an address as the kernel does: its words as numbers in the order of the machine's bytes."""
    return f"{_word(socket.inet_aton(address[0]))}:{address[1]:04X}"


def _word(data: bytes) -> str:
    return f"{struct.unpack('=I', data)[0]:08X}"


_MAPPED = _word(bytes(4)) * 2 + _word(b"\0\0\xff\xff")
"""What stands before an address of IPv4 in one of IPv6."""
