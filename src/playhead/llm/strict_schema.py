"""JSON Schema for APIs that hold an answer to it token by token, and take a part of the language only.

Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas. What OpenAI,
Mistral and Cerebras all take: closed objects with every member required, no limits, no defaults.
"""

from typing import Any

from playhead.types import JsonObject

_MAPS = ("properties", "$defs")
_DEFINED = ("$defs", "definitions")
_CHOICES = ("anyOf", "oneOf", "allOf", "prefixItems")
_KEPT = ("type", "enum", "description")
# Words that would change what an answer may be, and that the subset has not.
_UNSAYABLE = ("allOf", "prefixItems", "patternProperties", "definitions", "not", "if", "dependentSchemas")
_READ = ("const", "items", "required", "additionalProperties", "$schema")
_SAID = frozenset((*_MAPS, *_CHOICES, *_KEPT, *_READ))


class _UnsayableError(Exception):
    """There is no schema in the subset that means the same."""


def has_open_objects(schema: Any) -> bool:
    """Does the schema hold an object whose members it does not list? Closed, it could only be empty."""
    if isinstance(schema, list):
        return any(map(has_open_objects, schema))
    if not isinstance(schema, dict):
        return False
    extra = schema.get("additionalProperties", schema.get("type") == "object")
    unlisted = extra in (True, {}) and "properties" not in schema
    if unlisted or (isinstance(extra, dict) and extra) or "patternProperties" in schema:
        return True
    subs = [sub for key in (*_MAPS, "definitions") for sub in schema.get(key, {}).values()]
    return any(map(has_open_objects, [*subs, *(schema.get(key) for key in (*_CHOICES, "items"))]))


def is_recursive(schema: JsonObject) -> bool:
    """Does a definition of the schema, or the schema itself, stand inside itself?"""
    defs: JsonObject = {"#": {k: v for k, v in schema.items() if k not in _DEFINED}}
    for key in _DEFINED:
        defs |= {f"#/{key}/{name}": sub for name, sub in schema.get(key, {}).items()}
    return any(name in _reached(name, defs) for name in defs)


def _reached(start: str, defs: JsonObject) -> set[str]:
    found: set[str] = set()
    waiting: list[Any] = [defs[start]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str) and ref in defs and ref not in found:
                found.add(ref)
                waiting.append(defs[ref])
            waiting += node.values()
    return found


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """Return the schema in the subset, or None for one that cannot be said in it.

    Limits become words of the description; a member that need not be there may be null instead.
    """
    if has_open_objects(schema):
        return None
    try:
        return _strict(schema)
    except _UnsayableError:
        return None


def _strict(schema: Any) -> JsonObject:
    if not isinstance(schema, dict) or any(word in schema for word in _UNSAYABLE):
        raise _UnsayableError
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside it
    kinds = schema.get("type")
    if isinstance(kinds, list):
        # https://inference-docs.cerebras.ai/capabilities/structured-outputs: a list is not taken
        return {"anyOf": [_strict({**schema, "type": kind}) for kind in kinds]}
    out: JsonObject = {key: schema[key] for key in _KEPT if key in schema}
    choice = schema.get("anyOf") or schema.get("oneOf")
    if choice:
        out["anyOf"] = [_strict(option) for option in choice]
    if "const" in schema:
        out["enum"] = [schema["const"]]
    if "items" in schema:
        out["items"] = _strict(schema["items"])
    for key in _MAPS:
        if key in schema:
            out[key] = {name: _strict(sub) for name, sub in schema[key].items()}
    if "properties" in out:
        required = schema.get("required", ())
        members = {k: sub if k in required else _nullable(sub) for k, sub in out["properties"].items()}
        out |= {"type": "object", "properties": members}
        out |= {"required": list(members), "additionalProperties": False}
    if not {"type", "enum", "anyOf"} & out.keys() or (out.get("type") == "array" and "items" not in out):
        raise _UnsayableError  # anything at all
    limits = ", ".join(f"{key}: {value}" for key, value in schema.items() if key not in _SAID)
    if limits:
        out["description"] = "\n\n".join(filter(None, [out.get("description"), f"({limits})"]))
    return out


def _nullable(schema: JsonObject) -> JsonObject:
    if "null" in [part.get("type") for part in (schema, *schema.get("anyOf", ()))]:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}
