"""What exists by name, and what becomes of a call whatever happens to it."""

import asyncio
from typing import Any

import msgspec
import pytest

from playhead.errors import ConfigError, FatalToolError, ToolError
from playhead.tools import DefinitionRegistry, Tool, ToolRegistry, tool
from playhead.types import JsonObject, ToolCall, ToolContext, ToolDefinition, ToolParameter, ToolResult


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def get_time() -> str:
    """Tell the time."""
    return "noon"


def raising(error: BaseException) -> ToolDefinition[..., Any]:
    async def execute(args: JsonObject) -> None:
        raise error

    return Tool("fails", "Fail.", execute=execute)


async def run(tools: Any, name: str, args: Any = None, **options: Any) -> ToolResult:
    call = ToolCall("c1", name, {} if args is None else args)
    return await ToolRegistry(tools).execute(call, **options)


# ---------------------------------------------------------------- by name


def test_definitions_are_kept_by_key_in_order() -> None:
    """R29: register, get, has, get_all, for any kind of definition."""
    registry: DefinitionRegistry[int, str] = DefinitionRegistry(len)
    registry.register("four")
    registry.register("a")
    assert registry.get(4) == "four"
    assert (registry.has(1), registry.has(2)) == (True, False)
    assert registry.get_all() == ["four", "a"]


def test_a_duplicate_name_is_a_clear_error() -> None:
    """R29: the first stays."""
    registry = ToolRegistry([add])
    with pytest.raises(ConfigError, match="'add' is registered already"):
        registry.register(Tool("add", "Another.", execute=lambda args: None))
    assert registry.get("add") is add


def test_an_unknown_key_is_a_clear_error_that_says_what_there_is() -> None:
    """R29: with the nearest names."""
    with pytest.raises(ConfigError, match=r"'get_tim'.*Available: add, get_time\. Did you mean get_time\?"):
        ToolRegistry([add, get_time]).get("get_tim")
    with pytest.raises(ConfigError, match="Nothing is registered"):
        ToolRegistry().get("x")


def test_what_is_not_a_tool_is_refused() -> None:
    """R29: a function without @tool is a mistake that the text explains."""

    def plain() -> None: ...

    with pytest.raises(ConfigError, match="'plain' is not a tool: put @tool on the function"):
        ToolRegistry([plain])  # type: ignore[list-item]


def test_schemas_are_made_once_until_a_tool_is_added() -> None:
    """R30: the wire form is name, description, parameters and the whole JSON Schema."""
    registry = ToolRegistry([add])
    first = registry.to_tool_schemas()
    assert registry.to_tool_schemas() is first
    registry.register(get_time)
    schemas = registry.to_tool_schemas()
    assert [schema.name for schema in schemas] == ["add", "get_time"]
    assert msgspec.json.decode(msgspec.json.encode(schemas[0])) == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": [
            {"key": "a", "type": "integer", "required": True},
            {"key": "b", "type": "integer", "required": True},
        ],
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    }


# ---------------------------------------------------------------- calls


@pytest.mark.anyio
async def test_a_call_is_looked_up_validated_run_and_encoded() -> None:
    """S6, S7: the result is JSON-ready, the text what the model reads."""
    assert await run([add], "add", {"a": 2, "b": 3}) == ToolResult("c1", "add", 5, None, "5")
    assert await run([get_time], "get_time") == ToolResult("c1", "get_time", "noon", None, "noon")


@pytest.mark.anyio
@pytest.mark.parametrize("args", [{}, None])
async def test_a_tool_without_required_arguments_takes_none(args: Any) -> None:
    """R48, Q046, Q047: `{}` passes."""
    listed = Tool(
        "t", "T.", execute=lambda args: args, parameters=[ToolParameter("assetId", "string", False)]
    )
    result = await ToolRegistry([listed]).execute(ToolCall("c1", "t", args))
    assert (result.error, result.result) == (None, {})


@pytest.mark.anyio
async def test_a_number_for_a_string_names_the_argument() -> None:
    """R48: `assetId: 123` fails with "assetId" in the error."""
    listed = Tool("t", "T.", execute=lambda args: args, parameters=[ToolParameter("assetId", "string", True)])
    result = await run([listed], "t", {"assetId": 123})
    assert result.error == (
        "`t` was not run, because its arguments do not fit:\n- `assetId`: expected string, got 123 (integer)"
    )


@pytest.mark.anyio
@pytest.mark.parametrize("args", [[], "x", 1])
async def test_arguments_that_are_no_object_are_refused(args: Any) -> None:
    """R47: whatever an adapter lets through."""
    result = await run([get_time], "get_time", args)
    assert result.error == "The arguments of `get_time` must be a JSON object."


@pytest.mark.anyio
async def test_an_unknown_tool_is_answered_with_the_names() -> None:
    """S6, Q166: the model can correct itself."""
    result = await run([add, get_time], "get_date")
    assert result.error == (
        "There is no tool named 'get_date'. Available: add, get_time. Did you mean get_time?"
    )
    assert result.name == "get_date"
    assert "Nothing is registered." in str((await run([], "x")).error)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["default_api.get_time", "functions.get_time", "default_api:get_time"])
