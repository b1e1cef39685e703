"""The input of a tool as an object, which is all that strict APIs take at the top of its schema."""

from playhead.types import JsonObject

_COMBINED = ("anyOf", "oneOf", "allOf")


def object_schema(schema: JsonObject) -> JsonObject:
    """Return the schema with an object at its top: no reference, and no choice.

    Source: anthropics/claude-code#40075; Gemini takes nothing else either. The properties of the
    branches are offered instead, none of them required: validation of the call says what is missing.
    """
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
        schema = {**definitions.get(name, {}), **{k: v for k, v in schema.items() if k != "$ref"}}
    branches = [b for key in _COMBINED for b in schema.get(key, ()) if isinstance(b, dict)]
    offered = {k: v for branch in branches for k, v in branch.get("properties", {}).items()}
    out = {k: v for k, v in schema.items() if k not in _COMBINED}
    return {**out, "type": "object", "properties": {**offered, **schema.get("properties", {})}}
