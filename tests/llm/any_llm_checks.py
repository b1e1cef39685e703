"""The promises of `AnyLLM`, checked where any-llm is installed: `test_any_llm.py` runs this file there.

By hand: `PYTHONPATH=src .venv-any-llm/bin/python -m pytest tests/llm/any_llm_checks.py`.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from playhead import (
    AgentLoop,
    ConfigError,
    LLMError,
    LLMRequest,
    LLMResult,
    TextPart,
    Usage,
    UserMessage,
    connect,
    tool,
)
from playhead.events import LLMDelta, RunEnd, TextDelta, ToolCallDelta, ToolCallStart
from playhead.llm.any_llm import PROFILE, AnyLLM
from playhead.llm.attempts import AttemptPolicy, Attempts
from playhead.llm.structured import FINAL_OUTPUT
from playhead.testing import (
    FakeProvider,
    Reply,
    hang,
    openai_calls,
    openai_sse,
    openai_text,
    reply_bytes,
    reply_json,
    sse,
    stream,
)
from playhead.testing.anthropic import anthropic_calls, anthropic_message, anthropic_sse, anthropic_text
from playhead.types import ContentPart, ImagePart, ToolSchema

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0123456789abcdef"
ADD = ToolSchema("add", "Add.", [], {"type": "object", "properties": {"a": {"type": "integer"}}})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def on(server: FakeProvider, provider: str = "openai", **more: Any) -> AnyLLM:
    base = server.url if provider == "anthropic" else f"{server.url}/v1"
    return AnyLLM(f"{provider}:fake-model", KEY, base, **more)


def asked(**fields: Any) -> LLMRequest:
    return LLMRequest([UserMessage("hi")], **{"timeout": 5.0, **fields})


async def outcome(
    *replies: Reply, streamed: bool = True, provider: str = "openai", **fields: Any
) -> tuple[LLMResult | LLMError, list[LLMDelta], FakeProvider]:
    deltas: list[LLMDelta] = []
    got: LLMResult | LLMError
    async with FakeProvider(*replies) as server:
        llm = on(server, provider)
        try:
            got = await llm.generate(asked(**fields), deltas.append if streamed else None)
        except LLMError as error:
            got = error
        await llm.aclose()
    return got, deltas, server


# ---------------------------------------------------------------- what is asked and answered


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_comes_with_its_tokens_and_names(streamed: bool) -> None:
    """S27: text, usage with its details, who answered; the key in a header."""
    spent = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    reply = openai_text("Hello.", usage=spent)
    if streamed:
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model"}
        choices = [[{"index": 0, "delta": {"content": t}, "finish_reason": f}] for t, f in PIECES]
        reply = stream(
            sse(*({**chunk, "choices": c} for c in choices), {**chunk, "choices": [], "usage": spent})
        )
    result, deltas, server = await outcome(reply, streamed=streamed, system="Be terse.")
    assert isinstance(result, LLMResult)
    assert (result.message.content, result.stop_reason) == ("Hello.", "stop")
    assert result.usage == Usage(11, 7, 4, 3, cache_write_tokens=2)
    assert (result.provider, result.model) == ("openai", "fake-model")
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == (["Hel", "lo."] if streamed else [])
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json["messages"][0] == {"role": "system", "content": "Be terse."}
    assert request.json.get("stream", False) is streamed


PIECES = [("Hel", None), ("lo.", None), ("", "stop")]


async def test_pieces_are_handed_on_as_they_arrive() -> None:
    """Requirement of streaming: the second is not sent before the first was seen."""
    seen = asyncio.Event()

    async def pause(number: int) -> None:
        if number == 3:
            await asyncio.wait_for(seen.wait(), 10)

    async with FakeProvider(openai_sse("a", "b", pause=pause)) as server:
        result = await on(server).generate(asked(), lambda delta: seen.set())
    assert result.message.content == "ab"


@pytest.mark.parametrize("streamed", [True, False])
async def test_calls_are_put_together(streamed: bool) -> None:
    """Design 7.5: start, pieces and call carry one id."""
    calls = [("add", {"a": 1}, "c1"), ("add", {"a": 2}, "c2")]
    reply = openai_sse("Let me see.", calls=calls) if streamed else openai_calls(calls, "Let me see.")
    result, deltas, _ = await outcome(reply, streamed=streamed, tools=[ADD])
    assert isinstance(result, LLMResult)
    assert [(c.id, c.name, c.args) for c in result.message.tool_calls] == [
        ("c1", "add", {"a": 1}),
        ("c2", "add", {"a": 2}),
    ]
    assert result.stop_reason == "tool_calls"
    if streamed:
        assert [d.call_id for d in deltas if isinstance(d, ToolCallStart)] == ["c1", "c2"]
        pieces = [d for d in deltas if isinstance(d, ToolCallDelta)]
        assert "".join(d.text for d in pieces if d.call_id == "c2") == '{"a": 2}'


@pytest.mark.parametrize(
    ("choice", "sent"), [(None, None), ("auto", "auto"), ("required", "required"), ("add", "required")]
)
async def test_tools_and_choice_are_converted(choice: str | None, sent: str | None) -> None:
    result, _, server = await outcome(openai_sse("ok"), tools=[ADD], tool_choice=choice, max_tokens=9)
    assert isinstance(result, LLMResult)
    body = server.requests[0].json
    assert body.get("tool_choice") == sent
    assert body["tools"][0]["function"]["parameters"] == ADD.input_schema
    assert body["max_completion_tokens"] == 9


async def test_pictures_are_converted() -> None:
    parts: list[ContentPart] = [TextPart("What is it?"), ImagePart("data:image/png;base64,AAAA", "image/png")]
    async with FakeProvider(openai_sse("A dot.")) as server:
        await on(server).generate(LLMRequest([UserMessage(parts)]), lambda _: None)
    sent = server.requests[0].json["messages"][0]["content"]
    assert [part["type"] for part in sent] == ["text", "image_url"]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_run_with_tools_goes_through(provider: str) -> None:
    """S27: a loop over the SDK is a loop like any other; the result goes back under the call's id."""
    calls, text = {
        "openai": (openai_sse("Adding.", calls=[("add", {"a": 2, "b": 3}, "c1")]), openai_sse("It is 5.")),
        "anthropic": (
            anthropic_sse("Adding.", calls=[("add", {"a": 2, "b": 3}, "c1")]),
            anthropic_sse("It is 5."),
        ),
    }[provider]
    async with FakeProvider(calls, text) as server:
        events = [e async for e in AgentLoop(on(server, provider), tools=[add]).stream("2 + 3?")]
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert (end.result.finish_reason, end.result.text) == ("final", "It is 5.")
    assert [step.provider for step in end.result.steps] == [provider] * 2
    last = server.requests[1].json["messages"]
    if provider == "openai":
        assert (last[-1]["role"], last[-1]["tool_call_id"], last[-1]["content"]) == ("tool", "c1", "5")
    else:
        block = last[-1]["content"][0]
        assert (block["type"], block["tool_use_id"], block["content"]) == ("tool_result", "c1", "5")


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_signature_of_a_thought_goes_back_with_it(streamed: bool) -> None:
    """Design 7.3: opaque data stays with its message and goes back to the provider that made it."""
    thought = {"type": "thinking", "thinking": "2 and 3...", "signature": "SIGNED=="}
    use = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 2, "b": 3}}
    if streamed:
        replies = anthropic_sse(blocks=[thought, use], finish_reason="tool_use"), anthropic_sse("5")
    else:
        replies = anthropic_message(thought, use, stop_reason="tool_use"), anthropic_text("5")
    async with FakeProvider(*replies) as server:
        loop = AgentLoop(on(server, "anthropic"), tools=[add])
        if streamed:
            async for _ in loop.stream("2 + 3?"):
                pass
        else:
            await loop.run("2 + 3?")
    blocks = server.requests[1].json["messages"][1]["content"]
    assert blocks[0] == thought
    assert (blocks[1]["type"], blocks[1]["id"]) == ("tool_use", "c1")


