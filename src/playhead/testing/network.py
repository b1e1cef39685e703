"""The switch that forbids the network: in this process, only loopback can be reached or named."""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch


class NetworkForbiddenError(AssertionError):
    """Code under test tried to leave this machine. Not an OSError: it must not pass for a lost connection."""


@contextmanager
def no_network() -> Iterator[list[str]]:
    """Forbid all that is not loopback, for as long as the block runs.

        @pytest.fixture(autouse=True)
        def loopback_only():
            with no_network():
                yield

    An attempt raises `NetworkForbiddenError` on the spot, and once more at the end of the block,
    because code under test may well swallow the first one. The list that the block is given holds
    the attempts so far; what is taken out of it is forgiven. Blocks may be nested.

    It guards what goes through Python's `socket` module, as asyncio and every usual HTTP client do,
    and no child process.
    """
    attempts: list[str] = []
    with ExitStack() as stack:
        for target, name, guarded in _guards(attempts):
            stack.enter_context(patch.object(target, name, guarded))
        yield attempts
    if attempts:
        raise NetworkForbiddenError(_refusal(", ".join(attempts)))


def _guards(attempts: list[str]) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for name in ("connect", "connect_ex"):
        yield socket.socket, name, _guarded(getattr(socket.socket, name), 0, attempts)
    # sendto(data, address) or sendto(data, flags, address); sendmsg(buffers, ancdata, flags, address)
    yield socket.socket, "sendto", _guarded(socket.socket.sendto, -1, attempts)
    yield socket.socket, "sendmsg", _guarded(socket.socket.sendmsg, 3, attempts)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        yield socket, name, _named(getattr(socket, name), attempts)


def _guarded(method: Callable[..., Any], position: int, attempts: list[str]) -> Callable[..., Any]:
    def call(self: socket.socket, *args: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and len(args) > max(position, 0):
            address = args[position]
            if isinstance(address, tuple) and not _is_loopback(address[0]):
                _refuse(f"{address[0]}:{address[1]}", attempts)
        return method(self, *args)

    return call


def _named(function: Callable[..., Any], attempts: list[str]) -> Callable[..., Any]:
    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not (_is_loopback(host) or _is_literal(host)):
            _refuse(f"the name {host!r}", attempts)
        return function(host, *args, **kwargs)

    return look_up


def _refuse(target: str, attempts: list[str]) -> None:
    attempts.append(target)
    raise NetworkForbiddenError(_refusal(target))


def _refusal(target: str) -> str:
    return f"The code under test reached for {target}: only loopback is allowed. Use FakeProvider."


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
