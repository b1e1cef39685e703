"""The arguments of a call: from the text that a provider sent to an object, or to a reason why not."""

from typing import Any

import msgspec

from playhead.types import JsonObject, ToolCall

_decode = msgspec.json.Decoder().decode
# What a model is shown of its own unreadable arguments.
_SHOWN = 200


def read_arguments(raw: Any) -> tuple[JsonObject, str | None]:
    """Return the arguments, and an error text when they cannot be read.

    Blank text, null and the text `null` are no arguments. Text that encodes text is decoded again,
    at most twice. NaN and infinities are refused; of duplicate keys the last one wins.
    """
    value = raw
    for _ in range(3):
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
        except (msgspec.DecodeError, UnicodeError):
            return {}, f"The arguments are not valid JSON: {_shown(text)}. Call again with a JSON object."
    return {}, f"The arguments are not a JSON object: {_shown(raw)}. Call again with a JSON object."


def make_call(id: str, name: str, raw: Any) -> ToolCall:
    """Return a call with its arguments read; `error` says why when they could not be."""
    args, error = read_arguments(raw)
    return ToolCall(id, name, args, error)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
