"""Faults of Anthropic's Messages API and its clients that were publicly reported: what arrives. Wire cases H.

Each case is a run over a real socket, held to the three invariants, and every request of it to what
the API is known to refuse. What can be played both ways is: as a stream and as a whole message.
"""

import json
from typing import Any

import pytest

from playhead import AgentLoop, LoopOptions
from playhead.events import ToolCallDelta, ToolCallStart
from playhead.llm.anthropic import Anthropic
from playhead.testing import FakeProvider, reply_json, split, stream
from playhead.testing.anthropic import anthropic_events, anthropic_frames, anthropic_message
from tests.llm.anthropic_wire import (
    DONE,
    Block,
    Event,
    asks,
    delta,
    events,
    now,
    redacted,
    run,
    shape,
    started,
    stopped,
    text,
    thinks,
    turn,
)
from tests.support.invariants import BODY, KEY, play

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stream", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- the stream


@pytest.mark.parametrize("pieces", [[""], [], ["", ""], [" "], ["null"], ["{}"]])
async def test_q152_a_call_without_arguments(pieces: list[str]) -> None:
    """Q152: the first piece is empty, and no other comes."""
    deltas = [delta("input_json", partial_json=piece) for piece in pieces]
    seen = await run(events(started(asks("now")), *deltas, stopped()), DONE)
    assert seen.played.calls == [("now", {})]
    assert seen.played.outputs == ["noon"]


@pytest.mark.parametrize(
    ("start", "pieces", "expected"),
    [
        ({}, ['{"po', 'rt":"X"}'], {"port": "X"}),
        ({"port": "X"}, [], {"port": "X"}),
        ({"port": "X"}, [""], {"port": "X"}),
        ({"port": "W"}, ['{"port":"X"}'], {"port": "X"}),
        ('{"port":"X"}', [], {"port": "X"}),
        ({}, ['{"port":"caf\\u00', "e9 \\ud83d", '\\ude00"}'], {"port": "café 😀"}),
        ({}, ["{port: X}"], "not valid JSON"),
        ({}, ["[1]"], "not a JSON object"),
    ],
)
async def test_q152_arguments_wherever_they_come(start: Any, pieces: list[str], expected: Any) -> None:
    """Q152: at the start of the block, in pieces, cut inside an escape, or unreadable."""
    opening = {"type": "tool_use", "id": "t1", "name": "tide_at", "input": start}
    deltas = [delta("input_json", partial_json=piece) for piece in pieces]
    seen = await run(events(started(opening), *deltas, stopped()), DONE)
    ((_, args),) = seen.played.calls
    assert expected in args if isinstance(expected, str) else args == expected


NOISE: list[Event] = [
    {"type": "ping"},
    {"type": "something_new", "index": 0, "delta": {"type": "text_delta", "text": "no"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "newer_delta", "data": [1]}},
    {"type": "content_block_delta", "index": 0, "delta": None},
    {"type": "content_block_stop", "index": 9},
    {"type": "message_start", "message": None},
    {"type": "message_delta", "delta": {"stop_reason": None}, "usage": None},
    {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}, "type": ""},
]


@pytest.mark.parametrize("noise", NOISE, ids=json.dumps)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
async def test_q154_pings_and_unknown_events_change_nothing(noise: Event, place: int) -> None:
    """Q154, Q164: before the first block, in the middle of a call, behind it."""
    plain = [
        started(asks("tide_at")),
        delta("input_json", partial_json='{"port":'),
        delta("input_json", partial_json='"X"}'),
        stopped(),
    ]
    seen = await run(events(*plain[:place], noise, *plain[place:]), DONE)
    assert seen.played.calls == [("tide_at", {"port": "X"})]
    assert seen.played.outputs == ["high at X"]


