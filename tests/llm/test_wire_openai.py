"""Faults that servers of the OpenAI-compatible dialect were publicly reported to have: what arrives.

Wire cases A to D, each over a real socket. The ids are those of the reports; the kinds are tried
with other inputs, too.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    ChatMessage,
    LLMError,
    LLMRequest,
    LLMResult,
    ToolCall,
    UserMessage,
    tool,
)
from playhead.events import Attempt, LLMDelta, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, Reply, openai_text, reply_json, split, sse, stream

pytestmark = pytest.mark.anyio

Chunk = dict[str, Any] | str


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk as the API sends it."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(
    index: int | None = None, id: Any = "-", name: str | None = None, args: Any = None
) -> dict[str, Any]:
    """A piece of a call; an id of "-" is no id at all."""
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v is not None}
    fields: dict[str, Any] = {"function": function}
    if index is not None:
        fields["index"] = index
    if id != "-":
        fields["id"] = id
    return fields


def pieces(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return delta(finish, tool_calls=list(calls))


async def read(
    *chunks: Chunk, done: bool = True, size: int | None = None, profile: Profile | None = None
) -> tuple[LLMResult, list[LLMDelta]]:
    body = sse(*chunks, done=done)
    return await ask(stream(split(b"".join(body), size) if size else body), profile=profile)


async def ask(reply: Reply, *, profile: Profile | None = None) -> tuple[LLMResult, list[LLMDelta]]:
    deltas: list[LLMDelta] = []
    async with FakeProvider(reply) as server:
        llm = OpenAICompatible("fake-model", "sk-x", f"{server.url}/v1", profile=profile)
        result = await llm.generate(LLMRequest([UserMessage("hi")], timeout=5), deltas.append)
    return result, deltas


async def whole(message: dict[str, Any], finish: str | None = "stop", **body: Any) -> LLMResult:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    async with FakeProvider(reply_json({"choices": [choice], **body})) as server:
        llm = OpenAICompatible("fake-model", "sk-x", f"{server.url}/v1")
        return await llm.generate(LLMRequest([UserMessage("hi")], timeout=5))


def shown(deltas: Sequence[LLMDelta]) -> str:
    """The text that a reader ends up with: an `attempt` voids what came before."""
    text = ""
    for d in deltas:
        if isinstance(d, Attempt) and d.number > 1:
            text = ""
        elif isinstance(d, TextDelta):
            text += d.text
    return text


def brief(result: LLMResult) -> list[tuple[str, Any]]:
    return [(c.name, c.error or c.args) for c in result.message.tool_calls]


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


# ---------------------------------------------------------------- C. arguments


ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "q046 empty": ("", {}),
    "q046 blank": ("  \n", {}),
    "q047 null": (None, {}),
    "q047 the text null": ("null", {}),
    "q049 encoded twice": ('"{\\"n\\":2}"', {"n": 2}),
    "q049 encoded three times": (json.dumps(json.dumps('{"n":2}')), {"n": 2}),
    "q053 not JSON": ("{city: Oslo}", "not valid JSON"),
    "q056 unterminated": ('{"file":"x","body":"aaa', "not valid JSON"),
    "q058 first fragment lost": ('code":"1"}', "not valid JSON"),
    "q059 NaN": ('{"x":NaN}', "not valid JSON"),
    "q059 Infinity": ('{"x":-Infinity}', "not valid JSON"),
    "q059 a key twice": ('{"x":1,"x":2}', {"x": 2}),
    "q052 prose behind": ('{"q":"a"}\n\nNow I will search', "not valid JSON"),
    "a list": ("[1]", "not a JSON object"),
    "a number": ("7", "not a JSON object"),
    "text that is no object": ('"hello"', "not"),
    "half a character": ('{"s":"a\\ud83d"}', {"s": "a\ufffd"}),
    "NUL": ('{"s":"a\\u0000b"}', {"s": "a\x00b"}),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("case", ARGUMENTS)
async def test_c_arguments_are_read_or_refused(case: str, streamed: bool) -> None:
    """Q046-Q059: an object, or an error on the call with arguments that can be sent again."""
    raw, expected = ARGUMENTS[case]
    if streamed:
        result, _ = await read(pieces(piece(0, "t1", "f", raw)), delta("tool_calls"))
    else:
        function = {"name": "f"} if raw is None else {"name": "f", "arguments": raw}
        calls = [{"id": "t1", "type": "function", "function": function}]
        result = await whole({"content": None, "tool_calls": calls}, "tool_calls")
    (call,) = result.message.tool_calls
    if isinstance(expected, dict):
        assert (call.args, call.error) == (expected, None)
    else:
        assert call.args == {}
        assert expected in (call.error or "")


async def test_q053_a_huge_broken_argument_is_shown_short() -> None:
    """Q053: the raw text in the result is capped."""
    result, _ = await read(pieces(piece(0, "t1", "f", "{" + "x" * 100_000)), delta("tool_calls"))
    assert len(result.message.tool_calls[0].error or "") < 400


async def test_q052_prose_is_cut_off_where_the_profile_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Q052: strict first; lenient by flag, and said in the log."""
    profile = Profile(name="x", lenient_arguments=True)
    chunks = (pieces(piece(0, "t1", "f", '{"q":"a"}\n\nNow I will')), delta("tool_calls"))
    result, _ = await read(*chunks, profile=profile)
    assert brief(result) == [("f", {"q": "a"})]
    assert "followed the arguments" in caplog.text


