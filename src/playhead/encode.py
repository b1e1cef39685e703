"""The one total encoder of results, and the one masker of errors.

What a tool returns is anything at all; what a model reads, a store keeps and a browser shows is
valid UTF-8. `encode_result` never raises, whatever it is given: nothing is awaited in it, so that
an exit or a cancellation seen here is the value's own doing. msgspec's C encoder does the work where
it is exactly right; the walker below takes the rest.
"""

import base64
import dataclasses
import datetime
import math
import os
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from playhead.types import ChatMessage
from playhead.weigh import MAX_DEPTH, length, node_cost, within

_LEFT_OUT = "(the rest was left out)"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Encoded(NamedTuple):
    """`text` is what the model reads; `value` is made of JSON types only and says the same."""

    text: str
    value: Any


def encode_result(value: Any, limit: int = 200_000) -> Encoded:
    """Encode whatever a tool returned. Never raises, and never returns blank text.

    A string is used as it is, bytes that are UTF-8 are read as a string, anything else becomes
    compact JSON: NaN and infinity are null, other bytes base64, sets and iterators arrays, an
    object without a JSON form its `str()`. NUL and half surrogate pairs become U+FFFD. A value that
    contains itself, more than 100 levels, and whatever a method of the value raises (an exit too) are
    noted at that place. A text of more than `limit` characters keeps its beginning and its end and
    says what was left out; `value` is then that text.
    """
    kind = type(value)
    if kind is not str:
        text = _as_text(kind, value)
        if text is None:
            return _json_result(value, limit)
        value = text
    if len(value) > limit:
        value = scrub(_cut(value, limit))
        return Encoded(value, value)
    value = scrub(value)
    return Encoded("(no output)" if not value or value.isspace() else value, value)


