"""The arguments of a call: from the text that a provider sent to an object, or to a reason why not."""

import json
import logging
import math
import sys
from typing import Any, NoReturn

import msgspec

from playhead.encode import encode_result, scrub
from playhead.types import JsonObject, ToolCall

logger = logging.getLogger("playhead")

_decode = msgspec.json.Decoder().decode
# What a model is shown of its own unreadable arguments.
_SHOWN = 200


def read_arguments(raw: Any, lenient: bool = False) -> tuple[JsonObject, str | None]:
    """Return the arguments, and an error text when they cannot be read.

    Blank text, null and the text `null` are no arguments. Text that encodes text is decoded again,
    at most twice. NaN and infinities are refused; of duplicate keys the last one wins. With
    `lenient`, text that follows a complete object is cut off, and said in the log.
    """
    value = raw
    for _ in range(4):
        if value is None or value == "null":
            return {}, None
        if isinstance(value, dict):
            return value, None
        if not isinstance(value, str):
            break
        text = value.strip()
        if not text:
            return {}, None
        try:
            value = _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = _repaired(text, lenient)
            if value is not None:
                continue
            return {}, f"The arguments are not valid JSON: {_shown(text)}. Call again with a JSON object."
    return {}, f"The arguments are not a JSON object: {_shown(raw)}. Call again with a JSON object."


def is_complete(text: str) -> bool:
    """Is this a whole JSON object?"""
    try:
        return isinstance(_decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def breaks_off(text: str) -> bool:
    """Is this JSON that ends too early, rather than text that is no JSON?"""
    try:
        _decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return "truncated" in str(error)
    return False


def make_call(id: str, name: str, raw: Any, lenient: bool = False) -> ToolCall:
    """Return a call with its arguments read; `error` says why when they could not be."""
    args, error = read_arguments(raw, lenient)
    return ToolCall(id, name, args, error)


def _repaired(text: str, lenient: bool) -> Any:
    """Return the value of text that only the strict decoder refuses, or None."""
    try:
        # Half characters: the standard decoder keeps them, and pairs become one again.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        value, end = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if text[end:].strip():
        if not lenient or not isinstance(value, dict):
            return None
        logger.warning("Cut %d characters off that followed the arguments of a call.", len(text) - end)
    # Half characters are left out: no store and no wire takes them.
    return encode_result(value, limit=sys.maxsize).value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


def _shown(value: Any) -> str:
    text = scrub(value if isinstance(value, str) else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
