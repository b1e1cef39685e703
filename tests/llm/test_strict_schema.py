"""JSON Schema in the part that strict APIs take. Issue 4 item 5: `strict` only where it can be meant."""

import json
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from playhead import Output
from playhead.llm.strict_schema import has_open_objects, is_recursive, strict_schema
from playhead.types import JsonObject

_WORDS = {"type", "enum", "anyOf", "items", "properties", "required", "additionalProperties", "description"}


class Leaf(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=1, description="How big.")] = 1
    kind: Literal["a", "b"] | None = None


class Branch(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(max_length=9)]
    leaves: list[Leaf] = []
    other: "Leaf | int" = 0


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Person(pydantic.BaseModel):
    name: str
    nick: str | None = None
    tags: list[str] = pydantic.Field(default=["x"], max_length=3)


def check_strict(schema: Any, root: JsonObject) -> None:
    """What OpenAI, Mistral and Cerebras ask for, down to every part."""
    if "$ref" in schema:
        assert set(schema) == {"$ref"}
        assert schema["$ref"].removeprefix("#/$defs/") in root["$defs"]
        return
    assert set(schema) - ({"$defs"} if schema is root else set()) <= _WORDS
    assert isinstance(schema.get("type", ""), str)
    assert {"type", "anyOf", "enum"} & set(schema)
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
    if schema.get("type") == "array":
        check_strict(schema["items"], root)
    parts = [schema.get("properties", {}), root.get("$defs", {}) if schema is root else {}]
    for sub in (*schema.get("anyOf", ()), *(sub for part in parts for sub in part.values())):
        check_strict(sub, root)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Leaf, {"size": 2, "kind": None}),
        (Branch, {"name": "n", "leaves": [{"size": None, "kind": "a"}], "other": None}),
        (Tree, {"value": 1, "children": [{"value": 2, "children": None}]}),
        (Person, {"name": "n", "nick": None, "tags": None}),
        (list[Leaf], {"result": [{"size": 1, "kind": None}]}),
        (Literal["x", "y"], {"result": "x"}),
        (int | None, {"result": None}),
        (
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"const": 3}}},
            {"a": None, "b": 3},
        ),
    ],
    ids=str,
)
def test_what_the_subset_can_say_is_said_in_it(kind: Any, value: Any) -> None:
    """An answer that fits the strict schema is one that the application's type takes."""
    output = Output(kind)
    schema = strict_schema(output.schema)
    assert schema is not None
    check_strict(schema, schema)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(value)
    output.read(json.dumps(value))


def test_limits_become_words() -> None:
    """Nothing that the model was to know is lost."""
    schema = strict_schema(Output(Leaf).schema)
    assert schema is not None
    size = schema["properties"]["size"]["anyOf"][0]
    assert size == {"type": "integer", "description": "How big.\n\n(minimum: 1, default: 1)"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{"type": "integer"}]}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "integer"}]}}},
        {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 3}}}},
        {"type": "object", "properties": {"a": True}},
    ],
    ids=json.dumps,
)
def test_what_it_cannot_say_is_not_said_wrongly(schema: JsonObject) -> None:
    """A schema that is changed in its meaning would forbid right answers."""
    assert strict_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "additionalProperties": {}}, True),
        ({"type": "array", "items": {"type": "object", "additionalProperties": True}}, True),
        ({"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "string"}}]}, True),
        ({"$defs": {"a": {"type": "object"}}, "type": "string"}, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, False),
    ],
    ids=str,
)
def test_an_object_of_any_members_is_told(schema: JsonObject, is_open: bool) -> None:
    """Closed, it could only be empty, and so would every answer be."""
    assert has_open_objects(schema) == is_open


@pytest.mark.parametrize(
    ("schema", "recursive"),
    [
        (Output(Tree).schema, True),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, True),
        (
            {"definitions": {"a": {"items": {"$ref": "#/definitions/b"}}, "b": {"$ref": "#/definitions/a"}}},
            True,
        ),
        ({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, False),
        (Output(Branch).schema, False),
    ],
    ids=["a tree", "the root", "in a circle", "used once", "none"],
)
def test_a_schema_inside_itself_is_told(schema: JsonObject, recursive: bool) -> None:
    """Anthropic and Gemini take no such schema as the form of an answer."""
    assert is_recursive(schema) == recursive
