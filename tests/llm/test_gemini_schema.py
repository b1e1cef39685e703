"""Any JSON Schema in, only what Gemini takes out. Wire cases Q145 to Q148."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from playhead import Tool, tool
from playhead.llm.gemini import convert_tools
from playhead.llm.gemini_schema import convert_schema
from playhead.tools.registry import ToolRegistry
from playhead.types import ToolSchema
from tests.support.strict_apis import check_gemini_schema

Schema = dict[str, Any]

NODE: Schema = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}}


@pytest.mark.parametrize(
    "siblings", [{}, {"title": "t"}, {"description": "d"}, {"default": 1, "minLength": 3}]
)
def test_q145_a_reference_is_put_in_its_place(siblings: Schema) -> None:
    """Q145: beside it, only its description and default count."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/T", **siblings}}}
    out = convert_schema({**schema, "$defs": {"T": {"type": "string", "maxLength": 9, "title": "T"}}})
    kept = {k: v for k, v in siblings.items() if k in ("description", "default")}
    assert out["properties"]["a"] == {"type": "string", "maxLength": 9, "title": "T", **kept}


RECURSIVE: list[Schema] = [
    {"$ref": "#/$defs/T", "$defs": {"T": NODE}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/T", "title": "t"}}, "$defs": {"T": NODE}},
    {"type": "object", "properties": {"again": {"$ref": "#"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
    {
        "$ref": "#/definitions/A",
        "definitions": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}},
            "B": {"type": "array", "items": {"$ref": "#/definitions/A"}},
        },
    },
    {
        "$ref": "#/$defs/T",
        "$defs": {
            "T": {"type": "object", "properties": {n: {"$ref": "#/$defs/T"} for n in ("left", "right", "up")}}
        },
    },
]


@pytest.mark.parametrize("schema", RECURSIVE)
def test_q145_a_recursive_reference_ends_as_an_open_object(schema: Schema) -> None:
    """Q145: at a fixed depth, and never as a request that grows without bound."""
    out = convert_schema(schema)
    check_gemini_schema(out)
    assert len(json.dumps(out)) < 5_000
    assert "$ref" not in json.dumps(out)


def test_q145_a_reference_that_leads_nowhere_is_anything() -> None:
    """Q145: a broken schema is no broken request."""
    check_gemini_schema(convert_schema({"type": "object", "properties": {"a": {"$ref": "#/$defs/Nowhere"}}}))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["null", "integer"], "minimum": 1}, {"type": "integer", "minimum": 1, "nullable": True}),
        ({"type": ["string"]}, {"type": "string"}),
        ({"type": ["null"]}, {"type": "string", "nullable": True}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            {"type": "string", "nullable": True},
        ),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, {"type": "boolean", "nullable": True}),
        (
            {"type": ["string", "integer"], "maxLength": 3, "minimum": 1},
            {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 1}]},
        ),
        (
            {
                "type": ["object", "array", "null"],
                "properties": {"a": {"type": "string"}},
                "items": {"type": "string"},
            },
            {
                "anyOf": [
                    {"type": "object", "properties": {"a": {"type": "string"}}, "nullable": True},
                    {"type": "array", "items": {"type": "string"}, "nullable": True},
                ]
            },
        ),
        ({"enum": ["a", "b", None]}, {"type": "string", "enum": ["a", "b"], "nullable": True}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"type": "string", "enum": [""]}, {"type": "string"}),
    ],
)
def test_q146_several_types(schema: Schema, expected: Schema) -> None:
    """Q146: null becomes `nullable`, others a choice in which each has its own keywords."""
    out = convert_schema(schema)
    check_gemini_schema(out)
    assert {k: v for k, v in out.items() if k != "description" or v} == expected


UNTAKEN: list[Schema] = [
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10, "multipleOf": 2},
    {"type": "string", "format": "uri"},
    {"type": "string", "contentEncoding": "base64", "examples": ["a"]},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "patternProperties": {"^a": {}}, "required": ["b"]},
    {"type": "array"},
    {"type": "array", "items": {}},
    {"type": "array", "items": False, "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    {"type": "array", "items": [{"type": "string"}], "uniqueItems": True},
    {"not": {"type": "string"}},
    {"if": {}, "then": {}, "else": {}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a", "z"]}]},
    {"type": "string", "properties": {"a": {}}, "items": {}},
    {"properties": {"a": {}}},
    {"type": "file"},
    {"type": "STRING"},
    {},
    {"description": "anything"},
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
    {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "integer"}]},
    {"anyOf": [True, {"type": "string"}]},
    {"type": "number", "enum": [1, 2.5]},
    {"type": "boolean", "const": True},
]