@pytest.mark.parametrize(
    "first", [None, {"type": "message_start"}, {"type": "message_start", "message": None}]
)
async def test_q164_a_stream_without_a_start(first: Event | None) -> None:
    """Q164: the model's name is the one that was asked."""
    _, *rest = anthropic_events(text("hi"))
    seen = await run(stream(anthropic_frames(*([first] if first else []), *rest)))
    assert seen.played.result.text == "hi"
    assert seen.played.result.steps[0].model == "fake-model"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ({"input_tokens": 25, "output_tokens": 1}, {"input_tokens": 25, "output_tokens": 15}, (25, 15, None)),
        ({"input_tokens": 25, "output_tokens": 1}, {"output_tokens": 15}, (25, 15, None)),
        ({"input_tokens": 25, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 15}, (25, 15, None)),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 25, "output_tokens": 15}, (25, 15, None)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5},
            {"output_tokens": 2},
            (100, 2, 90),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": None},
            {"output_tokens": 2},
            (5, 2, 0),
        ),
        ({"input_tokens": None}, None, (None, None, None)),
        (None, None, (None, None, None)),
        ({"input_tokens": "many", "output_tokens": 1}, {"output_tokens": 3}, (None, 3, None)),
        ({"input_tokens": -5, "output_tokens": 1}, {"output_tokens": 3}, (0, 3, None)),
    ],
)
async def test_q155_counts_are_cumulative(start: Any, end: Any, expected: Any) -> None:
    """Q155, Q077, Q079: nothing is summed over events; what the cache gave and took is input."""
    all_events = anthropic_events(text("hi"))
    all_events[0]["message"]["usage"] = start
    all_events[-2]["usage"] = end
    seen = await run(stream(anthropic_frames(*all_events)))
    usage = seen.played.result.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == expected


async def test_q155_thoughts_are_counted() -> None:
    """Usage: thinking tokens are part of the output."""
    details = {"output_tokens_details": {"thinking_tokens": 4}, "input_tokens": 1, "output_tokens": 9}
    seen = await run(anthropic_message(text("hi"), usage=details))
    usage = seen.played.result.usage
    assert (usage.output_tokens, usage.reasoning_tokens) == (9, 4)


@pytest.mark.parametrize("size", [1, 3, 64])
async def test_a_stream_cut_anywhere_reads_the_same(size: int) -> None:
    """Q001: thinking, text, two calls, inside characters and names of events."""
    blocks = [thinks("é🎬"), text("caf\u00e9"), asks("tide_at", {"port": "é"}, "a"), asks("now", {}, "b")]
    frames = b"".join(anthropic_frames(*anthropic_events(*blocks, stop_reason="tool_use")))
    seen = await run(stream(split(frames, size)), DONE, issued=blocks)
    assert seen.played.calls == [("tide_at", {"port": "é"}), ("now", {})]
    assert seen.blocks(1, 1) == blocks


async def test_blocks_without_an_index_or_an_end() -> None:
    """Q023, Q026: what follows a start belongs to it; ends may be missing."""
    reply = events(
        started(text(""), None),
        delta("text", None, text="hi"),
        started(asks("tide_at"), None),
        delta("input_json", None, partial_json='{"port":"X"}'),
    )
    seen = await run(reply, DONE)
    assert seen.played.calls == [("tide_at", {"port": "X"})]
    assert seen.shape()[1] == ["assistant", "text", "tool_use"]


@pytest.mark.parametrize("index", [0, 1, 7])
async def test_a_delta_without_a_start_opens_its_block(index: int) -> None:
    """Q164: the start was lost on the way; what it says is kept."""
    seen = await run(events(delta("text", index, text="hi"), stopped(index)))
    assert seen.played.result.text == "hi"


async def test_an_index_that_comes_again_is_another_block() -> None:
    """Q025: servers that count wrongly; neither call is lost."""
    reply = events(
        started(asks("tide_at", id="a")),
        delta("input_json", partial_json='{"port":"X"}'),
        started(asks("tide_at", id="b")),
        delta("input_json", partial_json='{"port":"Y"}'),
    )
    seen = await run(reply, DONE)
    assert seen.played.outputs == ["high at X", "high at Y"]


@pytest.mark.parametrize("ids", [("a", "a"), ("", ""), (None, None), ("tide_at", "tide_at"), ("a", "")])
async def test_ids_are_unique_whatever_comes(form: str, ids: tuple[Any, Any]) -> None:
    """Q028, Q029, Q034: each call is answered by itself."""
    calls = [asks("tide_at", {"port": port}, id) for port, id in zip("XY", ids, strict=True)]
    seen = await run(turn(*calls), DONE, form=form)
    assert seen.played.outputs == ["high at X", "high at Y"]


