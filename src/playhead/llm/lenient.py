"""Reading JSON that a provider's own format forbids, once the fast strict decoder has said no."""

import json
from typing import Any

import msgspec

from playhead.errors import ProtocolError

_STRUCT = type(msgspec.Struct)


def decode_lenient(data: bytes, type: Any, what: str) -> Any:
    """Decode JSON into `type` though fields may be null, mistyped or oddly escaped.

    The fast decoder has said no; the standard one reads lone surrogates, and fields that do not fit
    are left at their defaults. Raises `ProtocolError` for what is not JSON at all.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError(f"{what} sent what is not JSON: {len(data)} bytes that do not parse.") from None
    return _fitted(raw, type)


def text_of(value: Any) -> str:
    """Return the text, or none for what is of another type."""
    return value if isinstance(value, str) else ""


def _fitted(raw: Any, type: Any) -> Any:
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError:
        pass
    kept = {}
    if isinstance(raw, dict):
        for field in msgspec.structs.fields(type):
            if field.encode_name in raw:
                value = _fitted_field(raw[field.encode_name], field.type)
                if value is not msgspec.NODEFAULT:
                    kept[field.name] = value
    return type(**kept)


def _fitted_field(raw: Any, type: Any) -> Any:
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError:
        pass
    for inner in getattr(type, "__args__", ()) or (type,):
        if isinstance(inner, _STRUCT) and isinstance(raw, dict):
            return _fitted(raw, inner)
        items = getattr(inner, "__args__", ())
        if getattr(inner, "__origin__", None) is list and isinstance(raw, list) and items:
            fitted = (_fitted_field(item, items[0]) for item in raw)
            return [item for item in fitted if item is not msgspec.NODEFAULT]
    return msgspec.NODEFAULT
