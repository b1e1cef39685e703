"""JSON Schema in the subset of OpenAPI 3.0 that Gemini's function declarations take.

Source: https://ai.google.dev/api/caching#Schema
"""

from typing import Any

from playhead.types import JsonObject

# Everything else is a 400.
_KEYS = frozenset(
    (
        *("type", "format", "title", "description", "nullable", "enum", "default", "pattern", "anyOf"),
        *("items", "maxItems", "minItems", "properties", "required", "propertyOrdering"),
        *("minProperties", "maxProperties", "minLength", "maxLength", "minimum", "maximum"),
    )
)
_MAX_DEPTH = 12


def convert_schema(schema: JsonObject) -> JsonObject:
    """Return the schema in the subset.

    References are put in their place (a recursive one ends as an open object), a type with null
    becomes `nullable`, and keywords outside the subset are left out.
    """
    definitions = {**schema.get("$defs", {}), **schema.get("definitions", {})}
    converted: JsonObject = _convert_schema(schema, definitions, _MAX_DEPTH)
    return converted


def _convert_schema(schema: Any, definitions: JsonObject, depth: int) -> Any:
    if not isinstance(schema, dict):
        return {}
    if "$ref" in schema:
        if depth <= 0:
            return {"type": "object"}
        target = definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        schema = {**target, **{k: schema[k] for k in ("description", "default") if k in schema}}
    schema = _nullable(schema)
    out: JsonObject = {}
    for key, value in schema.items():
        if key == "const":
            out["enum"] = [value]
        elif key not in _KEYS:
            continue
        elif key == "properties":
            out[key] = {name: _convert_schema(sub, definitions, depth - 1) for name, sub in value.items()}
        elif key == "items":
            out[key] = _convert_schema(value, definitions, depth - 1)
        elif key == "anyOf":
            out[key] = [_convert_schema(sub, definitions, depth - 1) for sub in value]
        else:
            out[key] = value
    return out


def _nullable(schema: JsonObject) -> JsonObject:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        named = [kind for kind in kinds if kind != "null"]
        rest = {k: v for k, v in schema.items() if k != "type"}
        typed = {"type": named[0]} if len(named) == 1 else {"anyOf": [{"type": kind} for kind in named]}
        return {**rest, **typed, **({"nullable": True} if "null" in kinds else {})}
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        named = [option for option in options if option != {"type": "null"}]
        rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
        merged = {**named[0], **rest} if len(named) == 1 else {**rest, "anyOf": named}
        return {**merged, **({"nullable": True} if len(named) < len(options) else {})}
    return schema