@pytest.mark.parametrize("cut", [3, 6, 9, 12])
@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_stream_that_ends_early_is_interrupted(cut: int, how: Any) -> None:
    """Design 7.1: no call of it runs, half a thought is not kept, and the next request is valid."""
    blocks = [thinks("a thought"), text("some text"), asks("now", {"a": 1})]
    frames = anthropic_frames(*anthropic_events(*blocks, stop_reason="tool_use"))
    seen = await run(stream(frames[:cut], cut=how), DONE, DONE, then="again", issued=blocks)
    assert "noon" not in seen.played.outputs


async def test_an_end_without_a_reason_is_an_end() -> None:
    """Q016: `message_stop` is a terminal signal; so is a reason without it."""
    _, *rest = anthropic_events(text("hi"))
    assert (await run(stream(anthropic_frames(*rest[:-2], rest[-1])))).played.result.stop_reason == "stop"
    assert (await run(stream(anthropic_frames(*rest[:-1])))).played.result.stop_reason == "stop"
    done = [*anthropic_frames(*rest[:-2]), b"data: [DONE]\n\n"]
    assert (await run(stream(done))).played.result.stop_reason == "stop"


REASONS = [
    ("end_turn", "stop"),
    ("stop_sequence", "stop"),
    ("max_tokens", "length"),
    ("model_context_window_exceeded", "length"),
    ("refusal", "content_filter"),
    ("pause_turn", "other"),
    ("something_new", "other"),
    ("tool_use", "stop"),
]


@pytest.mark.parametrize(("reason", "expected"), REASONS)
async def test_reasons_are_mapped(form: str, reason: str, expected: str) -> None:
    """Q062: an unknown one is kept, and ends the turn; a label without calls is no call."""
    seen = await run(turn(text("hi"), stop=reason), form=form)
    result = seen.played.result
    assert (result.finish_reason, result.text, result.stop_reason) == ("final", "hi", expected)
    kept = getattr(seen.played.messages[-1], "provider_metadata", None)
    assert (reason in json.dumps(kept)) == (expected == "other")


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "pause_turn", "something_new"])
async def test_calls_decide(form: str, reason: str) -> None:
    """Q136: complete calls run whatever the label."""
    seen = await run(turn(asks("now"), stop=reason), DONE, form=form)
    assert seen.played.outputs == ["noon"]


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded"])
async def test_labels_refuse(form: str, reason: str) -> None:
    """Q055: nothing of a cut answer runs, and its calls are answered."""
    answers = [DONE] if reason != "refusal" else []
    seen = await run(turn(asks("now"), stop=reason), *answers, form=form)
    assert len(seen.played.outputs) == 1
    assert seen.played.outputs[0].startswith("Not run")


@pytest.mark.parametrize("blocks", [[], [text("")], [text("\n")], [thinks()], [redacted()]], ids=json.dumps)
async def test_an_empty_answer_is_asked_for_once_more(form: str, blocks: list[Block]) -> None:
    """Q137: then it is an outcome of its own."""
    seen = await run(turn(*blocks), DONE, form=form)
    assert seen.played.result.text == "done"
    seen = await run(turn(*blocks), turn(*blocks), form=form)
    assert seen.played.result.error_code == "empty_answer"


# ---------------------------------------------------------------- errors

ERRORS = [
    ("overloaded_error", 529, "overloaded"),
    ("api_error", 500, "overloaded"),
    ("timeout_error", 504, "overloaded"),
    ("rate_limit_error", 429, "rate_limit"),
    ("invalid_request_error", 400, "bad_request"),
    ("authentication_error", 401, "auth"),
    ("billing_error", 402, "quota"),
    ("permission_error", 403, "auth"),
    ("not_found_error", 404, "model_not_found"),
    ("request_too_large", 413, "context_too_long"),
    ("new_error", 500, "overloaded"),
]


@pytest.mark.parametrize(("kind", "status", "code"), ERRORS)
@pytest.mark.parametrize("place", ["status", "first", "middle", "whole"])
async def test_q109_errors_wherever_they_come(kind: str, status: int, code: str, place: str) -> None:
    """Q109, Q154: as a status, as the first event, after text, or in a whole answer of status 200."""
    error = {"type": "error", "error": {"type": kind, "message": BODY}, "request_id": BODY}
    middle = [started(text("")), delta("text", text="half")] if place == "middle" else []
    replies = {
        "status": reply_json(error, status),
        "first": stream(anthropic_frames(error)),
        "middle": events(*middle, error),
        "whole": reply_json(error),
    }
    seen = await run(replies[place], retries=0)
    assert (seen.played.result.finish_reason, seen.played.result.error_code) == ("error", code)


