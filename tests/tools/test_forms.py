"""One tool, declared in each of the three ways, async and blocking: the same promises hold for all."""

from collections.abc import Callable
from typing import Any

import pydantic
import pytest

from playhead.errors import ToolError
from playhead.tools import Tool, ToolRegistry, tool
from playhead.types import JsonObject, ToolCall, ToolContext, ToolDefinition, ToolParameter

Record = Callable[[Any, Any], Any]


class SearchInput(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    query: str
    limit: int = 10
    tags: list[str] | None = None
    options: dict[str, float] | None = None
    exact: bool = False


PARAMETERS = [
    ToolParameter("query", "string", True, "What to look for."),
    ToolParameter("limit", "integer", False),
    ToolParameter("tags", "array", False),
    ToolParameter("options", "object", False),
    ToolParameter("exact", "boolean", False),
]


def by_function(record: Record, blocking: bool) -> ToolDefinition[..., Any]:
    def search(
        context: ToolContext,
        query: str,
        limit: int = 10,
        tags: list[str] | None = None,
        options: dict[str, float] | None = None,
        exact: bool = False,
    ) -> Any:
        """Search.

        Args:
            query: What to look for.
        """
        return record({"query": query, "limit": limit, "tags": tags}, context.context)

    async def search_async(
        context: ToolContext,
        query: str,
        limit: int = 10,
        tags: list[str] | None = None,
        options: dict[str, float] | None = None,
        exact: bool = False,
    ) -> Any:
        """Search.

        Args:
            query: What to look for.
        """
        return record({"query": query, "limit": limit, "tags": tags}, context.context)

    return tool(search, name="search") if blocking else tool(search_async, name="search")


def by_model(record: Record, blocking: bool) -> ToolDefinition[..., Any]:
    def execute(given: SearchInput, context: Any) -> Any:
        return record(given.model_dump(include={"query", "limit", "tags"}), context)

    async def execute_async(given: SearchInput, context: Any) -> Any:
        return execute(given, context)

    chosen = execute if blocking else execute_async
    return Tool("search", "Search.", execute=chosen, input_model=SearchInput)


def by_list(record: Record, blocking: bool) -> ToolDefinition[..., Any]:
    def execute(args: JsonObject, context: Any) -> Any:
        return record(
            {"query": args["query"], "limit": args.get("limit", 10), "tags": args.get("tags")}, context
        )

    async def execute_async(args: JsonObject, context: Any) -> Any:
        return execute(args, context)

    chosen = execute if blocking else execute_async
    return Tool("search", "Search.", execute=chosen, parameters=PARAMETERS)


class Bench:
    """The tool in a registry, and what it was called with."""

    def __init__(self, make: Callable[[Record, bool], ToolDefinition[..., Any]], blocking: bool) -> None:
        self.calls: list[Any] = []
        self.contexts: list[Any] = []
        self.tool = make(self._record, blocking)
        self.registry = ToolRegistry([self.tool])

    def _record(self, given: Any, context: Any) -> Any:
        self.calls.append(given)
        self.contexts.append(context)
        return given

    async def error(self, **args: Any) -> str:
        result = await self.registry.execute(ToolCall("c1", "search", args))
        assert result.result is None
        assert result.error is not None
        assert result.text == result.error
        assert self.calls == [], "it ran although its arguments do not fit"
        return result.error

    async def result(self, context: Any = None, /, **args: Any) -> Any:
        result = await self.registry.execute(ToolCall("c1", "search", args), context)
        assert result.error is None
        return result.result


@pytest.fixture(params=["async", "blocking"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "blocking")


@pytest.fixture(params=[by_function, by_model, by_list], ids=lambda make: make.__name__)
def bench(request: pytest.FixtureRequest, blocking: bool) -> Bench:
    return Bench(request.param, blocking)


@pytest.mark.anyio
async def test_arguments_that_fit_reach_the_tool(bench: Bench) -> None:
    """R46: required ones present, types as declared, defaults honoured."""
    assert await bench.result(query="cats") == {"query": "cats", "limit": 10, "tags": None}
    assert await bench.result(query="", limit=3, tags=["a"]) == {"query": "", "limit": 3, "tags": ["a"]}


@pytest.mark.anyio
async def test_every_offending_argument_is_named_and_the_tool_does_not_run(bench: Bench) -> None:
    """R47: missing, of a wrong type, unknown; what was expected and what came."""
    error = await bench.error(limit="many", exact=1, tags={"a": 1}, colour="red")
    for name in ("`query`", "`limit`", "`exact`", "`tags`", "`colour`"):
        assert name in error
    assert '"many" (string)' in error
    assert "1 (integer)" in error
    assert "integer" in error
    assert "array" in error or "list" in error


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("args", "name"),
    [
        ({"query": 123}, "query"),
        ({"query": None}, "query"),
        ({"query": ["a"]}, "query"),
        ({"query": "x", "limit": True}, "limit"),
        ({"query": "x", "limit": 5.5}, "limit"),
        ({"query": "x", "limit": "5"}, "limit"),
        ({"query": "x", "limit": [5]}, "limit"),
        ({"query": "x", "exact": "true"}, "exact"),
        ({"query": "x", "exact": 0}, "exact"),
        ({"query": "x", "tags": "a"}, "tags"),
        ({"query": "x", "tags": '{"a": 1}'}, "tags"),
        ({"query": "x", "options": [1]}, "options"),
        ({"query": "x", "options": "nothing"}, "options"),
    ],
)
async def test_a_wrong_type_is_never_guessed_at(bench: Bench, args: JsonObject, name: str) -> None:
    """R46, R47, R48: a boolean is no number, a number no string, text no number."""
    assert f"`{name}`" in await bench.error(**args)


@pytest.mark.anyio
async def test_a_whole_float_counts_as_an_integer(bench: Bench) -> None:
    """R46: JSON has one kind of number, and models write 5.0."""
    assert (await bench.result(query="x", limit=5.0))["limit"] == 5
    assert type(bench.calls[0]["limit"]) is int


@pytest.mark.anyio
async def test_null_for_an_optional_argument_counts_as_absent(bench: Bench) -> None:
    """R46: the default holds, not None."""
    given = await bench.result(query="x", limit=None, tags=None, exact=None)
    assert given == {"query": "x", "limit": 10, "tags": None}


@pytest.mark.anyio
async def test_json_in_a_string_is_read_only_where_no_string_is_wanted(bench: Bench) -> None:
    """Q050: an array or an object that arrives as text; a string field is never touched."""
    given = await bench.result(query='["a"]', tags='["b"]', options='{"a": 1}')
    assert given["query"] == '["a"]'
    assert given["tags"] == ["b"]


@pytest.mark.anyio
async def test_the_context_is_the_applications_own_untouched(bench: Bench) -> None:
    """S5: the very same object."""
    context = object()
    await bench.result(context, query="x")
    await bench.result(ToolContext(context, "c1"), query="x")
    assert [found is context for found in bench.contexts] == [True, True]


@pytest.mark.anyio
async def test_a_tool_may_change_its_arguments(bench: Bench) -> None:
    """Design, "Encode once": the call is history, and the tool has a copy."""
    call = ToolCall("c1", "search", {"query": "x", "tags": ["a"]})
    await bench.registry.execute(call)
    bench.calls[0]["tags"].append("b")
    assert call.args == {"query": "x", "tags": ["a"]}


@pytest.mark.anyio
async def test_a_definition_can_be_run_without_a_registry(bench: Bench) -> None:
    """S5, S6: name, description, schema, execute; validated all the same, and errors raise."""
    assert (bench.tool.name, bench.tool.description) == ("search", "Search.")
    assert (await bench.tool.execute({"query": "x"}, "context"))["query"] == "x"
    assert bench.contexts == ["context"]
    with pytest.raises(ToolError, match="`query`: "):
        await bench.tool.execute({})


def test_a_schema_has_nothing_executable_and_says_the_same_in_each_form(bench: Bench) -> None:
    """R30: name, description, and parameters of key, type and required, in order."""
    (schema,) = bench.registry.to_tool_schemas()
    assert [(p.key, p.type, p.required) for p in schema.parameters] == [
        ("query", "string", True),
        ("limit", "integer", False),
        ("tags", "array", False),
        ("options", "object", False),
        ("exact", "boolean", False),
    ]
    assert schema.input_schema["type"] == "object"
    assert schema.input_schema["required"] == ["query"]
    assert list(schema.input_schema["properties"]) == ["query", "limit", "tags", "options", "exact"]
