"""Faults that Gemini's native API and its clients were publicly reported to have. Wire cases G.

Each case is a run over a real socket, held to the three invariants, and every request of it to what
the API is known to refuse. Each is played as a stream, as a whole answer, and as the JSON list that
the API sends without `alt=sse`.
"""

import asyncio
import json
from typing import Any

import pytest

from playhead import AgentLoop, ChatMessage, UserMessage, tool
from playhead.events import ReasoningDelta, TextDelta, ToolCallStart
from playhead.llm.gemini import FOREIGN_SIGNATURE, Gemini
from playhead.testing import FakeProvider, reply_json, sse, stream
from playhead.types import (
    AssistantMessage,
    ImagePart,
    TextPart,
    ToolCall,
    ToolMessage,
)
from tests.llm.gemini_wire import DONE, Chunk, Part, called, chunk, reply_of, run, sent, turn_of
from tests.support.invariants import BODY, KEY, play

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stream", "whole", "list"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- calls and results


@pytest.mark.parametrize("id", ["g-1", "a.b:c/d", "é", "x" * 300])
async def test_q124_an_id_of_the_api_is_echoed(form: str, id: str) -> None:
    """Q124: the provider's own id goes back with its result, byte for byte."""
    seen = await run([chunk(called("tide_at", {}, id), finish="STOP")], [DONE], form=form)
    (role, answers) = seen.contents(1)[-1]
    assert (role, [part["functionResponse"]["id"] for part in answers]) == ("user", [id])


async def test_q124_an_id_that_comes_again_is_two_calls(form: str) -> None:
    """Q124, Q034: within a turn and over turns; each result has the id of its own call."""
    twice = [called("tide_at", {"port": "X"}, "g-1"), called("tide_at", {"port": "Y"}, "g-1")]
    seen = await run(
        [chunk(*twice, finish="STOP")],
        [chunk(called("now", {}, "g-1"), finish="STOP")],
        [DONE],
        form=form,
    )
    assert seen.played.outputs == ["high at X", "high at Y", "noon"]
    results = [
        p["functionResponse"] for _, parts in seen.contents(2) for p in parts if "functionResponse" in p
    ]
    assert [(r["id"], r["response"]["result"]) for r in results] == [
        ("g-1", "high at X"),
        ("g-1", "high at Y"),
        ("g-1", "noon"),
    ]


async def test_q125_results_stand_in_call_order_though_tools_finish_in_another(form: str) -> None:
    """Q125: two calls of one function without ids are told apart by their order alone."""
    first_done = asyncio.Event()

    @tool
    async def tide_at(port: str) -> str:
        """Say when the tide is high."""
        if port == "X":
            await first_done.wait()
        else:
            first_done.set()
        return f"high at {port}"

    asked = [called("tide_at", {"port": "X"}), called("tide_at", {"port": "Y"})]
    seen = await run([chunk(*asked, finish="STOP")], [DONE], form=form, tools=[tide_at])
    (_, answers) = seen.contents(1)[-1]
    results = [part["functionResponse"]["response"]["result"] for part in answers]
    assert results == ["high at X", "high at Y"]


async def test_q127_what_the_user_says_next_is_a_content_of_its_own() -> None:
    """Q127: text and pictures are never beside results."""
    picture = UserMessage([ImagePart("data:image/png;base64,AAAA"), TextPart("and this?")])
    log = [*turn_of(2), picture]
    body = await sent(log)
    kinds = [[next(iter(p)) for p in c["parts"]] for c in body["contents"]]
    assert kinds[-2:] == [["functionResponse", "functionResponse"], ["inlineData", "text"]]


@pytest.mark.parametrize("text", ["42", "[1,2]", '"x"', "null", "", " \n", "é🎬"])
@pytest.mark.parametrize("failed", [False, True])
async def test_q128_a_result_is_always_an_object(text: str, failed: bool) -> None:
    """Q128: whatever a tool returned, and errors under a name of their own; blank ones are said to be."""
    log: list[ChatMessage] = [
        UserMessage("go"),
        AssistantMessage("", [ToolCall("c", "f", {})]),
        ToolMessage("c", "f", text, failed),
    ]
    body = await sent(log)
    answer = body["contents"][-1]["parts"][0]["functionResponse"]["response"]
    assert answer == {"error" if failed else "result": text if text.strip() else "(no output)"}


