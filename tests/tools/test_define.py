"""What `@tool` and `Tool` read from a declaration."""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from playhead.tools import Tool, ToolRegistry, tool
from playhead.types import ToolCall, ToolContext, ToolDefinition, ToolParameter


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


@dataclass
class Person:
    name: str


class Options(TypedDict):
    deep: bool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(pydantic.BaseModel):
    street: str


class Customer(pydantic.BaseModel):
    address: Address
    age: int = pydantic.Field(ge=0)


def untyped(it):  # type: ignore[no-untyped-def]
    return it


async def anything(**rest: Any) -> Any:
    return rest


def properties(definition: ToolDefinition[..., Any]) -> dict[str, Any]:
    Draft202012Validator.check_schema(definition.input_schema)
    return dict(definition.input_schema["properties"])


async def text_of(definition: ToolDefinition[..., Any], **args: Any) -> str:
    return (await ToolRegistry([definition]).execute(ToolCall("c1", definition.name, args))).text


def test_a_decorated_function_stays_callable_as_itself() -> None:
    """S5: `@tool` bare and with options."""

    @tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    @tool(name="plus", description="Add.", timeout=5, replay="safe")
    def other(a: int) -> int:
        return a

    assert add(2) == 3
    assert (add.name, add.description, add.timeout, add.replay) == ("add", "add", None, "never")
    assert (other.name, other.description, other.timeout, other.replay) == ("plus", "Add.", 5, "safe")
    assert other(1) == 1


