"""Ids and names as a provider's rules want them: deterministic, so that pairs stay pairs."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from playhead.types import ToolSchema

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _digest(text: str, length: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16])
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def any_id(id: str) -> str:
    """The id as it is."""
    return id


def alnum9(id: str) -> str:
    """Nine letters and digits, as Mistral wants them (pydantic/pydantic-ai#9096)."""
    return id if len(id) == 9 and id.isascii() and id.isalnum() else _digest(id, 9)


def safe64(id: str) -> str:
    """Up to 64 of `[A-Za-z0-9_-]`, as Anthropic wants them."""
    return id if id and len(id) <= 64 and not _UNSAFE.search(id) else _shortened(id, 64)


def short40(id: str) -> str:
    """Up to 40 characters, as OpenAI wants them (vercel/ai#5171)."""
    return id if len(id) <= 40 else _shortened(id, 40)


ID_CODECS: Mapping[str, Callable[[str], str]] = {
    "any": any_id,
    "alnum9": alnum9,
    "safe64": safe64,
    "short40": short40,
}


def wire_name(name: str, limit: int = 64) -> str:
    """Return a tool's name as every provider takes it: letters, digits, `_` and `-`, not too long.

    A name that has to be changed ends in a digest of itself, so two names never become one.
    """
    if not name:
        return "unnamed"
    return name if len(name) <= limit and _is_safe(name) else _shortened(name, limit)


@lru_cache(256)
def _is_safe(name: str) -> bool:
    return _UNSAFE.search(name) is None


def real_names(tools: Sequence[ToolSchema], limit: int = 64) -> dict[str, str]:
    """Return the real name of each wire name that differs from it."""
    pairs = ((wire_name(tool.name, limit), tool.name) for tool in tools)
    return {wire: name for wire, name in pairs if wire != name}


def _shortened(text: str, limit: int) -> str:
    return f"{_UNSAFE.sub('_', text)[: limit - 9]}_{_digest(text, 8)}"
