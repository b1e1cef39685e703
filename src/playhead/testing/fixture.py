"""A recorded exchange as a file: what was asked, what came back in which pieces, and no secret."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from playhead.encode import star_keys
from playhead.errors import PlayheadError

VERSION = 1
HIDDEN = "***"

_KEPT_REQUEST_HEADERS = frozenset(
    {"accept", "content-type", "anthropic-version", "anthropic-beta", "openai-beta"}
)
_UNSAID_HEADERS = frozenset(
    {"host", "connection", "keep-alive", "content-length", "transfer-encoding", "accept-encoding"}
)
_KEPT_RESPONSE_HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms"})
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|pass|signature|cred|session", re.IGNORECASE)
# A key that is shorter is no key but a placeholder such as "none", which bodies may well hold.
_SHORTEST_KEY = 8
# A field of a body that can only hold a secret: its value, up to its closing quote.
_SECRET_FIELD = re.compile(
    r"""("(?:(?:x[-_])?api[-_]?key|(?:access|refresh|id|auth)[-_]?token|(?:client[-_]?)?secret(?:[-_]?key)?
        |password|authorization)"\s*:\s*") ((?:[^"\\]|\\.)*)""",
    re.IGNORECASE | re.VERBOSE,
)
_ACCOUNT = re.compile(r"\b(?:org|proj)[-_][A-Za-z0-9]{10,}")

Chunk: TypeAlias = str | dict[str, str]
"""Bytes in a file: text where they are UTF-8, else `{"base64": ...}`."""


class RecordedRequest(msgspec.Struct, frozen=True):
    """What was asked. Header names are lower-case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: Chunk = ""


class RecordedResponse(msgspec.Struct, frozen=True):
    """What came back. `length` is the announced size of the body, for framing `length`.

    `end`: the whole body came (`keep`), the provider closed (`fin`) or reset (`rst`) the connection
    before that, or the client left while the provider was silent or still talking (`hang`).
    """

    status: int
    headers: Mapping[str, str]
    chunks: Sequence[Chunk]
    framing: Literal["chunked", "length", "close"] = "chunked"
    length: int | None = None
    end: Literal["keep", "fin", "rst", "hang"] = "keep"


class Exchange(msgspec.Struct, frozen=True):
    """A request and its answer."""

    request: RecordedRequest
    response: RecordedResponse


class Fixture(msgspec.Struct, frozen=True, rename="camel"):
    """Every exchange of a recording; `base_path` is the path of the base URL."""

    playhead: int
    base_path: str
    exchanges: Sequence[Exchange]


def write_fixture(path: Path, base_path: str, exchanges: Sequence[Exchange]) -> None:
    """Write a fixture that people can read and compare."""
    data = msgspec.json.encode(Fixture(VERSION, base_path, exchanges))
    path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")


def read_fixture(path: Path) -> Fixture:
    """Read a fixture. Raises `PlayheadError` that says what is wrong with it."""
    try:
        fixture = msgspec.json.decode(path.read_bytes(), type=Fixture)
    except OSError as error:
        raise PlayheadError(f"The fixture {path.name!r} cannot be read: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise PlayheadError(f"The fixture {path.name!r} is not one: {error}.") from None
    if fixture.playhead != VERSION:
        raise PlayheadError(
            f"The fixture {path.name!r} has version {fixture.playhead}, not {VERSION}. Record it again."
        )
    return fixture


def to_bytes(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk."""
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])


class Redactor:
    """Hides the secrets of one exchange: those of the request's headers and query wherever they occur.

    In bodies a secret becomes as many stars, so that pieces keep their borders.
    """

    def __init__(self, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        named = [value for name, value in (*headers.items(), *query.items()) if _SECRET_NAME.search(name)]
        words = {word for value in named for word in re.split(r"[\s;,=]+", value)}
        self._secrets = sorted((w for w in words if len(w) >= _SHORTEST_KEY), key=len, reverse=True)

    def request(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> RecordedRequest:
        """Return the request without its secrets. A header that is not known to be harmless is one."""
        shown = {
            name.lower(): value if name.lower() in _KEPT_REQUEST_HEADERS else HIDDEN
            for name, value in headers.items()
            if name.lower() not in _UNSAID_HEADERS
        }
        asked = {name: HIDDEN if _SECRET_NAME.search(name) else value for name, value in query.items()}
        (hidden,) = self.chunks([body])
        return RecordedRequest(method, path, asked, shown, hidden)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return what of a response's headers matters to a client."""
        pairs = ((name.lower(), value) for name, value in headers.items())
        return {name: value for name, value in pairs if name in _KEPT_RESPONSE_HEADERS}

    def chunks(self, pieces: Iterable[bytes]) -> list[Chunk]:
        """Return the pieces without secrets, also where a border runs through one."""
        pieces = list(pieces)
        hidden = self._hide(b"".join(pieces))
        out: list[Chunk] = []
        start = 0
        for piece in pieces:
            out.append(_chunk(hidden[start : start + len(piece)]))
            start += len(piece)
        return out

    def _hide(self, body: bytes) -> bytes:
        text = body.decode("utf-8", "surrogateescape")
        for secret in self._secrets:
            text = text.replace(secret, _stars(secret))
        text = _SECRET_FIELD.sub(lambda match: match[1] + _stars(match[2]), text)
        text = star_keys(_ACCOUNT.sub(lambda match: _stars(match[0]), text))
        return text.encode("utf-8", "surrogateescape")


def _stars(secret: str) -> str:
    return "*" * len(secret.encode("utf-8", "surrogateescape"))


def _chunk(data: bytes) -> Chunk:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
