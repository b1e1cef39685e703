"""Faults that servers of the OpenAI-compatible dialect were publicly reported to have: what arrives.

Wire cases A to D, each over a real socket. The ids are those of the reports; the kinds are tried
with other inputs, too.
"""

import json
import time
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    LLMError,
    LLMRequest,
    UserMessage,
    tool,
)
from playhead.events import TextDelta, ToolCallDelta, ToolCallStart
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, openai_text
from tests.llm.openai_wire import (
    Chunk,
    brief,
    delta,
    piece,
    pieces,
    read,
    shown,
    whole,
)

pytestmark = pytest.mark.anyio

# ---------------------------------------------------------------- A. the stream


@pytest.mark.parametrize(
    ("first", "second", "args"),
    [
        ('{"s":"a\\', 'u00e9"}', {"s": "aé"}),
        ('{"s":"\\ud83d', '\\ude00"}', {"s": "😀"}),
        ('{"s":"\\', 'n"}', {"s": "\n"}),
        ("", '{"s":1}', {"s": 1}),
    ],
)
async def test_q002_an_escape_split_over_two_deltas(first: str, second: str, args: Any) -> None:
    """Q002: fragments are joined, and decoded once."""
    result, _ = await read(
        pieces(piece(0, "t1", "put", first)), pieces(piece(0, args=second)), delta("tool_calls")
    )
    assert brief(result) == [("put", args)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (['"\\ud83d"', '"\\ude00 ok"'], "😀 ok"),
        (['"a\\ud83d"', '"b"'], "a\ufffdb"),
        (['"\\ude00"'], "\ufffd"),
        (['"end \\ud83d"'], "end \ufffd"),
    ],
)
async def test_q002_half_a_character_in_a_delta(texts: list[str], expected: str) -> None:
    """Q002: the halves become one character; a half that stays alone is replaced, never sent on."""
    chunks = [f'{{"choices":[{{"delta":{{"content":{text}}}}}]}}' for text in texts]
    result, deltas = await read(*chunks, delta("stop"))
    assert result.message.content == expected
    assert shown(deltas) == expected
    json.dumps(result.message.content, ensure_ascii=False).encode()


async def test_q014_a_finish_reason_without_done() -> None:
    """Q014: `[DONE]` is optional."""
    result, _ = await read(delta(content="hi"), delta("stop"), done=False)
    assert result.stop_reason == "stop"


@pytest.mark.parametrize("calls", [False, True])
async def test_q016_done_without_a_finish_reason(calls: bool) -> None:
    """Q016: `[DONE]` is the terminal signal; complete calls run."""
    first = pieces(piece(0, "t1", "f", "{}")) if calls else delta(content="ok")
    result, _ = await read(first)
    assert result.stop_reason == "stop"
    assert len(result.message.tool_calls) == calls


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "worker full", "code": 502}, "overloaded"),
        ({"message": "slow down", "code": "429"}, "rate_limit"),
        ({"message": "no key", "code": 401}, "auth"),
        ({"message": "odd", "code": "weird"}, "overloaded"),
        ({"type": "insufficient_quota", "code": 429}, "quota"),
        ("context size exceeded", "context_too_long"),
        ("something else", "overloaded"),
    ],
)
@pytest.mark.parametrize("said", [False, True], ids=["first", "after text"])
async def test_q017_q019_q082_an_error_object_inside_a_stream(error: Any, code: str, said: bool) -> None:
    """Q017, Q019: object or text, at once or after content: a typed error, never an empty success."""
    chunks: list[Chunk] = [delta(content="par")] if said else []
    with pytest.raises(LLMError) as caught:
        await read(*chunks, {"error": error})
    assert caught.value.code == code
    assert "worker full" not in str(caught.value)


@pytest.mark.parametrize("broken", ['{"choices":[{"delta":', "<html>", "{]", "\x00"])
async def test_q020_a_broken_line_in_a_good_stream(broken: str) -> None:
    """Q020: a protocol error; nothing is skipped in silence, and the text holds little of the line."""
    with pytest.raises(LLMError) as caught:
        await read(delta(content="a"), broken, delta(content="b"), delta("stop"))
    assert caught.value.code == "protocol"
    assert any("after byte" in note for note in caught.value.__notes__)
    assert all(len(note) < 400 for note in caught.value.__notes__)


# ---------------------------------------------------------------- B. calls in pieces


