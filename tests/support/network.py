"""The switch that forbids the network: in this process, only loopback can be reached or named.

An attempt raises, and is also written down, because code under test may well swallow the error:
`conftest.py` fails the test in which it happened.
"""

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import pytest

attempts: list[str] = []


class NetworkForbiddenError(AssertionError):
    """A test tried to leave this machine. Not an OSError: it must not pass for a lost connection."""


def forbid(patch: pytest.MonkeyPatch) -> None:
    """Patch `socket` so that every way out raises, and stays so until `patch` is undone."""
    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name), 0))
    # sendto(data, address) or sendto(data, flags, address); sendmsg(buffers, ancdata, flags, address)
    patch.setattr(socket.socket, "sendto", _guarded(socket.socket.sendto, -1))
    patch.setattr(socket.socket, "sendmsg", _guarded(socket.socket.sendmsg, 3))
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        patch.setattr(socket, name, _named(getattr(socket, name)))


def _guarded(method: Callable[..., Any], position: int) -> Callable[..., Any]:
    def call(self: socket.socket, *args: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and len(args) > max(position, 0):
            address = args[position]
            if isinstance(address, tuple) and not _is_loopback(address[0]):
                _refuse(f"{address[0]}:{address[1]}")
        return method(self, *args)

    return call


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not (_is_loopback(host) or _is_literal(host)):
            _refuse(f"the name {host!r}")
        return function(host, *args, **kwargs)

    return look_up


def _refuse(target: str) -> None:
    attempts.append(target)
    raise NetworkForbiddenError(f"a test reached for {target}: only loopback is allowed, use FakeProvider")


def _text(host: Any) -> str:
    return host.decode() if isinstance(host, bytes) else str(host)


def _is_literal(host: Any) -> bool:
    try:
        ipaddress.ip_address(_text(host))
    except ValueError:
        return False
    return True


def _is_loopback(host: Any) -> bool:
    if host is None or _text(host).rstrip(".").lower() in ("", "localhost"):
        return True
    # The unspecified address (0.0.0.0, ::) reaches this machine only.
    return _is_literal(host) and ((ip := ipaddress.ip_address(_text(host))).is_loopback or ip.is_unspecified)