# ---------------------------------------------------------------- signatures

SIGNATURES = ["S", "EpwCCpkC+/=", "c2lnbmF0dXJl" * 200, "-_-"]


@pytest.mark.parametrize("signature", SIGNATURES)
async def test_q130_parallel_calls_go_back_as_they_came(form: str, signature: str) -> None:
    """Q130: in one content, in order; the one signature is neither copied nor moved."""
    parts = [
        called("tide_at", {"port": "X", "a": {"z": 1, "b": [1.5, None]}}, signature=signature),
        called("now"),
        called("tide_at", {"port": "Y"}),
    ]
    seen = await run([chunk(*parts, finish="STOP")], [DONE], form=form)
    assert seen.contents(1)[1] == ("model", parts)


LOOKALIKES = [
    {"text": "hi", "thoughtSignature": "S"},
    {"text": "hm", "thought": True, "thoughtSignature": "S"},
    {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
    called("now", signature="S"),
]


@pytest.mark.parametrize("more", [{"start": "x"}, {"end": "x"}, {"start": 9, "end": None}], ids=str)
@pytest.mark.parametrize("part", LOOKALIKES, ids=str)
async def test_a_part_with_fields_like_ours_does_not_spoil_the_conversation(
    form: str, part: Part, more: Part
) -> None:
    """Q130: a part goes back, signature and all; no field of the server's is read as a range of ours."""
    text = {"text": "so", "thoughtSignature": "T"}
    then = None if "functionCall" in part else "go on"
    turn = [chunk({**part, **more}, text, finish="STOP")]
    seen = await run(turn, [DONE], form=form, then=then, issued=[part])
    assert text in seen.contents(1)[1][1]
    assert part in seen.contents(1)[1][1]


SIGNED: list[tuple[list[Chunk], list[Part]]] = [
    (
        [chunk({"text": "hi"}), chunk({"text": "", "thoughtSignature": "S"}, finish="STOP")],
        [{"text": "hi"}, {"text": "", "thoughtSignature": "S"}],
    ),
    (
        [chunk({"text": "h"}), chunk({"text": "i"}), chunk({"thoughtSignature": "S"}, finish="STOP")],
        [{"text": "hi"}, {"text": "", "thoughtSignature": "S"}],
    ),
    (
        [chunk({"text": "hi", "thoughtSignature": "S"}), chunk({"text": " you"}, finish="STOP")],
        [{"text": "hi", "thoughtSignature": "S"}, {"text": " you"}],
    ),
    (
        [
            chunk({"text": "a", "thoughtSignature": "S1"}),
            chunk({"text": "b", "thoughtSignature": "S2"}, finish="STOP"),
        ],
        [{"text": "a", "thoughtSignature": "S1"}, {"text": "b", "thoughtSignature": "S2"}],
    ),
    (
        [
            chunk({"text": "thinking", "thought": True}),
            chunk({"text": "é🎬", "thoughtSignature": "S"}, finish="STOP"),
        ],
        [{"text": "é🎬", "thoughtSignature": "S"}],
    ),
    (
        [
            chunk({"text": "t", "thought": True, "thoughtSignature": "S"}),
            chunk({"text": "hi"}, finish="STOP"),
        ],
        [{"text": "t", "thought": True, "thoughtSignature": "S"}, {"text": "hi"}],
    ),
]


@pytest.mark.parametrize(("chunks", "expected"), SIGNED)
async def test_q131_a_signature_stays_where_it_came(
    form: str, chunks: list[Chunk], expected: list[Part]
) -> None:
    """Q131: on empty text, in a later chunk, alone; through a store and back."""
    seen = await run(chunks, [DONE], form=form, then="go on", issued=expected)
    assert seen.contents(1)[1] == ("model", expected)


async def test_q131_the_text_that_is_shown_is_whole(form: str) -> None:
    """Q131: empty and signed parts change nothing of what is read."""
    seen = await run(SIGNED[0][0], form=form)
    assert seen.played.result.text == "hi"
    assert "".join(e.text for e in seen.played.events if isinstance(e, TextDelta)) == "hi"


async def test_signatures_of_one_turn_are_all_sent_back(form: str) -> None:
    """Q130, Q131: each step of a turn has its own; all of them are in the last request."""
    steps = [[chunk(called("now", {"n": n}, signature=f"S{n}"), finish="STOP")] for n in range(3)]
    seen = await run(*steps, [DONE], form=form)
    parts = [p for role, parts in seen.contents(3) for p in parts if role == "model"]
    assert [p["thoughtSignature"] for p in parts] == ["S0", "S1", "S2"]


@pytest.mark.parametrize("change", [{"server": "elsewhere.example"}, {"model": "other"}, {"parts": []}])
async def test_a_signature_goes_to_nobody_else(change: dict[str, Any]) -> None:
    """Q119: not to another server, not to another model, not with a message that was changed."""
    seen = await run([chunk(called("now", signature="SECRET"), finish="STOP")], [DONE])
    log = list(seen.played.messages)
    metadata = getattr(log[1], "provider_metadata", None)
    assert metadata
    assert "SECRET" in json.dumps(metadata)
    metadata["gemini"] |= change
    body = await sent([*log, UserMessage("and now?")])
    assert "SECRET" not in json.dumps(body)
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == FOREIGN_SIGNATURE


# ---------------------------------------------------------------- what is wrong with an answer

BAD = ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"]


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("parts", [[], [{"text": "calling"}], [called("now")]])
async def test_q133_a_malformed_call_is_tried_again_with_a_hint(
    form: str, reason: str, parts: list[Part]
) -> None:
    """Q133: never `stop`, and no call of such an answer runs."""
    bad = chunk(*parts, finish=reason, finishMessage=BODY)
    seen = await run([bad], [DONE], form=form)
    assert seen.played.result.text == "done"
    assert seen.played.outputs == []
    assert len(seen.bodies[1]["contents"][0]["parts"]) == 2, "no hint beside the question"
    assert [m.role for m in seen.played.messages] == ["user", "assistant"], "the hint was stored"


@pytest.mark.parametrize("reason", BAD)
async def test_q133_a_call_that_stays_malformed_fails_the_turn(form: str, reason: str) -> None:
    """Q133: bounded, and said with its reason."""
    bad = [chunk(finish=reason, finishMessage=BODY)]
    seen = await run(bad, bad, bad, form=form, retries=0)
    result = seen.played.result
    assert (result.finish_reason, result.error_code) == ("error", "protocol")
    assert reason in (result.error_message or "")


ODD: list[Any] = [
    {"candidates": [{"finishReason": "OTHER"}]},
    {"candidates": [{"content": {"role": "model"}}]},
    {"candidates": [{"content": {"role": "model", "parts": None}, "finishReason": "STOP"}]},
    {"candidates": [{"content": None, "finishReason": "STOP"}]},
    {"candidates": [{"content": {}, "finishReason": "STOP"}]},
    {"candidates": [None]},
    {"candidates": []},
    {"candidates": None},
    {"usageMetadata": {"promptTokenCount": 3}},
    {"candidates": [{"content": {"parts": ["x", None, 1]}, "finishReason": "STOP"}]},
    {"candidates": [{"content": {"parts": [{}]}, "finishReason": "STOP"}]},
    {
        "candidates": [
            {"content": {"parts": [{"text": None}, {"functionCall": None}]}, "finishReason": "STOP"}
        ]
    },
]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
async def test_q134_a_candidate_without_content_is_no_crash(form: str, odd: Chunk) -> None:
    """Q134: it is an error that says so, never a silent success."""
    seen = await run([odd], form=form, retries=0)
    assert seen.played.result.finish_reason == "error"
    assert seen.played.result.error_code in ("empty_answer", "protocol", "connection")


FILTERED = [
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_RECITATION",
]


@pytest.mark.parametrize("reason", FILTERED)
@pytest.mark.parametrize("parts", [[], [{"text": "half an ans"}], [called("now")]])
async def test_q134_a_filtered_answer_is_said_to_be(form: str, reason: str, parts: list[Part]) -> None:
    """Q134: text is kept, and nothing of it runs."""
    seen = await run([chunk(*parts, finish=reason)], form=form)
    assert seen.played.result.stop_reason == "content_filter"
    assert "noon" not in seen.played.outputs
    assert seen.played.result.text == ("half an ans" if parts and "text" in parts[0] else "")


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "NEW_REASON"])
async def test_a_blocked_prompt_is_the_filter(form: str, reason: str) -> None:
    """Q134: no candidates at all, and a reason beside them."""
    blocked = {"promptFeedback": {"blockReason": reason, "blockReasonMessage": BODY}}
    seen = await run([blocked], form=form)
    assert (seen.played.result.finish_reason, seen.played.result.error_code) == ("error", "content_filter")