def test_annotations_become_a_schema() -> None:
    """R30, S5: also as text, under `from __future__ import annotations`."""

    @tool
    def f(
        text: str,
        when: datetime.date,
        choice: Literal["a", "b"],
        colour: Colour,
        points: list[Point],
        person: Person,
        options: Options,
        anything: Any,
        limit: Annotated[int, msgspec.Meta(ge=1, le=5, description="How many.")] = 3,
        note: Annotated[str, "A remark."] = "",
        maybe: Optional[int] = None,  # noqa: UP045 - the old spelling is to work
    ) -> None: ...

    found = properties(f)
    assert found["text"] == {"type": "string"}
    assert found["when"] == {"type": "string", "format": "date"}
    assert found["choice"] == {"type": "string", "enum": ["a", "b"]}
    assert found["colour"] == {"type": "string", "enum": ["blue", "red"]}
    assert found["points"]["items"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"type": "number", "default": 0.0},
    }
    assert found["person"]["required"] == ["name"]
    assert found["options"]["properties"] == {"deep": {"type": "boolean"}}
    assert found["anything"] == properties(tool(untyped))["it"] == {}
    assert found["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "How many.",
        "default": 3,
    }
    assert found["note"] == {"type": "string", "description": "A remark.", "default": ""}
    assert found["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert [p.key for p in f.parameters if p.required][-1] == "anything"
    assert {p.key: p.type for p in f.parameters}["maybe"] == "integer"
    assert "$defs" not in f.input_schema


def test_nested_types_stand_in_place_and_recursive_ones_under_defs() -> None:
    """R38: many providers follow no references; none of ours dangles."""

    @tool
    def f(tree: Tree, shape: Circle | Square, customer: Customer) -> None: ...

    found = properties(f)
    assert found["tree"] == {"$ref": "#/$defs/Tree"}
    assert list(f.input_schema["$defs"]) == ["Tree"]
    assert f.input_schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert [option["properties"]["type"]["enum"] for option in found["shape"]["anyOf"]] == [
        ["circle"],
        ["square"],
    ]
    assert found["customer"]["properties"]["address"]["properties"] == {"street": {"type": "string"}}
    assert {p.key: p.type for p in f.parameters} == {
        "tree": "object",
        "shape": "object",
        "customer": "object",
    }


GOOGLE = """Find things.

    In all places.

    Args:
        query: What to
            look for.
        limit (int): How many.

    Returns:
        The things.

    Raises:
        ValueError: never.
    """
NUMPY = """Find things.

    In all places.

    Parameters
    ----------
    query : str
        What to
        look for.
    limit : int
        How many.

    Returns
    -------
    list
        The things.
    """
REST = """Find things.

    In all places.

    :param query: What to
        look for.
    :param limit: How many.
    :return: The things.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_a_docstring_describes_the_tool_and_its_arguments(docstring: str) -> None:
    """S5: in the three usual styles; what is said of errors is not the model's concern."""

    def find(query: str, limit: int = 3) -> None: ...

    find.__doc__ = docstring
    found = tool(find)
    assert found.description == "Find things.\n\nIn all places.\n\nReturns: The things."
    assert [p.description for p in found.parameters] == ["What to look for.", "How many."]


def test_a_docstring_without_sections_is_the_description() -> None:
    """S5: as it stands; without one, the name is."""

    def find() -> None:
        """Find: things.

        Also: others.
        """

    assert tool(find).description == "Find: things.\n\nAlso: others."
    find.__doc__ = None
    assert tool(find, name="find_it").description == "find it"


@pytest.mark.anyio
async def test_values_arrive_as_what_they_were_annotated() -> None:
    """R46: structs, dates, enums, pydantic models, to any depth."""

    @tool
    async def f(points: list[Point], when: datetime.date, colour: Colour, customer: Customer) -> Any:
        return [points[0].x, when.year, colour.name, customer.address.street]

    args = {
        "points": [{"x": 1}],
        "when": "2026-01-02",
        "colour": "red",
        "customer": {"address": {"street": "Elm"}, "age": 3},
    }
    assert await text_of(f, **args) == '[1,2026,"RED","Elm"]'


@pytest.mark.anyio
async def test_a_fault_within_an_argument_is_named_by_its_path() -> None:
    """R47: what was expected there, and what came."""

    @tool
    async def f(
        points: list[Point], tree: Tree, colour: Colour, customer: Customer, limits: dict[str, int]
    ) -> None: ...

    text = await text_of(
        f,
        points=[{"x": 1}, {"x": "one"}],
        tree={"value": 1, "children": [{}]},
        colour="green",
        customer={"address": {}, "age": -1},
        limits={"a": "b"},
    )
    assert text.splitlines()[1:] == [
        '- `points[1].x`: expected integer, got "one" (string)',
        "- `tree.children[0]`: object missing required field `value`, got {} (object)",
        '- `colour`: expected one of "blue", "red", got "green" (string)',
        "- `customer`: `address.street`: Field required; "
        "`age`: Input should be greater than or equal to 0, got -1 (integer)",
        '- `limits[...]`: expected integer, got string; `limits` was {"a":"b"} (object)',
    ]


@pytest.mark.anyio
async def test_models_slips_are_mended_at_any_depth() -> None:
    """Q050, R46: whole floats and JSON in strings, where the schema leaves no doubt."""

    @tool
    async def f(points: list[Point], tree: Tree, shape: Circle | Square, limits: dict[str, int]) -> Any:
        return [points, tree.children[0].value, shape.__class__.__name__, limits]

    text = await text_of(
        f,
        points='[{"x": 2.0}]',
        tree={"value": 1, "children": '[{"value": 3.0}]'},
        shape='{"type": "circle", "radius": 1}',
        limits={"a": 4.0},
    )
    assert text == '[[{"x":2,"y":0.0}],3,"Circle",{"a":4}]'


@pytest.mark.anyio
async def test_further_arguments_reach_a_function_that_takes_them() -> None:
    """R47: only then; and they are of the declared type."""

    @tool
    async def f(a: int, **rest: int) -> Any:
        return rest

    assert await text_of(f, a=1, b=2.0) == '{"b":2}'
    assert '- `b`: expected integer, got "x" (string)' in await text_of(f, a=1, b="x")
    assert f.input_schema["additionalProperties"] == {"type": "integer"}
    assert await text_of(tool(anything), b="x") == '{"b":"x"}'


@pytest.mark.anyio
@pytest.mark.parametrize(
    "hint", ["ToolContext", "ToolContext | None", "Optional[ToolContext]", 'Annotated[ToolContext, "x"]']
)
async def test_the_context_parameter_is_filled_in_and_not_in_the_schema(hint: str) -> None:
    """S5: however it is spelled."""

    async def f(a: int, c: Any = None) -> str:
        return f"{a} {c.context}"

    f.__annotations__["c"] = hint
    definition = tool(f)
    assert list(properties(definition)) == ["a"]
    result = await ToolRegistry([definition]).execute(ToolCall("c1", "f", {"a": 1}), "app")
    assert result.text == "1 app"
    assert "`c`: unknown argument" in await text_of(definition, a=1, c=2)


@pytest.mark.anyio
async def test_other_callables_are_tools_too() -> None:
    """S5: bound methods, partials, objects; a blocking wrapper of an async function is awaited."""

    class Shop:
        async def price(self, item: str) -> str:
            return f"{item}: 3"

        async def __call__(self, item: str) -> str:
            return f"call {item}"

    async def scale(factor: int, value: int) -> int:
        return factor * value

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    assert await text_of(tool(Shop().price), item="tea") == "tea: 3"
    assert await text_of(tool(Shop(), name="shop"), item="tea") == "call tea"
    assert await text_of(tool(functools.partial(scale, factor=2), name="double"), value=4, factor=2) == "8"
    assert await text_of(tool(wrapped(scale)), factor=2, value=5) == "10"


@pytest.mark.anyio
async def test_execute_takes_the_context_in_the_form_it_asks_for() -> None:
    """S5: `(args)`, `(args, context)`, `(args, context: ToolContext)`."""

    async def ours(args: Any, context: ToolContext) -> Any:
        return [args, context.context, context.call_id]

    tools = [
        Tool("one", "One.", execute=lambda args: [args]),
        Tool("two", "Two.", execute=lambda args, context: [args, context]),
        Tool("ours", "Ours.", execute=ours),
    ]
    registry = ToolRegistry(tools)
    texts = [(await registry.execute(ToolCall("c1", t.name, {}), "app")).text for t in tools]
    assert texts == ["[{}]", '[{},"app"]', '[{},"app","c1"]']


@pytest.mark.anyio
async def test_a_model_keeps_its_own_rules() -> None:
    """S5: aliases, validators and its word on further arguments are pydantic's business."""

    class Input(pydantic.BaseModel):
        asset_id: str = pydantic.Field(alias="assetId", description="Which.")
        when: datetime.date | None = None

        @pydantic.field_validator("asset_id")
        @classmethod
        def lower(cls, value: str) -> str:
            if value == "none":
                raise ValueError("none is not one")
            return value.lower()

    definition = Tool("t", "T.", input_model=Input, execute=lambda given: [given.asset_id, given.when])
    assert definition.parameters[0] == ToolParameter("assetId", "string", True, "Which.")
    assert await text_of(definition, assetId="AB", when="2026-01-02", more=1) == '["ab","2026-01-02"]'
    assert "`assetId`: Value error, none is not one" in await text_of(definition, assetId="none")
    assert "`assetId`: Field required" in await text_of(definition, asset_id="x")
