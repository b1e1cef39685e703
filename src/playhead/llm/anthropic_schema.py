"""JSON Schema as the Messages API takes it for the shape of an answer.

Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from typing import Any

from playhead.types import JsonObject

_COMBINED = ("anyOf", "oneOf", "allOf")
_KEPT = frozenset(
    (
        *("type", "enum", "const", "title", "description", "default", "required", "format"),
        *("$defs", "definitions", "$ref"),
    )
)
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)


def convert_output_schema(schema: Any) -> Any:
    """Return the schema of an answer: closed objects; limits that are not taken become description."""
    if not isinstance(schema, dict):
        return schema
    out: JsonObject = {}
    said: list[str] = []
    for key, value in schema.items():
        untaken = (key == "format" and value not in _FORMATS) or (key == "minItems" and value not in (0, 1))
        if key in ("properties", "$defs", "definitions"):
            out[key] = {name: convert_output_schema(sub) for name, sub in value.items()}
        elif key in _COMBINED:
            out["allOf" if key == "allOf" else "anyOf"] = [convert_output_schema(sub) for sub in value]
        elif key == "items":
            out[key] = convert_output_schema(value)
        elif (key in _KEPT or key == "minItems") and not untaken:
            out[key] = value
        elif key not in ("additionalProperties", "$schema"):
            said.append(f"{key}: {value}")
    if schema.get("type") == "object" or "properties" in schema:
        out |= {"type": "object", "properties": out.get("properties", {}), "additionalProperties": False}
    if said:
        out["description"] = "\n\n".join(filter(None, [out.get("description"), f"({', '.join(said)})"]))
    return out
