"""What the Responses API and servers like it really send, over a real socket. Issue 3 item 4.

The kinds are those of the wire cases; each test says which, or which public report it stands for.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import ChatMessage, UserMessage
from playhead.errors import LLMConnectionError, LLMError
from playhead.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.llm.openai_responses import OpenAIResponses
from playhead.testing import reply_json, stream
from playhead.testing.responses import responses_events, responses_frames, responses_message, responses_sse
from playhead.types import (
    AssistantMessage,
    LLMRequest,
    Usage,
)
from tests.llm.responses_wire import (
    Event,
    Item,
    added,
    answer,
    asks,
    delta,
    ended,
    played,
    refused,
    run,
    said,
    thinks,
)
from tests.support.invariants import BODY, KEY

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- reasoning


async def test_reasoning_goes_back_as_it_came_and_in_its_place() -> None:
    """The kind of Q119: before each call that it led to, through the store, and in the next turn."""
    first = [
        thinks("plan", encrypted="E1"),
        said("Let me see.", phase="commentary"),
        asks('{"port":"a"}'),
        thinks(encrypted="E2", id="rs_2"),
        asks('{"port":"b"}', "call_2"),
    ]
    seen = await run(
        first, [thinks(encrypted="E3"), said("done", phase="final_answer")], [said("ok")], then="x"
    )
    assert seen.played.result.text == "ok"
    assert [body["include"] for body in seen.bodies] == [["reasoning.encrypted_content"]] * 3
    assert [(i.get("type"), i.get("encrypted_content", i.get("phase"))) for i in seen.bodies[2]["input"]] == [
        (None, None),
        ("reasoning", "E1"),
        (None, "commentary"),
        ("function_call", None),
        ("reasoning", "E2"),
        ("function_call", None),
        ("function_call_output", None),
        ("function_call_output", None),
        ("reasoning", "E3"),
        (None, "final_answer"),
        (None, None),
    ]


async def test_reasoning_goes_to_the_same_server_and_model_only() -> None:
    """The kind of openai/codex#8119: elsewhere it could not be read, and it is nobody else's."""
    result, _ = await answer(responses_message(thinks("plan", status="completed"), said("hi")), False)
    history: list[ChatMessage] = [UserMessage("go"), result.message, UserMessage("on")]
    own = (result.message.provider_metadata or {})["openai-responses"]["server"]
    for model, base, expected in (
        ("fake-model", f"http://{own}/v1", True),
        ("other", f"http://{own}/v1", False),
        ("fake-model", "http://127.0.0.1:1/v1", False),
    ):
        body = OpenAIResponses(model, KEY, base).build_request(LLMRequest(history), False).body
        assert (b"E1" in body, b"plan" in body) == (expected, expected)


@pytest.mark.parametrize(
    "item",
    [
        thinks("plan", encrypted=None),
        thinks("plan", encrypted=None, content=[]),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ],
)
async def test_what_only_the_server_could_know_does_not_go_back(item: Item) -> None:
    """vercel/ai#7543: nothing was stored, so an id alone is refused for ever."""
    seen = await run([item, said("hi")], [said("ok")], then="x")
    assert [i.get("role") for i in seen.bodies[1]["input"]] == ["user", "assistant", "user"]


async def test_the_open_thoughts_of_open_models_go_back() -> None:
    """vllm-project/vllm#24788: they are not encrypted, and the next step needs them."""
    thought: Item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": None}
    thought |= {"content": [{"type": "reasoning_text", "text": "hm"}], "status": "completed"}
    result, deltas = await answer(responses_message(thought, asks()))
    assert [d.text for d in deltas if isinstance(d, ReasoningDelta)] == ["hm"]
    kept = (result.message.provider_metadata or {})["openai-responses"]["items"]
    assert kept[0]["content"] == thought["content"]
    assert not {"status", "encrypted_content"} & set(kept[0])