async def test_q109_an_overload_before_any_text_is_tried_again() -> None:
    """Q109: nothing was shown yet, and nothing of it stays."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": BODY}}
    seen = await run(stream(anthropic_frames(error)), DONE)
    assert seen.played.result.text == "done"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_too_long"),
        ("input length and `max_tokens` exceed context limit: 1 + 2 > 3", "context_too_long"),
        ("Your credit balance is too low to access the Anthropic API.", "quota"),
        ("Output blocked by content filtering policy", "content_filter"),
    ],
)
async def test_what_an_invalid_request_means(message: str, code: str) -> None:
    """Errors are told apart by what the API says in words only."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    seen = await run(reply_json(error, 400), retries=0)
    assert seen.played.result.error_code == code


async def test_q098_a_temperature_that_is_refused_is_left_out() -> None:
    """Q098: newer models take none; it is dropped once, and remembered."""
    error = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "`temperature` is deprecated for this model."},
    }
    async with FakeProvider(reply_json(error, 400), DONE.reply("whole"), DONE.reply("whole")) as server:
        llm = Anthropic("fake-model", KEY, server.url)
        loop = AgentLoop(llm, options=LoopOptions(temperature=0.5))
        await play(loop, "hi")
        await play(loop, "again")
    assert [r.json.get("temperature") for r in server.requests] == [0.5, None, None]


@pytest.mark.parametrize(
    "message",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: `thinking` blocks in the latest assistant message cannot be modified.",
    ],
)
async def test_q161_thinking_that_is_refused_is_left_out(message: str) -> None:
    """Q161: a history that would be refused for ever goes on without it."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    first = turn(thinks(), asks("now"))
    async with FakeProvider(first.reply("whole"), reply_json(error, 400), DONE.reply("whole")) as server:
        loop = AgentLoop(Anthropic("fake-model", KEY, server.url), tools=[now])
        played = await play(loop, "hi")
    assert played.result.text == "done"
    kinds = [shape(r.json)[1][1:] for r in server.requests[1:]]
    assert kinds == [["thinking", "tool_use"], ["tool_use"]]


async def test_starts_and_pieces_of_calls_are_told() -> None:
    """Q032: one start, and the arguments as they come."""
    seen = await run(turn(asks("tide_at", {"port": "X"}, "a"), asks("now", {}, "b")), DONE)
    starts = [e.call_id for e in seen.played.events if isinstance(e, ToolCallStart)]
    told = "".join(e.text for e in seen.played.events if isinstance(e, ToolCallDelta) and e.call_id == "a")
    assert (starts, json.loads(told)) == (["a", "b"], {"port": "X"})


@pytest.mark.parametrize("second", ["\ude00", "c"])
async def test_half_a_character_is_never_stored(second: str) -> None:
    """Q002, Q202: in a text, in a thought, in an argument; halves that belong together become one."""
    frames = [
        json.dumps(started(thinks("", ""))),
        json.dumps(delta("thinking", thinking="a\ud83d")),
        json.dumps(delta("thinking", thinking=second)),
        json.dumps(delta("signature", signature="S")),
        json.dumps(stopped()),
        json.dumps(started(text(""), 1)),
        json.dumps(delta("text", 1, text="b\ud83d")),
        json.dumps(delta("text", 1, text="\ude00c")),
        json.dumps(started(asks("tide_at"), 2)),
        json.dumps(delta("input_json", 2, partial_json='{"port":"\\ud83d"}')),
        json.dumps({"type": "message_stop"}),
    ]
    reply = stream([f"data: {frame}\n\n".encode() for frame in frames])
    seen = await run(reply, DONE, issued=[thinks("a😀")])
    assert seen.played.messages[1].content == "b😀c"
    assert (seen.blocks(1, 1)[0] == thinks("a😀")) == (second == "\ude00")


async def test_q056_arguments_that_break_off_are_the_output_limit() -> None:
    """Q056: whatever the label says; no call of the answer runs."""
    cut = [started(asks("tide_at", id="toolu_2"), 1), delta("input_json", 1, partial_json='{"port":"X')]
    first = [started(asks("now")), delta("input_json", partial_json="{}"), stopped()]
    seen = await run(events(*first, *cut, stopped(1)), DONE)
    assert len(seen.played.outputs) == 2
    assert all("output limit" in output for output in seen.played.outputs)