async def test_a_prefix_that_models_invent_is_stripped(name: str) -> None:
    """Q149: the result keeps the name that the model used, for its own pairing."""
    assert await run([get_time], name) == ToolResult("c1", name, "noon", None, "noon")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", ["other.get_time", "get_time.default_api", "default_api.", ".get_time", "default_apiget_time"]
)
async def test_another_prefix_is_not(name: str) -> None:
    """Q149: only what is known; a guess could run the wrong tool."""
    assert "There is no tool named" in str((await run([get_time], name)).error)


@pytest.mark.anyio
async def test_a_call_whose_arguments_could_not_be_read_is_answered_and_never_run() -> None:
    """S6, Q053: with the adapter's own words."""
    call = ToolCall("c1", "get_time", {}, "The arguments are not JSON: {city: Oslo}")
    result = await ToolRegistry([get_time]).execute(call)
    assert result.error == "The arguments are not JSON: {city: Oslo}"


# ---------------------------------------------------------------- failures


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "no such city"),
        (ToolError("try again later"), "try again later"),
        (RuntimeError(), "RuntimeError"),
        (FileNotFoundError(2, "No such file", "/srv/data/x.mp4"), "[Errno 2] No such file: 'x.mp4'"),
        (RuntimeError("401 for key=sk-abcdefghijklmnop"), "401 for key=***"),
        (TimeoutError("the printer did not answer"), "the printer did not answer"),
        (RecursionError("deep"), "deep"),
    ],
)
async def test_an_exception_becomes_a_result_that_the_model_reads(error: Exception, text: str) -> None:
    """S8: its message, without secrets, paths or a traceback."""
    result = await run([raising(error)], "fails", timeout=30.0)
    assert result == ToolResult("c1", "fails", None, text, text)


@pytest.mark.anyio
async def test_a_fatal_error_is_not_turned_into_a_result() -> None:
    """S8: the run ends with it."""
    with pytest.raises(FatalToolError, match="the disk is full"):
        await run([raising(FatalToolError("the disk is full"))], "fails", timeout=30.0)


@pytest.mark.anyio
@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_tool_that_raises_cancelled_itself_fails_alone(timeout: float | None) -> None:
    """Q169: nobody cancelled the run."""
    result = await run([raising(asyncio.CancelledError())], "fails", timeout=timeout)
    assert result.error == "`fails` was cancelled from within; it has no result."


@pytest.mark.anyio
@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_cancelled_task_is_cancelled(timeout: float | None) -> None:
    """Q170: a stop passes through the registry and the tool."""
    begun, seen = asyncio.Event(), []

    async def execute(args: JsonObject) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(run([Tool("waits", "Wait.", execute=execute)], "waits", timeout=timeout))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


def waiting(clean_up: Exception | None = None, **options: Any) -> ToolDefinition[..., Any]:
    async def execute(args: JsonObject) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if clean_up is not None:
                raise clean_up

    return Tool("waits", "Wait.", execute=execute, **options)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("own", "given", "seconds"), [(None, 0.01, "0.01"), (0.02, 60.0, "0.02"), (0.02, None, "0.02")]
)
async def test_a_tool_that_hangs_is_stopped_and_the_text_says_after_how_long(
    own: float | None, given: float | None, seconds: str
) -> None:
    """S8: the tool's own time-out goes before the run's."""
    result = await run([waiting(timeout=own)], "waits", timeout=given)
    assert result.error == f"`waits` was stopped: it did not finish within {seconds} seconds."


@pytest.mark.anyio
async def test_a_time_out_is_told_as_one_although_the_clean_up_failed() -> None:
    """S8: the cause, not what came of it."""
    result = await run([waiting(OSError("close failed"))], "waits", timeout=0.01)
    assert "did not finish within 0.01 seconds" in str(result.error)


@pytest.mark.anyio
async def test_the_run_goes_on_after_a_time_out() -> None:
    """S8: the task itself is not left cancelled."""
    await run([waiting()], "waits", timeout=0.01)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert (await run([get_time], "get_time", timeout=1.0)).result == "noon"


@pytest.mark.anyio
async def test_a_result_that_is_nonsense_is_still_a_result() -> None:
    """S7, Q181: a circular structure, a huge one, none at all."""
    circle: list[Any] = []
    circle.append(circle)
    odd = Tool("odd", "Odd.", execute=lambda args, context: context)
    for value, text in ((circle, '["(this value contains itself)"]'), (None, "null"), ("", "(no output)")):
        result = await run([odd], "odd", context=value)
        assert (result.error, result.text) == (None, text)
    huge = await run([odd], "odd", context="x" * 3_000_000)
    assert len(huge.text) == len(huge.result) == 200_000


@pytest.mark.anyio
async def test_the_tools_context_is_the_loops_or_is_made_around_the_applications() -> None:
    """S5: call id, progress and cancellation come with it."""
    seen: list[ToolContext] = []
    told: list[Any] = []

    @tool
    async def look(context: ToolContext) -> None:
        seen.append(context)
        context.progress(0.5, "half")

    registry = ToolRegistry([look])
    ours = ToolContext("app", "c9", "key", lambda *args: told.append(args), lambda: True)
    await registry.execute(ToolCall("c1", "look", {}), ours)
    await registry.execute(ToolCall("c2", "look", {}), "app")
    assert seen[0] is ours
    assert (seen[0].cancelled, told) == (True, [(0.5, "half")])
    assert (seen[1].context, seen[1].call_id, seen[1].cancelled) == ("app", "c2", False)