# ---------------------------------------------------------------- stopping


@pytest.mark.parametrize("when", ["before the answer", "in the answer"])
async def test_cancelling_closes_the_connection(when: str) -> None:
    """S27: the provider sees it at once, and stops writing what nobody reads."""
    reply = hang() if when == "before the answer" else openai_sse("a", "b", cut="hang", done=False)
    said = asyncio.Event()
    async with FakeProvider(reply) as server:
        task = asyncio.ensure_future(on(server).generate(asked(timeout=60), lambda _: said.set()))
        await server.wait_for_requests(1)
        if when == "in the answer":
            await asyncio.wait_for(said.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.requests[0].closed.wait(), 10)


async def test_stopping_a_run_keeps_what_was_said() -> None:
    """R-J: `cancelled`, with the partial text."""
    stop = asyncio.Event()
    async with FakeProvider(openai_sse("Half", cut="hang", done=False, finish_reason=None)) as server:
        events = []
        async for event in AgentLoop(on(server)).stream("hi", cancel=stop):
            events.append(event)
            if event.type == "text_delta":
                stop.set()
        await asyncio.wait_for(server.requests[0].closed.wait(), 10)
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert (end.result.finish_reason, end.result.text) == ("cancelled", "Half")


@pytest.mark.parametrize(
    ("reply", "bounds"),
    [
        (hang(), {"timeout": 0.2}),
        (hang(), {"timeout": None, "total_timeout": 0.2}),
        (stream([b": ping\n\n"] * 100, pause=0.02, cut="hang"), {"timeout": 5.0, "first_token_timeout": 0.2}),
        (stream([b": ping\n\n"] * 100, pause=0.02, cut="hang"), {"timeout": 5.0, "total_timeout": 0.2}),
    ],
    ids=["silence", "total", "first token", "total in a stream"],
)
async def test_time_is_bounded(reply: Reply, bounds: dict[str, Any]) -> None:
    """Issue 4: per phase."""
    error, _, server = await outcome(reply, **bounds)
    assert isinstance(error, LLMError)
    assert error.code == "timeout"
    assert len(server.requests) == 1