def scrub(text: str) -> str:
    """Replace NUL and half surrogate pairs with U+FFFD; the two halves of a pair become one."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def message_bytes(message: ChatMessage) -> bytes:
    """Return a message as our own wire and stores write it. It is encoded once, and kept in the message.

    Never raises: half surrogate pairs, which UTF-8 cannot carry, become U+FFFD.
    """
    held: bytes | None = message.__dict__.get("playhead")
    if held is None:
        held = message.__dict__["playhead"] = total_json(message)
    return held


def total_json(value: Any, encode: Callable[[Any], bytes] = _encode) -> bytes:
    """Return an object of ours as JSON, whatever is in it. Never raises: see `message_bytes`."""
    try:
        return encode(value)
    except Exception:
        return encode_result(value, sys.maxsize).text.encode()


def _as_text(kind: type, value: Any) -> str | None:
    """The text of a string in disguise: a subclass, an enum member, UTF-8 bytes. Else None."""
    with suppress(BaseException):
        if issubclass(kind, str):
            value = value.value if issubclass(kind, Enum) else value
            return str.__str__(value)
        if issubclass(kind, bytes | bytearray | memoryview):
            return bytes(value).decode()
    return None


def _json_result(value: Any, limit: int) -> Encoded:
    data = plain = None
    try:
        # Far past the limit, only the walker knows where to stop.
        data = _encode(value) if within(value, max(16 * limit, 1_000)) else None
        if data is not None and len(data) <= 4 * limit:
            plain = _decode(data)
            # Encoding again tells keys that became equal, such as 1 and "1".
            nested = type(plain) is dict or type(plain) is list
            if b"\\u0000" in data or (nested and (_encode(plain) != data or _too_deep(plain, data))):
                data = None
    except BaseException:
        data = None
    more = ""
    if data is None:
        walker = _Walker(limit)
        plain = walker.walk(value, 0)
        data = _encode(plain)
        more = "more than " if walker.room < 0 else ""
    text = data.decode()
    if len(text) > limit:
        text = _cut(text, limit, more)
        return Encoded(text, text)
    return Encoded(text, plain)


def _cut(text: str, limit: int, more: str = "") -> str:
    """Keep two thirds of `limit` from the beginning and one third from the end."""
    note = f"\n\n[... the middle was left out: the whole is {more}{len(text):,} characters long ...]\n\n"
    room = max(limit - len(note), 0)
    tail = room // 3
    return text[: room - tail] + note + (text[-tail:] if tail else "")


def _too_deep(plain: Any, data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    level = [plain]
    for _ in range(MAX_DEPTH):
        children = (node.values() if type(node) is dict else node for node in level)
        level = [child for group in children for child in group if type(child) in (dict, list)]
        if not level:
            return False
    return True


class _Walker:
    """Makes JSON types of anything. `room` is how much more text is worth making."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._cost = node_cost(room)
        self._open: set[int] = set()

    def walk(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self.room -= self._cost
        if value is None or kind is bool:
            return value
        try:
            if issubclass(kind, str) and not issubclass(kind, Enum):
                self.room -= len(value)
                return scrub(str.__str__(value))
            leaf = _leaf(kind, value)
            if leaf is not None:
                self.room -= length(leaf.value)
                return leaf.value
            return self._container(kind, value, depth)
        except BaseException:
            return self._described(value)

    def _container(self, kind: type, value: Any, depth: int) -> Any:
        if id(value) in self._open:
            return "(this value contains itself)"
        if depth >= MAX_DEPTH:
            return f"(nested more than {MAX_DEPTH} levels deep)"
        self._open.add(id(value))
        try:
            if issubclass(kind, Enum):
                return self.walk(value.value, depth + 1)
            if callable(dump := getattr(kind, "model_dump", None)):
                return self.walk(dump(value, mode="json"), depth + 1)
            pairs = _pairs(kind, value)
            if pairs is not None:
                return self._object(pairs, depth + 1)
            if kind is msgspec.Raw:
                return self.walk(_decode(value), depth + 1)
            if issubclass(kind, Sequence | Set | Iterator | MappingView | deque):
                return self._array(value, depth + 1)
            if callable(to_list := getattr(kind, "tolist", None)):
                return self.walk(to_list(value), depth + 1)
        finally:
            self._open.discard(id(value))
        return self._described(value)

    def _array(self, items: Iterable[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in items:
                if self.room < 0:
                    out.append(_LEFT_OUT)
                    break
                out.append(self.walk(item, depth))
        except BaseException as error:
            out.append(f"(reading stopped here: {error_text(error)})")
        return out

    def _object(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        try:
            for key, item in pairs:
                if self.room < 0:
                    out[_LEFT_OUT] = None
                    break
                if item is not msgspec.UNSET:
                    out[self._key(key, depth, out)] = self.walk(item, depth)
        except BaseException as error:
            out["(reading stopped here)"] = error_text(error)
        return out

    def _key(self, key: Any, depth: int, taken: dict[str, Any]) -> str:
        plain = self.walk(key, depth)
        name = plain if type(plain) is str else _encode(plain).decode()
        unique, count = name, 2
        while unique in taken:
            unique, count = f"{name} ({count})", count + 1
        return unique

    def _described(self, value: Any) -> str:
        text = _describe(value)
        self.room -= len(text)
        return text


class _Leaf(NamedTuple):
    value: Any


def _leaf(kind: type, value: Any) -> _Leaf | None:
    """The JSON form of a value without parts; None for all else."""
    if issubclass(kind, Enum):
        return None
    if issubclass(kind, int):
        return _Leaf(_integer(int.__index__(value)))
    if issubclass(kind, float):
        return _Leaf(float.__float__(value) if math.isfinite(value) else None)
    if issubclass(kind, bytes | bytearray | memoryview):
        return _Leaf(base64.b64encode(bytes(value)).decode())
    if issubclass(kind, datetime.date | datetime.time):
        return _Leaf(scrub(value.isoformat()))
    if issubclass(kind, datetime.timedelta | Decimal | UUID):
        return _Leaf(msgspec.to_builtins(value))
    if issubclass(kind, os.PathLike):
        return _Leaf(scrub(str(os.fspath(value))))
    return None


def _integer(number: int) -> int | str:
    try:
        _encode(number)
    except ValueError:
        # Past Python's own limit on digits.
        return f"(an integer of about {int(number.bit_length() * math.log10(2)):,} digits)"
    return number


def _pairs(kind: type, value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The names and values of a mapping or a record; None for all else."""
    if issubclass(kind, dict):
        return dict.items(value)
    if issubclass(kind, Mapping):
        return ((key, value[key]) for key in value)
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        fields = [(wire, getattr(value, name)) for wire, name in names]
        return [(config.tag_field, config.tag), *fields] if config.tag_field else fields
    if dataclasses.is_dataclass(kind):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(kind))
    if hasattr(kind, "__attrs_attrs__"):
        return ((field.name, getattr(value, field.name)) for field in kind.__attrs_attrs__)
    return None


def _describe(value: Any) -> str:
    """What an object says of itself, without its address; its class when it says nothing."""
    kind = type(value)
    if issubclass(kind, BaseException):
        return f"{kind.__name__}: {error_text(value)}"
    for speak in (str, repr):
        with suppress(BaseException):
            return scrub(re.sub(r" at 0x[0-9a-fA-F]+", "", speak(value)))
    return f"<{kind.__name__} object that cannot be printed>"


# ---------------------------------------------------------------- masking

_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    # Keys that are known by how they begin: OpenAI and its like, Google, GitHub, GitLab, Slack,
    # AWS, Meta, Hugging Face, xAI, Groq, Perplexity, Replicate, NVIDIA, Telegram, and JWTs.
    r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_][\w-]{8,}",
    r"AIza[\w-]{10,}|ya29\.[\w.-]{10,}",
    r"(?:gh[pousr]|github_pat|glpat|xox[abeprs]|hf|gsk|xai|pplx|r8|nvapi)[-_][\w-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bEAA[A-Za-z0-9]{20,}|\bbot\d{6,}:[\w-]{20,}",
    r"\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*",
)
_SECRET = re.compile("|".join(_SECRETS))
_COOKIE = re.compile(r"\b((?:set-)?cookie[\"']?\s*[:=]\s*[\"']?)[^\n\"']*[^\n\"'\s*]", re.I)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.I)
# A name that means a secret, then its value. Words that speak of a missing one are left alone.
_NAMED = re.compile(
    r"""(
      (?: api[-_ ]?key(?:\ provided)? | access[-_ ]?key(?:[-_ ]?id)? | (?:client|app|api)[-_ ]?secret
        | (?:access|refresh|auth|id|bot|verify|session|security)[-_]?token | (?:secret|private)[-_ ]?key
        | passw(?:or)?d | passphrase | authorization | credentials? | signature
      ) ["']? \s* [:=] \s*
      | (?<![A-Za-z]) (?:key|token|secret|sig|pwd|auth) (?: \s* = \s* | ["'] \s* [:=] \s*
                                                         | :\s* (?= [^\s\d]* \d ) (?= \S{12} ) )
    )
    (?! (?:not|missing|is|are|was|must|required|none|null|expected|invalid|unknown|empty|unset)
        (?: [\s,.;)] | \Z ) )
    (?: " [^"]* "? | ' [^']* '? | (?:(?:bearer|basic|token)\s+)? [^\s,;&"'<>()\[\]{}]+ )""",
    re.I | re.X,
)
_LOGIN = re.compile(r"(://)[^\s/?#]*@")
_WORD = r"[^\s/\\'\"`<>|:*?(),;]++"
_PATH = re.compile(
    rf"""
    (?P<file> \b file:/{{1,3}} [^\s'"`<>|]++ )
    | (?P<url> \b [a-z][a-z0-9+.-]{{1,20}}:// [^\s'"`<>]*+ )
    | (?P<quote> ['"`]) (?P<quoted> (?: /[^/'"`\n]+/ | [a-z]:[\\/] | \\\\ ) [^'"`\n]*+ ) (?P=quote)
    | (?P<windows> (?<! \w ) (?: [a-z]:[\\/]++ | \\\\++ (?= [^\s\\/]+ [\\/] ) )
        (?: {_WORD} (?:\ {_WORD}){{0,3}} [\\/]++ )* (?:{_WORD})? )
    | (?P<posix> (?: (?<! [\w.~/-] ) | (?<= -[a-z] ) )
        (?: / {_WORD} (?:\ {_WORD}){{0,2}} (?=/) )+ / (?:{_WORD})? )
    """,
    re.I | re.X,
)


def mask(text: str, limit: int = 4_000) -> str:
    """Hide what must not leave the process, and keep the text readable.

    Keys, tokens, passwords and URL credentials become `***`; absolute paths (POSIX, Windows,
    file URLs) are reduced to their last name. The result has at most `limit` characters.
    """
    cut = len(text) > 4 * limit
    if cut:
        # Cut at a blank: half a key would not be known as one.
        text = text[: 4 * limit].rsplit(maxsplit=1)[0][: 4 * limit - 512]
    text = _SECRET.sub("***", scrub(text))
    text = _COOKIE.sub(r"\1***", text)
    text = _BEARER.sub(r"\1 ***", text)
    text = _NAMED.sub(r"\1***", text)
    text = _LOGIN.sub(r"\1***@", text)
    text = _PATH.sub(_last_name, text)
    return text[: limit - 8] + " ... cut" if cut or len(text) > limit else text


def star_keys(text: str) -> str:
    """Put stars over every key that is known by how it begins, one for each byte of it in UTF-8."""
    return _SECRET.sub(lambda match: "*" * len(match[0].encode("utf-8", "surrogateescape")), text)


def _last_name(match: re.Match[str]) -> str:
    if match["url"]:
        return match["url"]
    quote = match["quote"] or ""
    path = match["quoted"] or match[0]
    separators = "/" if match["posix"] or match["file"] or path[0] == "/" else r"[\\/]+"
    names = [name for name in re.split(separators, path) if name]
    return quote + (names[-1] if names else "") + quote


def masked_traceback(error: BaseException) -> str:
    """Return where an exception came from, for a log, with secrets and absolute paths masked."""
    return mask("".join(traceback.format_exception(error)), 8_000)


def error_text(error: BaseException) -> str:
    """What may be told of an error: its message, masked; its class when it has none."""
    name = type(error).__name__
    try:
        text = str(error).strip()
    except BaseException:
        text = ""
    if isinstance(error, KeyError):
        text = f"{name}: {text}"
    if isinstance(error, BaseExceptionGroup):
        # The group's own message only counts them.
        text = "; ".join(error_text(inner) for inner in error.exceptions[:3])
    return mask(text or name)