# ---------------------------------------------------------------- D. content, reasoning, ends, usage


@pytest.mark.parametrize("reason", ["guardrail_intervened", "eos_token", "42"])
async def test_q062_an_unknown_reason_ends_the_response(reason: str) -> None:
    """Q062: kept, and mapped to `other`."""
    result, _ = await read(delta(content="hi"), delta(reason), done=False)
    assert result.stop_reason == "other"
    assert reason in json.dumps(result.message.provider_metadata)


async def test_q064_null_content_is_empty_text() -> None:
    """Q064: no None leaks."""
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = await whole({"content": None, "tool_calls": [call]}, "tool_calls")
    assert result.message.content == ""


@pytest.mark.parametrize("streamed", [False, True])
async def test_q065_content_as_parts(streamed: bool) -> None:
    """Q065: text and reasoning apart; unknown parts kept raw, not put into the answer."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}
    content = [{"type": "text", "text": "a"}, thinking, {"type": "odd", "x": 1}]
    if streamed:
        result, _ = await read(delta(content=content), delta("stop"))
    else:
        result = await whole({"content": content})
    assert (result.message.content, result.message.reasoning) == ("a", "r")
    assert '"odd"' in json.dumps(result.message.provider_metadata)


@pytest.mark.parametrize(
    "fields",
    [{"reasoning": "r1"}, {"reasoning_content": "r1"}, {"reasoning": "r1", "reasoning_content": "r1"}],
)
async def test_q067_reasoning_under_either_name(fields: dict[str, str]) -> None:
    """Q067: read once; where it came from is kept."""
    result, deltas = await read(delta(**fields), delta(content="a"), delta("stop"))
    assert result.message.reasoning == "r1"
    assert [d.text for d in deltas if isinstance(d, ReasoningDelta)] == ["r1"]
    kept = (result.message.provider_metadata or {})["openai-compatible"]
    assert kept["reasoningField"] in fields


THINK: dict[str, tuple[list[str], str, str | None]] = {
    "q070 tags in halves": (["<thi", "nk>plan</th", "ink>answer"], "answer", "plan"),
    "q070 one character a delta": (list("<think>plan</think>answer"), "answer", "plan"),
    "q073 one delta": (["<think>a</think>b"], "b", "a"),
    "leading blank": (["\n <think>", "a</think>\n\nb"], "b", "a"),
    "never closed": (["<think>plan", " more"], "", "plan more"),
    "held text at the end": (["a <", "/thi"], "a </thi", None),
    "a tag in mid-text is text": (["Use <think>x</think> tags"], "Use <think>x</think> tags", None),
    "a tag in code is text": (["Write `</think>` to", " end"], "Write `</think>` to end", None),
    "only the beginning": (["<thi"], "<thi", None),
    "a comparison": (["1 <", " 2"], "1 < 2", None),
    "q071 closing tag only": (["plan</think>answer"], "answer", "plan"),
    "q071 in halves": (["pl", "an</th", "ink>\n", "answer"], "answer", "plan"),
}


@pytest.mark.parametrize("case", THINK)
async def test_q070_q073_think_tags_become_reasoning(case: str) -> None:
    """Q070-Q073: at the very start only; what a reader saw is corrected by one `attempt`."""
    texts, text, reasoning = THINK[case]
    result, deltas = await read(*(delta(content=t) for t in texts), delta("stop"))
    assert (result.message.content, result.message.reasoning) == (text, reasoning)
    assert shown(deltas) == text
    corrected = sum(isinstance(d, Attempt) for d in deltas)
    assert corrected == ("q071" in case)


async def test_q071_a_prefilled_think_tag_by_flag() -> None:
    """Q071: the template opened it: nothing is shown that has to be taken back."""
    profile = Profile(name="x", think_prefilled=True)
    chunks = [delta(content=t) for t in ("pl", "an</th", "ink>answer")]
    result, deltas = await read(*chunks, delta("stop"), profile=profile)
    assert (result.message.content, result.message.reasoning) == ("answer", "plan")
    assert not any(isinstance(d, Attempt) for d in deltas)


@pytest.mark.parametrize("odd", [{"usage": {"prompt_tokens": 1}}, {"choices": None}, {"choices": []}, {}])
async def test_q076_q080_chunks_without_choices(odd: dict[str, Any]) -> None:
    """Q075, Q076, Q080: usage, filter results or nothing: no content, no error."""
    result, _ = await read(odd, delta(content="hi"), delta("stop"), odd)
    assert result.message.content == "hi"


@pytest.mark.parametrize("body", [{"choices": None}, {"choices": []}, {}, {"usage": {}}])
async def test_q076_a_whole_response_without_choices_is_an_error(body: dict[str, Any]) -> None:
    """Q076: typed, and never an empty success."""
    with pytest.raises(LLMError) as caught:
        await ask(reply_json(body))
    assert caught.value.code == "protocol"


async def test_q077_the_last_usage_wins() -> None:
    """Q077: cumulative counts are never added up."""
    usages = [{"usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2)]
    result, _ = await read(*({**delta(content="a"), **u} for u in usages), delta("stop"))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (5, 2)


@pytest.mark.parametrize(
    ("usage", "input", "output", "reasoning"),
    [
        ({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 9}}, None, 5, 9),
        ({"prompt_tokens": None, "completion_tokens": -3}, None, 0, None),
        ({"prompt_tokens": "many", "completion_tokens": 4}, None, 4, None),
        (None, None, None, None),
    ],
)
async def test_q079_odd_counts(usage: Any, input: Any, output: Any, reasoning: Any) -> None:
    """Q079: none below zero; missing or mistyped is unknown, never zero."""
    result, _ = await read(delta(content="a"), {**delta("stop"), "usage": usage})
    assert (result.usage.input_tokens, result.usage.output_tokens) == (input, output)
    assert result.usage.reasoning_tokens == reasoning


async def test_q080_an_empty_model_name_is_not_adopted() -> None:
    """Q080."""
    first = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    result, _ = await read(first, delta(content="a"), delta("stop"))
    assert result.model == "fake-model"


async def test_q082_an_error_body_with_null_fields_and_status_200() -> None:
    """Q082: typed, before anything else is looked at."""
    with pytest.raises(LLMError) as caught:
        await ask(reply_json({"id": None, "choices": None, "error": {"code": 429, "message": "busy"}}))
    assert caught.value.code == "rate_limit"


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [{"delta": {"content": 7}, "finish_reason": None}]},
        {"choices": [{"delta": "text"}]},
        {"choices": {"0": {}}},
        {"choices": [{"delta": {"tool_calls": "none"}}]},
        {"choices": [None]},
        {"choices": [{"delta": {"content": "x", "reasoning": ["r"]}}]},
    ],
)
async def test_fields_of_a_wrong_type_are_left_out(odd: dict[str, Any]) -> None:
    """The kind of Q041, Q076: what cannot be read is left out, the rest is kept."""
    result, _ = await read(delta(content="a"), odd, delta(content="b"), delta("stop"))
    assert result.message.content.replace("x", "") == "ab"


async def test_q151_unknown_keys_of_a_call_go_back_to_the_same_server_only() -> None:
    """Q151: a signature hidden in a call, kept with its message and replayed in place."""
    extra = {"extra_content": {"google": {"thought_signature": "S"}}}
    call = {**piece(0, "t1", "f", "{}"), **extra}
    async with FakeProvider(
        stream(sse(pieces(call), delta("tool_calls"), done=True)), openai_text("ok"), openai_text("ok")
    ) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1")
        first = await llm.generate(LLMRequest([UserMessage("hi")]), lambda _: None)
        history: list[ChatMessage] = [UserMessage("hi"), first.message]
        await llm.generate(LLMRequest(history))
        other = OpenAICompatible("m", "k", f"{server.url.replace('127.0.0.1', 'localhost')}/v1")
        await other.generate(LLMRequest(history))
    same, elsewhere = (r.json["messages"][1]["tool_calls"][0] for r in server.requests[1:])
    assert same["extra_content"] == extra["extra_content"]
    assert "extra_content" not in elsewhere


async def test_a_signature_survives_the_store() -> None:
    """Design 7.3: opaque data is part of the message, byte for byte, through JSON."""
    import msgspec

    kept = {"openai-compatible": {"server": "s", "calls": {"t1": {"sig": "\u00e9\x00=="}}}}
    message = AssistantMessage("", [ToolCall("t1", "f", {})], provider_metadata=kept)
    assert msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage) == message