@pytest.mark.parametrize("reason", ["STOP", "OTHER", "FINISH_REASON_UNSPECIFIED", "SOMETHING_NEW"])
async def test_q136_calls_decide(form: str, reason: str) -> None:
    """Q136: whatever the label says."""
    seen = await run([chunk(called("now"), finish=reason)], [DONE], form=form)
    assert seen.played.outputs == ["noon"]


async def test_q136_the_label_in_a_chunk_of_its_own() -> None:
    """Q136: the call came before it."""
    seen = await run([chunk(called("now")), chunk({"text": ""}, finish="STOP")], [DONE])
    assert seen.played.outputs == ["noon"]


EMPTY = [[{"text": ""}], [{"text": "\n"}], [], [{"text": "hm", "thought": True}], [{"thoughtSignature": "S"}]]


@pytest.mark.parametrize("parts", EMPTY, ids=json.dumps)
async def test_q137_an_empty_answer_is_asked_for_once_more(form: str, parts: list[Part]) -> None:
    """Q137: one bounded retry."""
    seen = await run([chunk(*parts, finish="STOP")], [DONE], form=form)
    assert seen.played.result.text == "done"


@pytest.mark.parametrize("parts", EMPTY, ids=json.dumps)
async def test_q137_an_answer_that_stays_empty_is_an_error(form: str, parts: list[Part]) -> None:
    """Q137: an outcome of its own, not a silent success."""
    empty = [chunk(*parts, finish="STOP")]
    seen = await run(empty, empty, form=form)
    assert (seen.played.result.finish_reason, seen.played.result.error_code) == ("error", "empty_answer")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "tide_at"}, {}),
        ({"name": "tide_at", "args": None}, {}),
        ({"name": "tide_at", "args": ""}, {}),
        ({"name": "tide_at", "args": '{"port":"X"}'}, {"port": "X"}),
        ({"name": "tide_at", "args": '"{\\"port\\":\\"X\\"}"'}, {"port": "X"}),
        ({"name": "tide_at", "args": {"port": "é🎬"}}, {"port": "é🎬"}),
        ({"name": "tide_at", "args": "{port: X}"}, "not valid JSON"),
        ({"name": "tide_at", "args": [1]}, "not a JSON object"),
        ({"name": "tide_at", "args": 7}, "not a JSON object"),
    ],
)
async def test_q139_arguments_in_any_form(form: str, call: Part, expected: Any) -> None:
    """Q139: missing, as text, or not an object; what goes back is an object."""
    seen = await run([chunk({"functionCall": call}, finish="STOP")], [DONE], form=form)
    ((_, args),) = seen.played.calls
    assert expected in args if isinstance(expected, str) else args == expected
    assert isinstance(seen.contents(1)[1][1][0]["functionCall"]["args"], dict)


