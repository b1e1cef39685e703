"""The input of a tool as an object, which is all that strict APIs take at the top of its schema."""

from playhead.types import JsonObject

_COMBINED = ("anyOf", "oneOf", "allOf")


def object_schema(schema: JsonObject) -> JsonObject:
    """Return the schema with an object at its top: no reference, and no choice.

    Source: anthropics/claude-code#40075; Gemini takes nothing else either. The properties of the
    branches are offered instead, none of them required: validation of the call says what is missing.
    """
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    target = definitions.get(name, {}) if name else {}
    branches = [b for key in _COMBINED for b in (*target.get(key, ()), *schema.get(key, ()))]
    sources = [b for b in (*branches, target, schema) if isinstance(b, dict)]
    offered = {k: v for source in sources for k, v in source.get("properties", {}).items()}
    out = {k: v for k, v in {**target, **schema}.items() if k not in (*_COMBINED, "$ref")}
    return {**out, "type": "object", "properties": offered}
