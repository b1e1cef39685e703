"""JSON Schema in the subset of OpenAPI 3.0 that Gemini's function declarations take.

Source: https://ai.google.dev/api/caching#Schema. What the API refuses beyond it is known from
reports: numbers in `enum` (weave-os/router#65), formats of text but two
(hideya/langchain-mcp-tools-ts#36), keywords of another type, lists without `items`
(anomalyco/opencode#49392), required names without a property (Kilo-Org/kilocode#11955), and
anything beside `anyOf`.
"""

from typing import Any

from playhead.types import JsonObject

_COMMON = ("title", "description", "default")
_OF_TYPE: dict[str, tuple[str, ...]] = {
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
    "integer": ("format", "minimum", "maximum"),
    "number": ("format", "minimum", "maximum"),
    "boolean": (),
    "array": ("items", "minItems", "maxItems"),
    "object": ("properties", "required", "propertyOrdering", "minProperties", "maxProperties"),
}
_FORMATS = {
    "string": ("enum", "date-time"),
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}
_ANY = ("string", "number", "boolean")
# How often a definition may stand inside itself before it becomes an open object.
_REPEATS = 2


def convert_schema(schema: JsonObject) -> JsonObject:
    """Return the schema in the subset.

    References are put in their place (a recursive one ends as an open object), a type with null
    becomes `nullable`, several types become `anyOf`, and keywords outside the subset are left out.
    """
    return _Converter(schema).convert(schema, ())


class _Converter:
    def __init__(self, root: JsonObject) -> None:
        self._root = root

    def convert(self, schema: Any, inside: tuple[str, ...]) -> JsonObject:
        """Return one schema, found inside the references `inside`."""
        if not isinstance(schema, dict):
            return _any_of([{"type": kind} for kind in _ANY], {})
        ref = schema.get("$ref")
        if isinstance(ref, str):
            if inside.count(ref) >= _REPEATS:
                return {"type": "object"}
            beside = {key: schema[key] for key in ("description", "default") if key in schema}
            return self.convert({**self._target(ref), **beside}, (*inside, ref))
        schema = _merged(schema)
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list) and options:
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            branches = [{**rest, **option} if isinstance(option, dict) else option for option in options]
            return _any_of([self._branch(branch, inside) for branch in branches], schema)
        kinds = _kinds(schema)
        return _any_of([self._typed(kind, schema, inside) for kind in kinds], schema)

    def _branch(self, schema: Any, inside: tuple[str, ...]) -> JsonObject:
        null = isinstance(schema, dict) and schema.get("type") == "null"
        return {"type": "null"} if null else self.convert(schema, inside)

    def _target(self, ref: str) -> JsonObject:
        target: Any = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        return target if isinstance(target, dict) else {}

    def _typed(self, kind: str, schema: JsonObject, inside: tuple[str, ...]) -> JsonObject:
        """Return the schema of one type, with the keywords that belong to it."""
        out: JsonObject = {"type": kind}
        for key in (*_COMMON, *_OF_TYPE.get(kind, ())):
            if schema.get(key) is not None:
                out[key] = schema[key]
        if kind in ("integer", "number"):
            _bounded(out, schema, kind)
        if out.get("format") not in (None, *_FORMATS.get(kind, ())):
            del out["format"]
        if kind == "array":
            places = schema.get("prefixItems")
            out["items"] = self.convert({"anyOf": places} if places else schema.get("items"), inside)
        if kind == "object":
            self._properties(out, inside)
        values = schema.get("enum")
        if isinstance(values, list):
            _valued(out, values)
        return out

    def _properties(self, out: JsonObject, inside: tuple[str, ...]) -> None:
        properties = out.pop("properties", None)
        required = [name for name in out.pop("required", ()) if name in (properties or {})]
        if properties:
            out["properties"] = {name: self.convert(sub, inside) for name, sub in properties.items()}
        if required:
            out["required"] = required


def _merged(schema: JsonObject) -> JsonObject:
    """Put the parts of `allOf` together, and `const` into `enum`."""
    if isinstance(schema.get("allOf"), list):
        merged: JsonObject = {}
        for part in (*schema["allOf"], {key: value for key, value in schema.items() if key != "allOf"}):
            if isinstance(part, dict):
                properties = {**merged.get("properties", {}), **part.get("properties", {})}
                required = [*merged.get("required", ()), *part.get("required", ())]
                merged |= part | ({"properties": properties} if properties else {})
                merged |= {"required": required} if required else {}
        schema = merged
    return {**schema, "enum": [schema["const"]]} if "const" in schema else schema


def _kinds(schema: JsonObject) -> list[str]:
    """The types of a schema: as it says, else as its keywords do, else any."""
    said = schema.get("type")
    if said:
        named = [str(kind).lower() for kind in (said if isinstance(said, list) else [said])]
        return [kind if kind in _OF_TYPE or kind == "null" else "string" for kind in named]
    if "properties" in schema or "required" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    values = schema.get("enum")
    return [_kind_of(values)] if values else list(_ANY)


def _kind_of(values: Any) -> str:
    given = [value for value in values if value is not None] if isinstance(values, list) else []
    for kind, of in (("boolean", bool), ("integer", int), ("number", (int, float))):
        if given and all(isinstance(value, of) for value in given):
            return kind
    return "string"


def _bounded(out: JsonObject, schema: JsonObject, kind: str) -> None:
    """Turn exclusive bounds into the ones that exist; between whole numbers nothing is lost."""
    step = 1 if kind == "integer" else 0
    for own, exclusive, by in (("minimum", "exclusiveMinimum", step), ("maximum", "exclusiveMaximum", -step)):
        bound = schema.get(exclusive)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and own not in out:
            out[own] = bound + by


def _valued(out: JsonObject, values: list[Any]) -> None:
    """Only text may be enumerated; other values are told in words."""
    if None in values:
        out["nullable"] = True
    texts = [str(value) for value in values if value not in (None, "")]
    out.pop("enum", None)
    if out["type"] == "string" and texts:
        out["enum"] = texts
    elif texts:
        words = ", ".join(texts)
        out["description"] = "\n\n".join(filter(None, [out.get("description"), f"One of: {words}."]))


def _any_of(branches: list[JsonObject], schema: JsonObject) -> JsonObject:
    """Return the one branch, or a choice of them; a branch that is null makes the others nullable."""
    named = [branch for branch in branches if branch.get("type") != "null"]
    if len(named) < len(branches) or schema.get("nullable") is True:
        named = [
            {**branch, "nullable": True} if "anyOf" not in branch else _nullable(branch) for branch in named
        ]
    flat = [inner for branch in named for inner in branch.get("anyOf", [branch])]
    if not flat:
        return {"type": "string", "nullable": True}
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _nullable(choice: JsonObject) -> JsonObject:
    return {"anyOf": [{**branch, "nullable": True} for branch in choice["anyOf"]]}