@pytest.mark.parametrize("name", ["", None, 5, "no such tool", "ünknown", "x" * 200])
async def test_a_call_of_no_tool_is_answered(form: str, name: Any) -> None:
    """Q094, Q166: the name is replaced where the API would not take it back; the pair stays a pair."""
    seen = await run([chunk({"functionCall": {"name": name}}, finish="STOP")], [DONE], form=form)
    assert len(seen.played.outputs) == 1
    assert seen.played.result.text == "done"


@pytest.mark.parametrize("prefix", ["default_api.", "default_api:"])
async def test_q149_an_invented_prefix_is_read_and_sent_back(form: str, prefix: str) -> None:
    """Q149: the tool is found; the result names what the model said."""
    seen = await run([chunk(called(f"{prefix}now"), finish="STOP")], [DONE], form=form)
    assert seen.played.outputs == ["noon"]
    assert seen.contents(1)[-1][1][0]["functionResponse"]["name"] == f"{prefix}now"


# ---------------------------------------------------------------- errors and counts


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "code", "after"),
    [
        (400, {"message": "API key not valid. " + BODY, "status": "INVALID_ARGUMENT"}, "auth", None),
        (400, {"message": f"token count (9) exceeds {BODY}"}, "context_too_long", None),
        (400, {"message": BODY}, "bad_request", None),
        (429, {"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "53s"}]}, "rate_limit", 53.0),
        (429, {"details": [{"retryDelay": "53.5s"}, "odd", None]}, "rate_limit", 53.5),
        (429, {"details": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}, "quota", None),
        (429, {"details": {"odd": 1}}, "rate_limit", None),
        (503, {"status": "UNAVAILABLE", "message": BODY}, "overloaded", None),
    ],
)
async def test_q107_a_refusal_is_read(
    status: int, error: dict[str, Any], code: str, after: float | None, listed: bool
) -> None:
    """Q107, Q121: in the body, as an object or as a list of one; nothing of it leaks."""
    body: Any = {"error": {"code": status, **error}}
    seen = await run(reply_json([body] if listed else body, status), retries=0)
    assert (seen.played.result.finish_reason, seen.played.result.error_code) == ("error", code)
    mapped = Gemini("m", KEY).map_error(status, json.dumps([body]).encode(), None)
    assert mapped.retry_after == after


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 503, "message": BODY}, "overloaded"),
        ({"status": "RESOURCE_EXHAUSTED"}, "rate_limit"),
        ({"status": "DEADLINE_EXCEEDED"}, "overloaded"),
        ({"message": BODY}, "overloaded"),
        (BODY, "overloaded"),
    ],
)
async def test_q017_an_error_in_the_middle_of_an_answer(form: str, error: Any, code: str) -> None:
    """Q017, Q019: an object or a text; after text, too."""
    seen = await run([chunk({"text": "half"}), {"error": error}], form=form, retries=0)
    assert (seen.played.result.finish_reason, seen.played.result.error_code) == ("error", code)