async def test_reasoning_that_led_to_nothing_does_not_go_back() -> None:
    """continuedev/continue#8933: it is refused without its following item."""
    cut = [*responses_events(thinks("long"), status=None), ended("incomplete", [thinks("long")])]
    cut[-1]["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    result, _ = await answer(played(*cut))
    assert (result.stop_reason, result.message.reasoning) == ("length", "long")
    assert result.message.provider_metadata is None


async def test_half_of_a_thought_does_not_go_back() -> None:
    """The announcement of a thought holds no complete encrypted text."""
    events = [added(thinks(encrypted="half")), added(said(), 1), delta("output_text", "hi", 1)]
    result, _ = await answer(played(*events))
    assert (result.message.content, result.stop_reason) == ("hi", "interrupted")
    assert result.message.provider_metadata is None


async def test_summaries_are_paragraphs_of_the_reasoning() -> None:
    """One delta for each, and a blank line between two."""
    result, deltas = await answer(
        played(*responses_events(thinks("one", "two"), thinks("three"), said("hi")))
    )
    assert result.message.reasoning == "one\n\ntwo\n\nthree"
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "one\n\ntwo\n\nthree"


# ---------------------------------------------------------------- calls


async def test_calls_run_and_their_results_go_back() -> None:
    """S4: by call_id, in call order, arguments as they were."""
    seen = await run([asks('{"port":"é"}', "call_a"), asks("", "call_b")], [said("done")])
    assert seen.played.outputs == ["high at é", "high at "]
    items = seen.bodies[1]["input"]
    assert [(i["type"], i["call_id"]) for i in items[1:]] == [
        ("function_call", "call_a"),
        ("function_call", "call_b"),
        ("function_call_output", "call_a"),
        ("function_call_output", "call_b"),
    ]
    assert [json.loads(i["arguments"]) for i in items[1:3]] == [{"port": "é"}, {}]


@pytest.mark.parametrize("ids", [("", ""), (None, None), ("c", "c"), (" ", "c")])
@pytest.mark.parametrize("streaming", [False, True])
async def test_odd_ids_are_made_unique(ids: Sequence[str | None], streaming: bool) -> None:
    """Q028, Q029, Q034: blank, missing, the same twice."""
    items = [asks('{"port":"a"}', ids[0]), asks('{"port":"b"}', ids[1])]
    reply = played(*responses_events(*items)) if streaming else responses_message(*items)
    result, deltas = await answer(reply, streaming)
    calls = result.message.tool_calls
    assert [call.args for call in calls] == [{"port": "a"}, {"port": "b"}]
    assert all(call.id.strip() for call in calls)
    assert len({call.id for call in calls}) == 2
    started = [d.call_id for d in deltas if isinstance(d, ToolCallStart)]
    assert started == ([call.id for call in calls] if streaming else [])


def mangled(item_id: Any, index: Any) -> list[Event]:
    """A text and two calls, each event with an id and an index of its own making."""
    events = responses_events(said("a", "b"), asks('{"port":"x"}', "c1"), asks('{"port":"y"}', "c2"))
    for number, event in enumerate(events):
        if "output_index" in event:
            event |= {"output_index": index(event["output_index"]), "item_id": item_id(number)}
            if "item" in event:
                event["item"] = {**event["item"], "id": item_id(number)}
        event = {name: value for name, value in event.items() if value is not None}
        events[number] = event
    events[-1]["response"]["output"] = [{**i, "id": "new"} for i in events[-1]["response"]["output"]]
    return events


@pytest.mark.parametrize(
    ("item_id", "index"),
    [
        (lambda n: f"id-{n}", lambda index: index),
        (lambda n: f"id-{n}", lambda index: 0),
        (lambda n: f"id-{n}", lambda index: None),
        (lambda n: "same", lambda index: index),
        (lambda n: None, lambda index: index),
        (lambda n: None, lambda index: None),
        (lambda n: None, lambda index: index * 3 + 1),
    ],
    ids=["new ids", "new ids, one index", "new ids, none", "one id", "no id", "neither", "gaps"],
)
async def test_events_find_their_item(item_id: Any, index: Any) -> None:
    """The kind of Q023-Q026; BerriAI/litellm#36375: nothing is told twice, nothing goes astray."""
    result, deltas = await answer(played(*mangled(item_id, index)))
    assert result.message.content == "ab"
    assert [call.args for call in result.message.tool_calls] == [{"port": "x"}, {"port": "y"}]
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "ab"


def only(*kinds: str) -> list[Event]:
    events = responses_events(thinks("hm"), said("hel", "lo"), asks('{"port":"x"}'))
    return [e for e in events if any(e["type"].endswith(kind) for kind in kinds)]


@pytest.mark.parametrize(
    "kinds",
    [
        ("delta", "added", "completed"),
        ("done", "completed"),
        ("item.done", "completed"),
        ("completed",),
        ("added", "arguments.done", "text.done", "completed"),
        ("added", "delta", "done", "completed"),
    ],
)
async def test_each_telling_adds_what_the_others_lack(kinds: Sequence[str]) -> None:
    """lidge-jun/opencodex#4652, gemini-web2api#57: servers leave out deltas, or all but the end."""
    result, deltas = await answer(played(*only(*kinds)))
    assert (result.message.content, result.stop_reason) == ("hello", "tool_calls")
    assert result.message.reasoning == "hm"
    (call,) = result.message.tool_calls
    assert (call.name, call.args) == ("tide_at", {"port": "x"})
    assert call.id
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "hello"
    assert "".join(d.text for d in deltas if isinstance(d, ToolCallDelta)) == '{"port":"x"}'


async def test_deltas_without_any_announcement_are_read() -> None:
    """Oaklight/llm-rosetta#56; the end may tell no output."""
    events = [
        delta("output_text", "hi", None),
        {**delta("function_call_arguments", '{"port":', 1), "item_id": "fc_1"},
        {**delta("function_call_arguments", '"x"}', 1), "item_id": "fc_1"},
        {"type": "response.output_item.done", "output_index": 1, "item": asks('{"port":"x"}')},
    ]
    result, _ = await answer(played(*events, ended()))
    assert result.message.content == "hi"
    assert [(c.name, c.args) for c in result.message.tool_calls] == [("tide_at", {"port": "x"})]


async def test_arguments_that_are_an_object_are_read() -> None:
    """The kind of Q048."""
    result, _ = await answer(reply_json({"output": [{**asks(), "arguments": {"port": "x"}}]}), False)
    assert result.message.tool_calls[0].args == {"port": "x"}


async def test_a_call_that_an_interruption_cut_never_runs() -> None:
    """Q055's kind: it is answered, and the request behind it is valid."""
    seen = await run(
        played(*responses_events(said("hm"), asks('{"port":"x"}'), status=None)),
        [said("ok")],
        [said("more")],
        then="x",
        retries=0,
    )
    assert "high at" not in str(seen.played.outputs)
    assert seen.played.result.text == "more"


# ---------------------------------------------------------------- texts and ends


async def test_two_messages_are_two_paragraphs_and_go_back_as_two() -> None:
    """openai/openai-agents-js#1513: commentary and answer are apart, here and there."""
    items = [said("Let ", "me see.", phase="commentary"), said("It is 5.", phase="final_answer", id="msg_2")]
    seen = await run(items, [said("ok")], then="x")
    first = next(m for m in seen.played.messages if isinstance(m, AssistantMessage))
    assert first.content == "Let me see.\n\nIt is 5."
    assert seen.bodies[1]["input"][1:3] == [
        {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
        {"role": "assistant", "content": "It is 5.", "phase": "final_answer"},
    ]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refusal_is_text_and_said_to_be_one(streaming: bool) -> None:
    """The words are the model's; the reason to stop is ours."""
    item = refused("I can", "not.")
    reply = played(*responses_events(item)) if streaming else responses_message(item)
    result, _ = await answer(reply, streaming)
    assert (result.message.content, result.stop_reason) == ("I cannot.", "content_filter")


@pytest.mark.parametrize(
    ("end", "stop"),
    [
        (ended(), "stop"),
        (ended("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (ended("incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
        (ended("incomplete", incomplete_details={"reason": "new"}), "other"),
        (ended("incomplete"), "other"),
        (ended("incomplete", name="completed", incomplete_details={"reason": "max_output_tokens"}), "length"),
        ({"type": "response.completed"}, "stop"),
        (ended("cancelled", name="completed"), "interrupted"),
        ({"type": "response.in_progress", "response": {"status": "completed"}}, "interrupted"),
        ({"type": "response.output_item.done", "output_index": 0, "item": said("hi")}, "interrupted"),
    ],
)
@pytest.mark.parametrize("done", [b"", b"data: [DONE]\n\n"])
async def test_only_the_last_event_says_how_it_ended(end: Event, stop: str, done: bytes) -> None:
    """apfel#412, openclaw/openclaw#109133: a stream without it was cut, `[DONE]` or not."""
    events = [added({**said(), "content": []}), delta("output_text", "hi")]
    if isinstance(end.get("item"), dict):
        end = {**end, "item": {**said(), "content": [{"type": "output_text", "text": "hi"}]}}
    result, _ = await answer(stream([*responses_frames(*events, end), done]))
    assert (result.message.content, result.stop_reason) == ("hi", stop)
    assert result.message.stop_reason == stop


async def test_an_end_whose_framing_was_cut_is_an_end() -> None:
    """makerxyz at DevDock-AI/claude-unlimited#1: the last event came, the last chunk did not."""
    result, _ = await answer(responses_sse("hi", cut="rst"))
    assert (result.message.content, result.stop_reason) == ("hi", "stop")


async def test_announcements_alone_are_nothing_said() -> None:
    """A stream cut there is asked for again."""
    with pytest.raises(LLMConnectionError):
        await answer(played(*responses_events(thinks(), status=None)))


async def test_unknown_events_items_and_parts_are_passed_over() -> None:
    """What will be invented breaks nothing; nor does a delta that is an object."""
    events: list[Event] = [
        {"type": "response.new.delta", "delta": {"a": 1}, "output_index": 7},
        {"type": "keepalive"},
        {"type": "response.output_text.annotation.added", "annotation": {"type": "url"}, "output_index": 0},
        {"type": "response.output_text.delta", "delta": None, "output_index": 0},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "new", "id": "n"}},
        {"type": "response.output_item.done", "output_index": 1, "item": None},
    ]
    result, _ = await answer(played(*events, *responses_events(said("hi"))))
    assert (result.message.content, result.stop_reason) == ("hi", "stop")


async def test_half_characters_are_joined_across_deltas() -> None:
    """Q002's kind: two escapes in two events are one character."""
    raw = [
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"%b"}\n\n' % half
        for half in (rb"a\ud83c", rb"\udfac")
    ]
    result, _ = await answer(stream([*raw, *responses_frames(ended())]))
    assert result.message.content == "a🎬"


@pytest.mark.parametrize("streaming", [False, True])
async def test_tokens_are_counted(streaming: bool) -> None:
    """Cached and reasoning tokens are parts of what was read and made."""
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 50}
    usage |= {"output_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150}
    reply = responses_message(said("hi"), usage=usage)
    if streaming:
        reply = played(*responses_events(said("hi"), usage=usage))
    result, _ = await answer(reply, streaming)
    assert result.usage == Usage(100, 50, 64, 40)


# ---------------------------------------------------------------- errors

INSIDE: list[tuple[Event, str]] = [
    ({"type": "error", "code": "rate_limit_exceeded", "message": BODY, "param": None}, "rate_limit"),
    ({"type": "error", "error": {"code": "too_many_requests", "message": BODY}}, "rate_limit"),
    ({"type": "error", "error": {"type": "insufficient_quota", "code": "credit_balance_exhausted"}}, "quota"),
    ({"type": "error", "code": "context_length_exceeded", "error": {"message": BODY}}, "context_too_long"),
    ({"type": "error", "error": BODY}, "overloaded"),
    ({"type": "error", "message": BODY}, "overloaded"),
    ({"error": {"message": BODY, "code": 503}}, "overloaded"),
    (ended("failed", error={"code": "server_error", "message": BODY}), "overloaded"),
    (ended("failed", error={"code": "rate_limit_exceeded", "message": BODY}), "rate_limit"),
    (ended("failed", error={"code": "invalid_prompt", "message": BODY}), "content_filter"),
    (ended("failed", error={"code": "image_too_large", "message": BODY}), "bad_request"),
    (ended("failed"), "overloaded"),
    (ended("failed", name="completed", error={"code": "server_error"}), "overloaded"),
]


@pytest.mark.parametrize(("event", "code"), INSIDE)
async def test_an_error_inside_a_stream_has_its_code(event: Event, code: str) -> None:
    """Q017; vercel/ai#20179: flat, nested or in the response, and never an answer."""
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    with pytest.raises(LLMError) as caught:
        await answer(stream([*responses_frames(added(said()), delta("output_text", "hi")), data]))
    assert caught.value.code == code
    assert caught.value.provider == "openai-responses"
    assert BODY not in str(caught.value)


async def test_a_failed_response_is_an_error_when_it_is_whole_too() -> None:
    """Q017's kind: status 200, and nothing answered."""
    body = {"status": "failed", "output": [], "error": {"code": "server_error", "message": BODY}}
    with pytest.raises(LLMError) as caught:
        await answer(reply_json(body), False)
    assert (caught.value.code, caught.value.provider) == ("overloaded", "openai-responses")
