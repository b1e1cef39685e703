"""From types, models and parameter lists to JSON Schema, and from JSON Schema to words.

Schemas are made for models and for every provider: nested types stand in place (only recursive
ones stay under `$defs`), enums carry their type, and titles, which say nothing new, are left out.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from playhead.errors import ConfigError
from playhead.types import JsonObject, ToolParameter

JSON_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
    "null": None,
}
"""The type names of JSON Schema, and the Python type that a value of each has."""

_REF = "#/$defs/"
# These hold values, not schemas.
_VALUES = {"default", "enum", "const", "examples", "example"}


def object_schema(
    properties: Mapping[str, JsonObject],
    required: Sequence[str],
    defs: Mapping[str, JsonObject],
    rest: JsonObject | None = None,
) -> JsonObject:
    """Return the schema of an arguments object, flattened; `rest` is that of undeclared arguments."""
    schema: JsonObject = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if rest is not None:
        schema["additionalProperties"] = rest or True
    return flatten(schema, defs)


def type_schemas(types: Sequence[Any]) -> tuple[list[JsonObject], dict[str, JsonObject]]:
    """Return the schema of each type, and the definitions that they refer to.

    Raises:
        TypeError: JSON cannot carry one of the types.
    """
    hooked: dict[str, JsonObject] = {}

    def schema_hook(kind: type) -> JsonObject:
        if not callable(make := getattr(kind, "model_json_schema", None)):
            raise NotImplementedError
        schema: JsonObject = make()
        hooked.update(schema.pop("$defs", {}))
        return schema

    schemas, defs = msgspec.json.schema_components(
        types, schema_hook=schema_hook, ref_template=_REF + "{name}"
    )
    return list(schemas), {**defs, **hooked}


def list_schema(parameters: Iterable[ToolParameter]) -> JsonObject:
    """Return the schema of a parameter list.

    Raises:
        ConfigError: a type is not the name of a JSON Schema type, or a key is there twice.
    """
    properties: dict[str, JsonObject] = {}
    required = []
    for parameter in parameters:
        key, kind = parameter.key, parameter.type
        if kind not in JSON_TYPES:
            raise ConfigError(f"Parameter {key!r} has the type {kind!r}; use one of {', '.join(JSON_TYPES)}.")
        if key in properties:
            raise ConfigError(f"Parameter {key!r} is declared twice.")
        properties[key] = {"type": kind}
        if kind == "array":
            properties[key]["items"] = {}
        if parameter.description:
            properties[key]["description"] = parameter.description
        if parameter.required:
            required.append(key)
    return object_schema(properties, required, {})


def schema_parameters(schema: JsonObject) -> tuple[ToolParameter, ...]:
    """Return the parameter list of an arguments schema: its first level, by JSON type name."""
    required = schema.get("required", ())
    defs = schema.get("$defs", {})
    return tuple(
        ToolParameter(key, _first_type(part, defs), key in required, part.get("description", ""))
        for key, part in schema.get("properties", {}).items()
    )


def _first_type(schema: JsonObject, defs: Mapping[str, JsonObject]) -> str:
    names = [name for name in type_names(schema, defs) if name != "null"]
    return names[0] if names else "object"


def resolved(schema: Any, defs: Mapping[str, JsonObject]) -> JsonObject:
    """Return the schema itself, or the definition that it refers to."""
    ref = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(ref, str):
        return defs.get(ref.removeprefix(_REF), {})
    return schema if isinstance(schema, dict) else {}


def branches(schema: JsonObject, defs: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    """Yield the alternatives of a schema; itself when it has none."""
    schema = resolved(schema, defs)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not options:
        yield schema
        return
    for option in options:
        yield from branches(option, defs)


def type_names(schema: JsonObject, defs: Mapping[str, JsonObject]) -> list[str]:
    """Return the JSON types that a schema allows by name; empty when it allows all."""
    names: list[str] = []
    for branch in branches(schema, defs):
        kind = branch.get("type", [])
        names += [kind] if isinstance(kind, str) else kind
    return names


# ---------------------------------------------------------------- flattening


def flatten(schema: JsonObject, defs: Mapping[str, JsonObject]) -> JsonObject:
    """Put each definition in the place that refers to it; recursive ones stay under `$defs`."""
    defs = {**defs, **schema.get("$defs", {})}
    recursive = {name for name in defs if name in _reachable(defs[name], defs)}
    flat: JsonObject = _flat({k: v for k, v in schema.items() if k != "$defs"}, defs, recursive)
    kept = sorted(_reachable(flat, defs))
    if kept:
        flat["$defs"] = {name: _flat(defs[name], defs, recursive) for name in kept}
    return flat


def _flat(node: Any, defs: Mapping[str, JsonObject], recursive: set[str]) -> Any:
    if isinstance(node, list):
        return [_flat(item, defs, recursive) for item in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str) and (name := ref.removeprefix(_REF)) in defs and name not in recursive:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _flat({**defs[name], **rest}, defs, recursive)
    out = {
        key: value if key in _VALUES else _flat(value, defs, recursive)
        for key, value in node.items()
        # A discriminator maps to definitions that are gone; it is not JSON Schema either.
        if not (key == "title" and isinstance(value, str)) and key != "discriminator"
    }
    values = out.get("enum")
    if isinstance(values, list) and "type" not in out:
        kinds = {json_type(value) for value in values}
        if len(kinds) == 1:
            out = {"type": kinds.pop(), **out}
    return out


def _reachable(schema: JsonObject, defs: Mapping[str, JsonObject]) -> set[str]:
    found: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            ref = node.get("$ref")
            name = ref.removeprefix(_REF) if isinstance(ref, str) else ""
            if name in defs and name not in found:
                found.add(name)
                waiting.append(defs[name])
            waiting += [value for key, value in node.items() if key not in _VALUES]
    return found


# ---------------------------------------------------------------- words


def json_type(value: Any) -> str:
    """Return the JSON Schema type name of a value; its class when JSON has none for it."""
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


_LIMITS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
    "multipleOf": "a multiple of",
    "minLength": "of length >=",
    "maxLength": "of length <=",
    "minItems": "of length >=",
    "maxItems": "of length <=",
    "pattern": "matching",
    "format": "in the format",
}


def in_words(schema: JsonObject, defs: Mapping[str, JsonObject]) -> str:
    """Say what a schema wants: `integer >= 1`, `array of string`, `one of "a", "b"`."""
    words = [_branch_words(branch, defs) for branch in branches(schema, defs)]
    return " or ".join(dict.fromkeys(words))


def _branch_words(schema: JsonObject, defs: Mapping[str, JsonObject]) -> str:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if values:
        shown = [msgspec.json.encode(value).decode() for value in values]
        return ("one of " if len(shown) > 1 else "") + ", ".join(shown)
    kind = schema.get("type", "any value")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if words == "array" and schema.get("items"):
        words = f"array of {in_words(schema['items'], defs)}"
    limits = [f"{text} {schema[key]}" for key, text in _LIMITS.items() if key in schema]
    return " ".join([words, " and ".join(limits)]) if limits else words


_SECTIONS = re.compile(
    r"^\s*(?:(?:Args|Arguments|Parameters|Params|Returns|Raises)\s*:?\s*$|[:@]\w+.*:)", re.M
)


def read_docstring(function: Any) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of the function, and of each parameter.

    Google, NumPy and reST styles are read. The sections of parameters and errors are left out of
    the first; what is returned is kept, since a model can use it.
    """
    text = inspect.getdoc(function) or ""
    if not _SECTIONS.search(text):
        return text, {}
    import docstring_parser  # only for those who write sections

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = [parsed.short_description, parsed.long_description]
    if parsed.returns and parsed.returns.description:
        parts.append(f"Returns: {parsed.returns.description}")
    described = {
        parameter.arg_name: " ".join((parameter.description or "").split()) for parameter in parsed.params
    }
    return "\n\n".join(part for part in parts if part), described