async def test_thoughts_are_reasoning_and_are_counted(form: str) -> None:
    """Reasoning is told apart from text; thoughts count as output, tool prompts as input."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7}
    usage |= {"toolUsePromptTokenCount": 2, "cachedContentTokenCount": 4}
    chunks = [
        chunk({"text": "hm", "thought": True}),
        {**chunk({"text": "ok"}, finish="STOP"), "usageMetadata": usage},
    ]
    seen = await run(chunks, form=form)
    told = "".join(e.text for e in seen.played.events if isinstance(e, ReasoningDelta))
    assert (told, seen.played.result.text) == ("hm", "ok")
    counted = seen.played.result.usage
    assert (counted.input_tokens, counted.output_tokens) == (12, 12)
    assert (counted.cached_tokens, counted.reasoning_tokens) == (4, 7)


async def test_half_a_character_is_never_stored(form: str) -> None:
    """Q002, Q202: in a text, in an argument, in a signed part."""
    half = chunk(
        {"text": "a\ud83d"},
        {"text": "\ude00b", "thoughtSignature": "S"},
        called("tide_at", {"port": "\ud83d"}),
    )
    raw = json.dumps(half)
    reply = stream([f"data: {raw}\n\n".encode(), *sse(chunk(finish="STOP"))])
    seen = await run(reply, [DONE])
    assert seen.played.messages[1].content == "a😀b"


async def test_no_start_is_told_twice(form: str) -> None:
    """Q032: one start for each call, with the id of the call."""
    seen = await run([chunk(called("now", id="a"), called("now", id="b"), finish="STOP")], [DONE], form=form)
    starts = [e.call_id for e in seen.played.events if isinstance(e, ToolCallStart)]
    assert starts == ["a", "b"]


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1beta/models/m:streamGenerateContent"),
        ("/v1", "/v1/models/m:streamGenerateContent"),
        ("/v1beta/", "/v1beta/models/m:streamGenerateContent"),
        ("/v1/publishers/google", "/v1/publishers/google/models/m:streamGenerateContent"),
        ("/proxy", "/proxy/v1beta/models/m:streamGenerateContent"),
    ],
)
async def test_q122_the_version_is_joined_once(base: str, path: str) -> None:
    """Q122: with it, without it, behind a proxy."""
    async with FakeProvider(reply_of([DONE], "stream")) as server:
        loop = AgentLoop(Gemini("models/m", KEY, server.url + base))
        await play(loop, "hi")
    assert server.requests[0].path == path