# ---------------------------------------------------------------- failing


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {}, "bad_request"),
        (
            400,
            {"code": "context_length_exceeded", "message": "maximum context length is 8"},
            "context_too_long",
        ),
        (400, {"code": "content_filter", "message": "content policy"}, "content_filter"),
        (400, {"message": "author must be a name"}, "bad_request"),
        (400, {"message": "API key not valid."}, "auth"),
        (401, {}, "auth"),
        (402, {}, "quota"),
        (403, {}, "auth"),
        (404, {}, "model_not_found"),
        (413, {}, "context_too_long"),
        (422, {}, "bad_request"),
        (429, {}, "rate_limit"),
        (429, {"code": "insufficient_quota"}, "quota"),
        (500, {}, "overloaded"),
        (503, {}, "overloaded"),
        (529, {}, "overloaded"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_refusal_has_our_class_and_is_asked_once(
    status: int, body: dict[str, Any], code: str, streamed: bool
) -> None:
    """Design 7.6: by status and class; no retry of the SDK's own; nothing of body or key in the text."""
    refusal = reply_json(
        {"error": {"message": "secret body", **body, "hint": "secret"}}, status, {"Retry-After": "7"}
    )
    error, _, server = await outcome(refusal, streamed=streamed)
    assert isinstance(error, LLMError)
    assert (error.code, error.provider, error.retry_after) == (code, "openai", 7.0)
    assert len(server.requests) == 1
    assert "secret" not in str(error)
    assert KEY not in "".join([str(error), *error.__notes__])
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize(
    ("reply", "codes"),
    [
        (reply_bytes(b""), {"connection"}),
        (reply_bytes(b"x"), {"connection", "protocol"}),
        (openai_sse(finish_reason=None, usage=False, done=False), {"connection"}),
        (openai_sse(finish_reason=None, usage=False, done=False, cut="rst"), {"connection"}),
        (
            reply_bytes(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"),
            {"protocol", "connection"},
        ),
        (reply_json({"choices": "none"}), {"protocol", "connection"}),
        (stream(sse({"error": {"message": "secret: overloaded", "type": "server_error"}})), {"overloaded"}),
    ],
    ids=["closed", "not http", "ended", "reset", "html", "not a completion", "error in the stream"],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_is_no_answer_is_an_error(reply: Reply, codes: set[str], streamed: bool) -> None:
    error, _, server = await outcome(reply, streamed=streamed)
    assert isinstance(error, LLMError), error
    assert error.code in codes | ({"protocol"} if not streamed else set())
    assert "secret" not in str(error)
    assert len(server.requests) == 1


async def test_nobody_there_is_a_connection_error() -> None:
    async with FakeProvider() as server:
        gone = on(server)
    with pytest.raises(LLMError) as caught:
        await gone.generate(asked())
    assert caught.value.code == "connection"


@pytest.mark.parametrize("cut", [None, "rst", "fin"])
async def test_an_answer_that_breaks_off_is_kept_and_said_to_be_cut(cut: Any) -> None:
    """Design 7.1, 7.11: `interrupted`, never plain."""
    reply = openai_sse("Half of", finish_reason=None, usage=False, done=False, cut=cut)
    result, _, _ = await outcome(reply)
    assert isinstance(result, LLMResult)
    assert (result.message.content, result.stop_reason) == ("Half of", "interrupted")
    assert result.usage == Usage()


async def test_the_attempt_loop_is_the_only_one_that_retries() -> None:
    """Issue 4: three attempts are three requests."""
    no = reply_json({"error": {"message": "busy"}}, 503)
    async with FakeProvider(no, no, openai_text("ok")) as server:
        result = await Attempts([on(server)], AttemptPolicy(retries=2, backoff=0.001)).generate(asked())
    assert (result.message.content, len(server.requests)) == ("ok", 3)


async def test_a_refused_field_is_left_out() -> None:
    """Q098: the repair of the dialect works here, too."""
    no = reply_json({"error": {"message": "Unknown field: stream_options"}}, 400)
    async with FakeProvider(no, openai_sse("ok")) as server:
        result = await Attempts([on(server)], AttemptPolicy(retries=0)).generate(asked(), lambda _: None)
    assert result.message.content == "ok"
    assert ["stream_options" in r.json for r in server.requests] == [True, False]


# ---------------------------------------------------------------- setting up


@pytest.mark.parametrize(
    ("model", "key", "said"),
    [
        ("nobody:x", "k", "knows no provider 'nobody'. It knows: .*openai"),
        ("mistral:x", "k", r"pip install 'any-llm-sdk\[mistral\]'"),
        ("openai:x", "", "OPENAI_API_KEY"),
        ("gpt-5", "k", "provider:model"),
    ],
)
def test_what_is_wrong_with_the_set_up_is_said_at_once(
    model: str, key: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=said):
        AnyLLM(model, key)


async def test_connect_knows_it() -> None:
    """`LLM_PROVIDER=any-llm`, `LLM_MODEL=openai:...`."""
    async with FakeProvider(openai_text("ok")) as server:
        llm = connect("any-llm", "openai:fake-model", KEY, f"{server.url}/v1")
        assert (await llm.generate(asked())).message.content == "ok"


@contextmanager
def served(provider: FakeProvider) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """A provider in an event loop of its own, and what waits for something there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def awaited(thing: Awaitable[Any]) -> Any:
        return await thing

    def wait(thing: Awaitable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited(thing), loop).result(10)

    try:
        wait(provider.__aenter__())
        yield wait
        wait(provider.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_one_model_serves_one_event_loop_after_the_other(provider: str) -> None:
    """Design 4: nobody has to close it; connections end with their loop, and nothing warns of them."""
    answer: Reply = openai_text("ok") if provider == "openai" else anthropic_text("ok")
    server = FakeProvider(default=answer)
    with served(server) as wait:
        llm = on(server, provider)
        for _ in range(2):
            assert asyncio.run(llm.generate(asked())).message.content == "ok"
        for request in server.requests:
            wait(request.closed.wait())
    gc.collect()


async def test_options_go_to_the_sdk() -> None:
    async with FakeProvider(openai_text("ok")) as server:
        await on(server, options={"reasoning_effort": "low", "seed": 7}).generate(asked())
    body = server.requests[0].json
    assert (body["reasoning_effort"], body["seed"]) == ("low", 7)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("form", ["json_schema", "json_object", "tool", "prompt"])
async def test_an_answer_has_the_form_asked_for(form: Any, streamed: bool) -> None:
    """Issue 4, item 5: by the way that the profile says; a tool's call is text from here on."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    args = {"city": "Rome"}
    made: Any = (openai_sse if streamed else openai_text)('{"city": "Rome"}')
    if form == "tool":
        calls = [(FINAL_OUTPUT, args, "c1")]
        made = openai_sse(calls=calls) if streamed else openai_calls(calls)
    shown: list[LLMDelta] = []
    async with FakeProvider(made) as server:
        llm = on(server, profile=replace(PROFILE, output=form))
        result = await llm.generate(asked(output_schema=schema), shown.append if streamed else None)
    assert msgspec.json.decode(result.message.content) == args
    assert result.message.tool_calls == ()
    if streamed:
        assert "".join(d.text for d in shown if isinstance(d, TextDelta)) == result.message.content
    body = server.requests[0].json
    kind = body.get("response_format", {}).get("type")
    assert (kind, "tools" in body) == (form if form.startswith("json") else None, form == "tool")


async def test_calls_of_anthropic_are_read() -> None:
    result, _, _ = await outcome(
        anthropic_calls([("add", {"a": 1}, "c1")]), streamed=False, provider="anthropic", tools=[ADD]
    )
    assert isinstance(result, LLMResult)
    assert [(c.name, c.args) for c in result.message.tool_calls] == [("add", {"a": 1})]
