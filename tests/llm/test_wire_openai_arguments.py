"""Arguments of calls, as servers of the OpenAI-compatible dialect were reported to send them.

Wire cases C, each over a real socket and in a run; as a stream and as a whole answer.
"""

import json
from typing import Any

import pytest

from playhead import (
    LLMRequest,
    UserMessage,
)
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, sse, stream
from tests.llm.openai_wire import (
    ask,
    brief,
    delta,
    in_a_run,
    piece,
    pieces,
    read,
    whole,
)

pytestmark = pytest.mark.anyio

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
    "q059 a number beyond all": ('{"x":1e999}', "not valid JSON"),
    "q059 a number of many digits": ('{"x":' + "9" * 40 + "}", {"x": int("9" * 40)}),
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


@pytest.mark.parametrize("label", ["tool_calls", "stop", "eos_token"])
@pytest.mark.parametrize("last", ['{"file":"x","body":"aaa', '{"a":', "{", '{"a":1,'])
async def test_q056_arguments_that_break_off_are_the_output_limit(label: str, last: str) -> None:
    """Q055, Q056: whatever the label says; then nothing of the answer runs, not even what parses."""
    calls = pieces(piece(0, "t1", "f", '{"a":1}'), piece(1, "t2", "g", last))
    reply = stream(sse(calls, delta(label), done=True))
    result, _ = await ask(reply)
    assert result.stop_reason == "length"
    played = await in_a_run(reply)
    assert all("output limit" in output for output in played.outputs)
    assert len(played.outputs) == 2


@pytest.mark.parametrize(("used", "stop"), [(16, "length"), (15, "tool_calls")])
async def test_q056_at_the_limit_to_the_token_nothing_runs(used: int, stop: str) -> None:
    """Q056: a call that was cut before its first argument parses very well."""
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": used}}
    chunks = sse(pieces(piece(0, "t1", "f", "")), {**delta("tool_calls"), **usage}, done=True)
    async with FakeProvider(stream(chunks)) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1")
        result = await llm.generate(LLMRequest([UserMessage("hi")], max_tokens=16), lambda _: None)
    assert result.stop_reason == stop


@pytest.mark.parametrize("label", ["length", "content_filter", "model_length", "abort", "sensitive"])
async def test_q055_a_later_label_does_not_mend_a_cut_answer(label: str) -> None:
    """Q055: the first word on it stays."""
    result, _ = await read(pieces(piece(0, "t1", "f", "{}")), delta(label), delta("tool_calls"))
    assert result.stop_reason in ("length", "content_filter", "interrupted")


@pytest.mark.parametrize("depth", [900, 2_000, 100_000])
async def test_q053_arguments_of_any_depth_are_answered(depth: int) -> None:
    """Q053, Q181: read, or refused on the call; never an answer that is lost."""
    raw = '{"a":' * depth + "1" + "}" * depth
    result, _ = await ask(stream(sse(pieces(piece(0, "t1", "f", raw)), delta("tool_calls"), done=True)))
    (call,) = result.message.tool_calls
    assert call.error is not None or depth == 900