CALLS: dict[str, tuple[list[Chunk], list[tuple[str, Any]]]] = {
    "q023 no index": (
        [pieces(piece(None, "t1", "sum_rows", '{"n"')), pieces(piece(args=":2}"))],
        [("sum_rows", {"n": 2})],
    ),
    "q023 no index, two calls": (
        [
            pieces(piece(None, "t1", "f", '{"a":')),
            pieces(piece(args="1}")),
            pieces(piece(None, "t2", "g", '{"b"')),
            pieces(piece(args=":2}")),
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "q025 wrong index": (
        [
            pieces(piece(0, "t1", "a", '{"x":1}')),
            pieces(piece(0, "t2", "b", "")),
            pieces(piece(1, args='{"y":2}')),
        ],
        [("a", {"x": 1}), ("b", {"y": 2})],
    ),
    "q025 a new id without a name goes on": (
        [pieces(piece(0, "t1", "a", '{"x"')), pieces(piece(0, "t9", args=":1}"))],
        [("a", {"x": 1})],
    ),
    "q026 index from 1": ([pieces(piece(1, "t1", "f", "{}"))], [("f", {})]),
    "q026 gaps": (
        [pieces(piece(0, "t1", "f", "{}"), piece(2, "t2", "g", "{}"))],
        [("f", {}), ("g", {})],
    ),
    "q028 no id anywhere": ([pieces(piece(0, name="now", args="{}"))], [("now", {})]),
    "q029 blank id, then null": (
        [pieces(piece(0, "", "f", '{"a"')), pieces(piece(0, None, args=":1}"))],
        [("f", {"a": 1})],
    ),
    "q031 id on every chunk": (
        [pieces(piece(0, "t1", "f", "{")), pieces(piece(0, "t1", args="}"))],
        [("f", {})],
    ),
    "q031 id and name on every chunk": (
        [pieces(piece(0, "t1", "f", '{"a"')), pieces(piece(0, "t1", "f", ":1}"))],
        [("f", {"a": 1})],
    ),
    "q032 id late": (
        [pieces(piece(0, name="f")), pieces(piece(0, "t1", args="{}"))],
        [("f", {})],
    ),
    "q034 one id for two": (
        [pieces(piece(0, "lookup", "lookup", '{"q":1}')), pieces(piece(1, "lookup", "lookup", '{"q":2}'))],
        [("lookup", {"q": 1}), ("lookup", {"q": 2})],
    ),
    "q037 name in halves": (
        [pieces(piece(0, "t1", "read_")), pieces(piece(0, name="page", args="{}"))],
        [("read_page", {})],
    ),
    "q037 name grows": (
        [pieces(piece(0, "t1", "read")), pieces(piece(0, name="read_page", args="{}"))],
        [("read_page", {})],
    ),
    "q038 arguments first": (
        [pieces(piece(0, "t1", args='{"a":1}')), pieces(piece(0, name="f"))],
        [("f", {"a": 1})],
    ),
    "q040 empty and null lists": (
        [delta(content="hi", tool_calls=[]), delta(reasoning_content="r", tool_calls=None)],
        [],
    ),
    "q044 function_call": (
        [
            delta(function_call={"name": "f", "arguments": "{"}),
            delta("function_call", function_call={"arguments": "}"}),
        ],
        [("f", {})],
    ),
    "all at index 0, no ids": (
        [pieces(piece(0, name="f", args='{"a":1}')), pieces(piece(0, name="g", args='{"b":2}'))],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "all at index 0, no ids, one tool": (
        [pieces(piece(0, name="f", args='{"a":1}')), pieces(piece(0, name="f", args='{"a":2}'))],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "q034 one id for two at one index": (
        [pieces(piece(0, "f", "f", '{"a":1}')), pieces(piece(0, "f", "f", '{"a":2}'))],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "q034 one id for two, in pieces": (
        [
            pieces(piece(0, "f", "f", '{"a"'), piece(1, "f", "f", '{"a"')),
            pieces(piece(1, "f", args=":2}")),
            pieces(piece(0, "f", args=":1}")),
        ],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "q031 the whole call again at its end": (
        [
            pieces(piece(0, "t1", "f", '{"a"')),
            pieces(piece(0, args=":1}")),
            pieces(piece(0, "t1", "f", '{"a":1}')),
        ],
        [("f", {"a": 1})],
    ),
    "name in every piece, no index, no id": (
        [pieces(piece(name="f", args='{"a"')), pieces(piece(name="f", args=":1}"))],
        [("f", {"a": 1})],
    ),
    "q032 id late, and the name again": (
        [pieces(piece(0, name="f", args='{"a"')), pieces(piece(0, "t1", "f", ":1}"))],
        [("f", {"a": 1})],
    ),
    "neither id nor arguments": ([pieces(piece(0, name="now"))], [("now", {})]),
    "indexes as text": (
        [
            delta(tool_calls=[{**piece(None, "t1", "f", '{"a"'), "index": "0"}]),
            delta(tool_calls=[{**piece(None, "t2", "g", '{"b"'), "index": "1"}]),
            delta(tool_calls=[{**piece(args=":1}"), "index": "0"}]),
            delta(tool_calls=[{**piece(args=":2}"), "index": "1"}]),
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "q044 both forms of one call": (
        [
            delta(
                tool_calls=[piece(0, "t1", "f", '{"a":1}')],
                function_call={"name": "f", "arguments": '{"a":1}'},
            )
        ],
        [("f", {"a": 1})],
    ),
    "q040 empty pieces": (
        [delta(content="hi", tool_calls=[{}]), delta(function_call={}), pieces(piece(0, "", args=""))],
        [],
    ),
    "half a character in a piece of arguments": (
        [pieces(piece(0, "t1", "f", '{"s":"\ud83d')), pieces(piece(0, args='\ude00"}'))],
        [("f", {"s": "\U0001f600"})],
    ),
    "arguments as an object": ([pieces(piece(0, "t1", "f", {"a": 1}))], [("f", {"a": 1})]),
    "function is null": ([delta(tool_calls=[{"index": 0, "id": "t1", "function": None}])], [("", {})]),
    "an id that is a number": ([pieces(piece(0, 7, "f", "{}"))], [("f", {})]),
    "interleaved": (
        [
            pieces(piece(0, "t1", "f", '{"a"'), piece(1, "t2", "g", '{"b"')),
            pieces(piece(1, args=":2}")),
            pieces(piece(0, args=":1}")),
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
}


@pytest.mark.parametrize("size", [None, 5], ids=["events", "bytes"])
@pytest.mark.parametrize("case", CALLS)
async def test_b_calls_are_read_however_they_are_cut(case: str, size: int | None) -> None:
    """Q023-Q044: every call once, whole, with an id of its own; the told events carry that id."""
    chunks, expected = CALLS[case]
    result, deltas = await read(*chunks, delta("tool_calls"), size=size)
    assert brief(result) == expected
    ids = [c.id for c in result.message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    named = {c.id: c.name for c in result.message.tool_calls if c.name}
    assert {d.call_id for d in deltas if isinstance(d, ToolCallStart)} == set(named)
    for call_id, name in named.items():
        (start,) = [d for d in deltas if isinstance(d, ToolCallStart) and d.call_id == call_id]
        assert name.startswith(start.name)
        told = "".join(d.text for d in deltas if isinstance(d, ToolCallDelta) and d.call_id == call_id)
        args = next(c.args for c in result.message.tool_calls if c.id == call_id)
        assert json.loads(told or "{}") == args


@pytest.mark.parametrize(
    ("id", "kept"), [("t1", True), ("functions.search:0", True), ("", False), (" ", False), (None, False)]
)
async def test_q029_q031_a_real_id_is_kept_and_a_blank_one_made(id: Any, kept: bool) -> None:
    """Q028-Q031: ids round-trip; blank is missing, and missing is made."""
    result, _ = await read(
        pieces(piece(0, id, "f", "{")), pieces(piece(0, None, args="}")), delta("tool_calls")
    )
    (call,) = result.message.tool_calls
    assert (call.id == id) is kept
    assert call.id.strip()


async def test_q034_two_whole_calls_may_share_an_id() -> None:
    """Q034: unique within the message, whatever the server does."""
    function = {"name": "lookup", "arguments": "{}"}
    calls = [{"id": "lookup", "type": "function", "function": function} for _ in range(2)]
    result = await whole({"content": None, "tool_calls": calls}, "tool_calls")
    assert len({c.id for c in result.message.tool_calls}) == 2


@pytest.mark.parametrize("role", ["", None, "assistant", "model"])
async def test_q041_the_role_of_a_chunk_does_not_matter(role: str | None) -> None:
    """Q041."""
    result, _ = await read(delta(role=role, content="a"), delta("stop", role=role))
    assert result.message.content == "a"


async def test_q043_a_server_that_streams_no_tools_is_asked_whole() -> None:
    """Q043: by the profile's flag, and only when there are tools."""

    @tool
    async def now() -> str:
        """Tell the time."""
        return "12:00"

    profile = Profile(name="x", stream_tools=False)
    async with FakeProvider(openai_text("hi"), openai_text("hi")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1", profile=profile)
        for tools in ([now], []):
            events = [e async for e in AgentLoop(llm, tools=tools).stream("hi")]
            assert [e.text for e in events if isinstance(e, TextDelta)] == ["hi"]
    assert ["stream" in r.json for r in server.requests] == [False, True]


async def test_many_calls_are_read_in_a_time_that_grows_with_their_number() -> None:
    """Hostile input: ten thousand calls, each with an id, in pieces."""
    calls = [pieces(piece(n, f"t{n}", "f", "{")) for n in range(10_000)]
    calls += [pieces(piece(n, f"t{n}", args="}")) for n in range(10_000)]
    started = time.process_time()
    llm = OpenAICompatible("m", "k", "http://fake.example/v1")
    reader = llm.reader(LLMRequest([UserMessage("hi")]), lambda _: None)
    for chunk in [*calls, delta("tool_calls")]:
        reader.take("message", json.dumps(chunk).encode())
    assert len(reader.result().message.tool_calls) == 10_000
    assert time.process_time() - started < 3
