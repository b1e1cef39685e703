"""Arguments as a model wrote them, checked and turned into what a tool takes.

Strict, in that a wrong type is an error and never guessed at; forgiving where models err without
doubt about what they mean: `5.0` for an integer, null for an optional argument, and JSON in a string where
an array or an object is wanted.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from playhead.encode import encode_result
from playhead.errors import ToolError
from playhead.tools.schema import branches, in_words, json_type, type_names
from playhead.types import JsonObject

_MISSING = object()
_MAX_PROBLEMS = 30
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Field(NamedTuple):
    """One argument: its name, the type that msgspec converts it to, and whether it must be there."""

    name: str
    type: Any
    required: bool


class FieldsValidator:
    """Checks each argument by itself, so that every offending one is named.

    Called with the arguments it returns those that were given, converted, by name. `rest` is the
    type of arguments that are not declared; without one they are errors.
    """

    def __init__(self, tool: str, fields: Sequence[Field], schema: JsonObject, rest: Any = _MISSING) -> None:
        self._tool = tool
        self._fields = tuple(fields)
        self._names = frozenset(field.name for field in fields)
        self._properties: Mapping[str, JsonObject] = schema["properties"]
        self._defs: Mapping[str, JsonObject] = schema.get("$defs", {})
        self._rest = rest
        undeclared = schema.get("additionalProperties")
        self._rest_schema: JsonObject = undeclared if isinstance(undeclared, dict) else {}

    def __call__(self, args: JsonObject) -> JsonObject:
        ready: JsonObject = {}
        problems: list[str] = []
        used = 0
        for name, kind, required in self._fields:
            value = args.get(name, _MISSING)
            if value is not _MISSING:
                used += 1
                if value is not None or required:
                    self._take(name, value, kind, ready, problems)
            elif required:
                problems.append(f"`{name}`: missing; expected {self._wanted(name)}")
        if used != len(args):
            self._take_rest(args, ready, problems)
        if problems:
            raise argument_error(self._tool, problems)
        return ready

    def _take(self, name: str, value: Any, kind: Any, ready: JsonObject, problems: list[str]) -> None:
        try:
            ready[name] = msgspec.convert(value, kind, dec_hook=model_hook)
            return
        except msgspec.ValidationError:
            value = repair(value, self._schema(name), self._defs)
        try:
            ready[name] = msgspec.convert(value, kind, dec_hook=model_hook)
        except msgspec.ValidationError as error:
            problems.append(fault_text(name, value, self._wanted(name), str(error)))

    def _take_rest(self, args: JsonObject, ready: JsonObject, problems: list[str]) -> None:
        for name, value in args.items():
            if name in self._names:
                continue
            if self._rest is _MISSING:
                problems.append(self._unknown(name))
            else:
                self._take(name, value, self._rest, ready, problems)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._names, 1)
        if near:
            return f"`{name[:64]}`: unknown argument; did you mean `{near[0]}`?"
        names = ", ".join(f"`{field.name}`" for field in self._fields) or "no arguments"
        return f"`{name[:64]}`: unknown argument; the tool takes {names}"

    def _schema(self, name: str) -> JsonObject:
        return self._properties.get(name, self._rest_schema)

    def _wanted(self, name: str) -> str:
        return in_words(self._schema(name), self._defs)


def fault_text(name: str, value: Any, wanted: str, message: str) -> str:
    """Return one fault in words: where it is, what is wanted there and what came.

    `message` is msgspec's; it may name a place inside the value.
    """
    message, _, path = message.partition(" - at `$")
    path = path.removesuffix("`")
    if message.startswith("`"):  # from a pydantic model in this place
        return f"`{name}{path}`: {message}"
    if not path:
        why = "" if message.startswith(("Expected", "Invalid enum")) else f" ({message})"
        return f"`{name}`: expected {wanted}, got {shown(value)}{why}"
    message = message[0].lower() + message[1:]
    for python, word in (("`int`", "integer"), ("`str`", "string"), ("`float`", "number")):
        message = message.replace(python, word)
    found = _dig(value, path)
    if found is _MISSING:
        return f"`{name}{path}`: {message}; `{name}` was {shown(value)}"
    return f"`{name}{path}`: {message.partition(', got ')[0]}, got {shown(found)}"


class ModelValidator:
    """Checks the arguments with a pydantic model, in its strict mode, and returns an instance.

    The model's own configuration says whether arguments that it does not declare are errors.
    """

    def __init__(self, tool: str, model: Any, schema: JsonObject) -> None:
        self._tool = tool
        self._model = model
        self._schema = schema

    def __call__(self, args: JsonObject) -> Any:
        required = self._schema.get("required", ())
        given = {name: value for name, value in args.items() if value is not None or name in required}
        try:
            return strict_model(self._model, given)
        except ValueError:
            given = repair(given, self._schema, self._schema.get("$defs", {}))
        try:
            return strict_model(self._model, given)
        except ValueError as error:
            raise argument_error(self._tool, model_problems(error)) from None


def strict_model(model: Any, value: Any) -> Any:
    """Return an instance of a pydantic model, validated strictly. Raises pydantic's `ValueError`."""
    # JSON, because strict mode then takes text for dates and arrays for tuples, as JSON has it.
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        data = _encode(encode_result(value).value)
    return model.model_validate_json(data, strict=True)


