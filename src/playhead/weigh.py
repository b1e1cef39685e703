"""How much there is to write, found out before it is written.

An encoder in C follows an object each time it meets it. Sixty lists, each holding the one before
twice, take a few kilobytes and would be 2**60 values of JSON.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

MAX_DEPTH = 100
# A whole number has up to 4,300 digits; below this many it does not matter.
_MANY = 10_000
# Values with names and brackets around them; more are not read, whatever room there is for text.
_MAX_NODES = 1_000_000
_FLAT = frozenset({str, int, float, bool, type(None), datetime.datetime, datetime.date, Decimal, UUID})
_BYTES = (bytes, bytearray, memoryview, msgspec.Raw)


def node_cost(room: int) -> int:
    """Return what one value takes of `room` characters: its comma at least."""
    return max(2, room // _MAX_NODES)


def length(leaf: Any) -> int:
    """Return about how many characters a JSON value without parts takes, where that may be many."""
    if type(leaf) is str:
        return len(leaf)
    return leaf.bit_length() // 4 if type(leaf) is int else 0


def within(value: Any, room: int) -> bool:
    """Whether `value` written as JSON is at most about `room` characters long and not too deep.

    The work is bounded by `room` and by a million values. Raises what the value's own methods raise.
    """
    cost = node_cost(room)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for node in level:
            kind = type(node)
            if kind is str:
                room -= len(node)
                continue
            if kind in _FLAT:
                continue
            if kind is dict:
                parts = node.values()
                deeper += node
            elif kind is list:
                parts = node
            elif issubclass(kind, _BYTES):
                room -= memoryview(node).nbytes
                continue
            else:
                parts = _parts(kind, node)
            room -= cost * len(parts)
            if room < 0:
                return False
            deeper += parts
        if not deeper:
            return room >= 0
        if len(deeper) > _MANY:
            room -= _digits(deeper)
        level = deeper
    return False


def _digits(level: list[Any]) -> int:
    whole = level if set(map(type, level)) == {int} else [node for node in level if type(node) is int]
    return sum(map(int.bit_length, whole)) // 4


def _parts(kind: type, node: Any) -> Sequence[Any]:
    """What the C encoder would go into. What it knows nothing of has no parts here: it raises there."""
    if issubclass(kind, dict):
        return [*dict.keys(node), *dict.values(node)]
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            return [*base.__iter__(node)]
    if issubclass(kind, Enum):
        return (node.value,)
    if issubclass(kind, str):
        return (str.__str__(node),)
    if issubclass(kind, msgspec.Struct):
        names: Sequence[str] = kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    return [getattr(node, name) for name in names]
