"""Every fault of a value, by its type: msgspec alone names the first one only."""

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from playhead.tools.schema import in_words
from playhead.tools.validate import Field, branch_of, fault_text, model_hook
from playhead.types import JsonObject

_LISTS = (list, set, frozenset, collections.abc.Collection)


def faults(
    value: Any, kind: Any, schema: JsonObject, defs: Mapping[str, JsonObject], path: str = ""
) -> Iterator[str]:
    """Yield a text for each fault of a value; none if it converts to `kind`.

    Args:
        value: made of JSON types.
        kind: what msgspec shall convert it to; pydantic models may be inside.
        schema: that of the type, for what is wanted at each place.
        defs: what the schema refers to.
        path: where the value is, such as `points[0].x`; empty for the whole.
    """
    try:
        msgspec.convert(value, kind, dec_hook=model_hook)
    except msgspec.ValidationError as error:
        inside = list(_inside(value, _plain(kind), schema, defs, path))
        own = fault_text(path, value, in_words(schema, defs), str(error))
        yield from inside or [own if path else own.replace("``", "the whole", 1)]


def _inside(
    value: Any, kind: Any, schema: JsonObject, defs: Mapping[str, JsonObject], path: str
) -> Iterator[str]:
    args = typing.get_args(kind)
    origin = typing.get_origin(kind) or kind
    if isinstance(value, list):
        repeated = origin is tuple and args[1:] == (...,)
        if args and isinstance(origin, type) and (repeated or issubclass(origin, _LISTS)):
            items = branch_of(schema, defs, "array").get("items") or {}
            for n, item in enumerate(value):
                yield from faults(item, args[0], items, defs, f"{path}[{n}]")
    elif isinstance(value, dict):
        part = branch_of(schema, defs, "object")
        known, rest = part.get("properties", {}), part.get("additionalProperties")
        for name, sub, required in _members(value, kind):
            at = f"{path}.{name}" if path else name
            wanted = known.get(name, rest if isinstance(rest, dict) else {})
            if name in value:
                yield from faults(value[name], sub, wanted, defs, at)
            elif required:
                yield f"`{at}`: missing; expected {in_words(wanted, defs)}"


def _plain(kind: Any) -> Any:
    """The type without what is written around it, and without None."""
    while True:
        args = typing.get_args(kind)
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            kind = args[0]
        elif origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
            kind = args[1] if args[0] is type(None) else args[0]
        else:
            return kind


def _members(value: Mapping[str, Any], kind: Any) -> list[Field]:
    """The members of an object of that type; none where only msgspec knows them."""
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type):
        return []
    if issubclass(origin, msgspec.Struct):
        return [Field(f.encode_name, f.type, f.required) for f in msgspec.structs.fields(kind)]
    if dataclasses.is_dataclass(origin):
        hints = typing.get_type_hints(origin, include_extras=True)
        return [Field(f.name, hints[f.name], _required(f)) for f in dataclasses.fields(origin) if f.init]
    if typing.is_typeddict(origin):
        required: frozenset[str] = origin.__required_keys__  # type: ignore[attr-defined]
        hints = typing.get_type_hints(origin, include_extras=True)
        return [Field(name, _bare(hint), name in required) for name, hint in hints.items()]
    args = typing.get_args(kind)
    if len(args) == 2 and issubclass(origin, Mapping):
        return [Field(name, args[1], False) for name in value]
    return []


def _required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _bare(hint: Any) -> Any:
    marked = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
    return typing.get_args(hint)[0] if marked else hint