def model_hook(kind: type, value: Any) -> Any:
    """Convert to what msgspec does not know: a pydantic model inside another type."""
    if not hasattr(kind, "model_validate_json"):
        return value
    try:
        return strict_model(kind, value)
    except ValueError as error:
        raise ValueError("; ".join(model_problems(error))) from None


def model_problems(error: ValueError, whole: str = "the arguments") -> list[str]:
    """Return one text for each fault that a pydantic error names; `whole` is what it is about."""
    read: Callable[..., list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if read is None:
        return [str(error)]
    problems = []
    for fault in read(include_url=False, include_context=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
        name = f"`{path.lstrip('.')}`" if path else whole
        came = "" if fault["type"] == "missing" else f", got {shown(fault['input'])}"
        problems.append(f"{name}: {fault['msg']}{came}")
    return problems


def argument_error(tool: str, problems: Sequence[str]) -> ToolError:
    """Return the error that lists what is wrong with each argument."""
    lines = [f"- {problem}" for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more")
    return ToolError("\n".join([f"`{tool}` was not run, because its arguments do not fit:", *lines]))


def shown(value: Any) -> str:
    """Return a value as short JSON with its type: `"abc" (string)`."""
    text = encode_result([value], 1_000_000).text[1:-1]
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if value is None else f"{short} ({json_type(value)})"


def _dig(value: Any, path: str) -> Any:
    """Return what is at a path such as `.points[0].x`; `_MISSING` where it does not say."""
    for key, index in re.findall(r"\.(\w+)|\[([^\]]*)\]", path):
        try:
            value = value[key] if key else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return _MISSING
    return value


# ---------------------------------------------------------------- repair


def repair(value: Any, schema: JsonObject, defs: Mapping[str, JsonObject]) -> Any:
    """Return the value with what a model surely meant, where the schema leaves no doubt.

    A whole float becomes an integer where no other number is allowed, and a string that holds an array or
    an object is read where one is wanted and no string is allowed. For values that failed validation only.
    """
    wanted = type_names(schema, defs)
    if type(value) is float and value.is_integer() and "integer" in wanted and "number" not in wanted:
        return int(value)
    if type(value) is str and "string" not in wanted:
        value = _read_json(value, wanted)
    if type(value) is list:
        part = branch_of(schema, defs, "array")
        rest, first = part.get("items") or {}, part.get("prefixItems", ())
        return [repair(v, first[i] if i < len(first) else rest, defs) for i, v in enumerate(value)]
    if type(value) is dict:
        part = branch_of(schema, defs, "object")
        known, rest = part.get("properties", {}), part.get("additionalProperties") or {}
        return {k: repair(v, known.get(k, rest), defs) for k, v in value.items()}
    return value


def without_nulls(value: Any, schema: JsonObject, defs: Mapping[str, JsonObject]) -> Any:
    """Return the value without null where a named member may be left out and may not be null."""
    if type(value) is list:
        items = branch_of(schema, defs, "array").get("items") or {}
        return [without_nulls(item, items, defs) for item in value]
    if type(value) is not dict:
        return value
    part = branch_of(schema, defs, "object")
    known, rest = part.get("properties", {}), part.get("additionalProperties") or {}
    optional = known.keys() - part.get("required", ())
    out = {}
    for key, item in value.items():
        sub = known.get(key, rest)
        names = type_names(sub, defs) if item is None and key in optional else []
        if not names or "null" in names:
            out[key] = without_nulls(item, sub, defs)
    return out


def _read_json(text: str, wanted: Sequence[str]) -> Any:
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    fits = (type(value) is list and "array" in wanted) or (type(value) is dict and "object" in wanted)
    return value if fits else text


def branch_of(schema: JsonObject, defs: Mapping[str, JsonObject], kind: str) -> JsonObject:
    """The first alternative of that type; none when the schema does not allow it."""
    return next((part for part in branches(schema, defs) if part.get("type") == kind), {})