@pytest.mark.parametrize("schema", UNTAKEN, ids=json.dumps)
def test_q147_what_is_not_taken_is_left_out(schema: Schema) -> None:
    """Q147: at the top, in a property, in a list, and in a choice."""
    places: list[Schema] = [
        {"type": "object", "properties": {"a": schema}},
        {"type": "array", "items": schema},
        {"type": "object", "properties": {"a": {"anyOf": [schema, {"type": "null"}]}}},
    ]
    for place in [schema, *places]:
        check_gemini_schema(convert_schema(place))


def test_q147_exclusive_bounds_of_whole_numbers_are_kept() -> None:
    """Q147: what can be said in other words is."""
    assert convert_schema(UNTAKEN[0]) == {"type": "integer", "minimum": 1, "maximum": 9}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_q148_a_tool_without_parameters(schema: Schema) -> None:
    """Q148: none are declared, except for a forced call, which needs an object."""
    made = [ToolSchema("now", "Say when.", [], schema)]
    assert "parameters" not in convert_tools(made)[0]
    assert convert_tools(made, forced=True)[0]["parameters"] == {"type": "object", "properties": {}}


def test_a_choice_at_the_top_of_a_tool_is_an_object() -> None:
    """anthropics/claude-code#40075: every property is offered, none of a branch is required."""
    branches = [{"properties": {n: {"type": "string"}}, "required": [n]} for n in ("a", "b")]
    made = ToolSchema(
        "f", "F.", [], {"oneOf": branches, "properties": {"c": {"type": "string"}}, "required": ["c"]}
    )
    parameters = convert_tools([made])[0]["parameters"]
    assert (parameters["type"], set(parameters["properties"])) == ("object", {"a", "b", "c"})
    assert parameters["required"] == ["c"]


class Place(BaseModel):
    name: str = Field(min_length=1, pattern="^[a-z]+$")
    inside: "Place | None" = None
    tags: set[str] = set()
    size: tuple[int, float] = (0, 0.0)
    more: dict[str, int | list["Place"]] = {}
    at: float | None = Field(None, gt=0, lt=5)


class Point(msgspec.Struct):
    x: float
    y: float | None = None


@tool
async def travel(to: Point, via: list[Point] | None = None, anything: Any = None, how: str | int = "") -> str:
    """Go somewhere."""
    return "there"


def test_our_own_tools_are_taken() -> None:
    """R38: those of a function and of a pydantic model, recursive ones too."""
    registry = ToolRegistry(
        [travel, Tool("visit", "Visit.", input_model=Place, execute=lambda args: "there")]
    )
    for declaration in convert_tools(registry.to_tool_schemas()):
        check_gemini_schema(declaration["parameters"])
        assert declaration["parameters"]["properties"]


KEYS = st.sampled_from(["a", "b", "next"])
REFS = st.sampled_from([{"$ref": "#/$defs/T"}, {"$ref": "#/$defs/U", "description": "d"}, {"$ref": "#"}])
LEAVES = st.one_of(
    REFS,
    st.sampled_from(UNTAKEN),
    st.booleans(),
    st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "integer", "object", "array", "null"])),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required: {"type": "object", "properties": properties, "required": required},
            st.dictionaries(KEYS, inner, max_size=2),
            st.lists(KEYS, max_size=2),
        ),
        st.builds(lambda items: {"type": ["array", "null"], "items": items}, inner),
        st.builds(
            lambda key, options: {key: options, "title": "t"},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_any_schema_ends_in_the_subset(schema: Any, first: Any, second: Any) -> None:
    """Q145 to Q148: whatever comes in, and always as something small enough to send."""
    properties = {"a": schema, "b": {"$ref": "#/$defs/T"}}
    out = convert_schema({"type": "object", "properties": properties, "$defs": {"T": first, "U": second}})
    check_gemini_schema(out)
