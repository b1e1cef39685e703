"""How responses of the OpenAI-compatible dialect end: well, twice, too late, or with an error.

Kinds of the wire cases A and D with other inputs, each over a real socket and in a run.
"""

import asyncio
import json
from typing import Any

import pytest

from playhead import LLMError, LLMRequest, UserMessage
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.testing import FakeProvider, sse, stream
from tests.llm.openai_wire import Chunk, ask, brief, delta, in_a_run, piece, pieces, read

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "after", [delta(content="!"), pieces(piece(0, "t9", "f", "{}")), "{broken", {"error": "x"}]
)
async def test_what_comes_after_done_is_not_of_the_answer(after: Chunk) -> None:
    """Q016: `[DONE]` is the end."""
    result, _ = await read(delta(content="hi"), delta("stop"), "[DONE]", after)
    assert (result.message.content, brief(result), result.stop_reason) == ("hi", [], "stop")


@pytest.mark.parametrize("form", ["[DONE] ", '"[DONE]"', " [DONE]"])
async def test_done_in_other_forms(form: str) -> None:
    """Q016: with blanks, in quotes."""
    result, _ = await read(delta(content="hi"), form, done=False)
    assert result.stop_reason == "stop"


async def test_done_before_anything_was_said_ends_nothing() -> None:
    """Q016: what follows is the answer."""
    result, _ = await read("[DONE]", delta(content="hi"), delta("stop"))
    assert result.message.content == "hi"


@pytest.mark.parametrize("chunks", [[], ["[DONE]"], [delta()], [delta(content="")], [delta("stop")]])
async def test_a_stream_that_says_nothing_is_no_success(chunks: list[Chunk]) -> None:
    """Q017, Q137: status 200 and no answer."""
    played = await in_a_run(stream(sse(*chunks)))
    assert played.result.finish_reason == "error"
    assert played.result.error_code in ("connection", "empty_answer")


async def test_more_content_after_the_finish_reason_is_kept() -> None:
    """Q014: text after calls, calls after text, in any order."""
    chunks = (delta("stop", content="a"), delta(content="b"), pieces(piece(0, "t1", "f", "{}")))
    result, _ = await read(*chunks, delta(content="c"))
    assert (result.message.content, brief(result)) == ("abc", [("f", {})])


@pytest.mark.parametrize("none", ["", "null", "none", None])
async def test_a_finish_reason_that_is_none(none: str | None) -> None:
    """Q014, Q062: a stream that breaks off does not look complete for it."""
    result, _ = await read(delta(none, content="hi"), done=False)
    assert result.stop_reason == "interrupted"


async def test_other_choices_are_left_alone() -> None:
    """One answer was asked for; a second one is not mixed in."""
    other = {"index": 1, "delta": {"content": "NO"}, "finish_reason": None}
    first = delta(content="a")
    mixed = {"choices": [other, {"index": 0, "delta": {"content": "b"}}]}
    result, _ = await read(first, {"choices": [other]}, mixed, delta("stop"))
    assert result.message.content == "ab"


@pytest.mark.parametrize("ending", [delta("stop"), "[DONE]"])
async def test_a_connection_that_stays_open_after_the_end_is_not_waited_for(
    ending: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q014, Q016: the answer is there; keep-alives do not hold it up."""
    monkeypatch.setattr("playhead.llm.call._AFTER_THE_END", 0.1)
    frames = [*sse(delta(content="hi"), ending), *[b": ping\n\n"] * 200]
    async with FakeProvider(stream(frames, pause=0.02, cut="hang")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1")
        async with asyncio.timeout(2):
            result = await llm.generate(LLMRequest([UserMessage("hi")], timeout=30), lambda _: None)
    assert (result.message.content, result.stop_reason) == ("hi", "stop")


async def test_events_without_a_blank_line_between_them() -> None:
    """Q008: two documents in one event are two chunks; one document in two lines is one."""
    one, two = json.dumps(delta(content="a")), json.dumps(delta("stop", content="b"))
    body = f"data: {one}\ndata: {two}\ndata: [DONE]\n\n".encode()
    result, _ = await ask(stream([body]))
    assert (result.message.content, result.stop_reason) == ("ab", "stop")


ERRORS: list[tuple[bytes, str]] = [
    (b'data: {"object":"error","message":"secret body","code":400}\n\n', "bad_request"),
    (b'data: {"type":"error","message":"secret body"}\n\n', "overloaded"),
    (b'event: error\ndata: {"message":"secret body","code":429}\n\n', "rate_limit"),
    (b'data: {"error":true}\n\n', "overloaded"),
    (b'data: {"error":["secret body"]}\n\n', "overloaded"),
    (b'data: {"error":{"message":"secret body","type":"rate_limit_exceeded"}}\n\n', "rate_limit"),
    (b'data: {"error":{"code":"\xc2\xb2"}}\n\n', "overloaded"),
    (b'data: {"error":{"code":' + b"9" * 40 + b"}}\n\n", "overloaded"),
    (b'data: {"error":{"code":200}}\n\n', "overloaded"),
    (b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n', "overloaded"),
]


@pytest.mark.parametrize(("event", "code"), ERRORS)
@pytest.mark.parametrize("said", [False, True], ids=["first", "after text"])
async def test_q017_errors_in_other_forms(event: bytes, code: str, said: bool) -> None:
    """Q017, Q019: typed, with the status where there is one; nothing of it is shown."""
    body = b"".join(sse(delta(content="par"))) if said else b""
    with pytest.raises(LLMError) as caught:
        await ask(stream([body + event]))
    assert caught.value.code == code
    assert "secret body" not in str(caught.value)


@pytest.mark.parametrize("none", [None, "", False, {}, 0])
async def test_q017_a_field_for_errors_that_holds_none(none: Any) -> None:
    """Q017: servers send it with every chunk."""
    result, _ = await read({**delta(content="hi"), "error": none}, {**delta("stop"), "error": none})
    assert result.message.content == "hi"
