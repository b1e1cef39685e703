"""Faults that servers of the OpenAI-compatible dialect were publicly reported to have: what is said.

Wire cases D, and what opaque data comes to, each over a real socket and in a run.
"""

import json
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    ChatMessage,
    LLMError,
    LLMRequest,
    LLMResult,
    LoopOptions,
    ToolCall,
    UserMessage,
)
from playhead.events import Attempt, ReasoningDelta
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, openai_sse, openai_text, reply_json, sse, stream
from tests.llm.openai_wire import (
    ask,
    brief,
    delta,
    now,
    piece,
    pieces,
    read,
    shown,
    whole,
)
from tests.support.invariants import KEY, play

pytestmark = pytest.mark.anyio

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


def test_what_was_kept_of_calls_by_their_ids_still_goes_back() -> None:
    """Q151, Q205: as databases of earlier schemas hold it."""
    llm = OpenAICompatible("m", "k", "http://localhost:1/v1")
    kept = {"openai-compatible": {"server": "localhost:1", "calls": {"t2": {"sig": "S"}}}}
    calls = [ToolCall("t1", "f", {}), ToolCall("t2", "f", {})]
    wire = llm.convert_message(AssistantMessage("", calls, provider_metadata=kept))
    assert [call.get("sig") for call in wire["tool_calls"]] == [None, "S"]


async def test_a_signature_survives_the_store() -> None:
    """Design 7.3: opaque data is part of the message, byte for byte, through JSON."""
    import msgspec

    kept = {"openai-compatible": {"server": "s", "calls": [{"sig": "\u00e9\x00=="}]}}
    message = AssistantMessage("", [ToolCall("t1", "f", {})], provider_metadata=kept)
    assert msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage) == message


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (["a", "b"], "ab"),
        ([{"text": "a"}, {"type": "output_text", "text": "b"}], "ab"),
        ({"type": "text", "text": "a"}, "a"),
        ([None, 7, [], "a"], "a"),
        ([{"type": "text", "text": None}, {"type": "thinking"}, "a"], "a"),
    ],
)
async def test_q065_parts_in_other_forms(content: Any, text: str, streamed: bool) -> None:
    """Q065: text is never lost for its form."""
    if streamed:
        result, _ = await read(delta(content=content), delta("stop"))
    else:
        result = await whole({"content": content})
    assert result.message.content == text


async def test_q067_reasoning_in_its_details_only() -> None:
    """Q067: shown once, and kept to go back."""
    details = [{"type": "reasoning.text", "text": "r", "signature": "\ud83d"}]
    kept = details_of(await read(delta(reasoning_details=details), delta(content="a"), delta("stop")))
    assert kept == ("r", [{"type": "reasoning.text", "text": "r", "signature": "\ufffd"}])


def details_of(read: tuple[LLMResult, Any]) -> tuple[str | None, Any]:
    message = read[0].message
    return message.reasoning, (message.provider_metadata or {})["openai-compatible"]["reasoningDetails"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_is_what_the_model_says(streamed: bool) -> None:
    """The API's own field for it; an answer without text would be asked for again."""
    if streamed:
        result, _ = await read(delta(refusal="I can"), delta(refusal="not."), delta("stop"))
    else:
        result = await whole({"content": None, "refusal": "I cannot."})
    assert result.message.content == "I cannot."


async def test_q071_reasoning_and_calls_are_told_again_when_text_is_taken_back() -> None:
    """Q071: what a reader is left with is the message."""
    result, deltas = await read(
        delta(reasoning_content="r "),
        delta(content="plan"),
        delta(tool_calls=[piece(0, "t1", "f", '{"a":1}')]),
        delta(content="</think>answer"),
        delta("tool_calls"),
    )
    assert (result.message.content, result.message.reasoning) == ("answer", "r plan")
    assert sum(isinstance(d, Attempt) for d in deltas) == 1


@pytest.mark.parametrize("repeated", ["hi", "hi there", ""])
async def test_a_message_at_the_end_of_a_stream_is_not_said_twice(repeated: str) -> None:
    """Q022: some servers close a stream with the whole message."""
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    last = {"choices": [{"index": 0, "message": {"content": repeated, "tool_calls": [call]}}]}
    first = delta(content="hi", tool_calls=[piece(0, "t1", "f", "{}")])
    result, _ = await read(first, last, delta("tool_calls"))
    assert result.message.content == max("hi", repeated, key=len)
    assert brief(result) == [("f", {})]


async def test_q077_each_count_has_its_last_value() -> None:
    """Q077: also where a later chunk leaves one out, or all."""
    usages = [{"prompt_tokens": 5, "completion_tokens": 1}, {"completion_tokens": 2}, {}, None]
    chunks = [{**delta(content="a"), "usage": usage} for usage in usages]
    result, _ = await read(*chunks, delta("stop"))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (5, 2)


@pytest.mark.parametrize(
    ("count", "read_as"), [(5.0, 5), (10**30, None), ("5", None), ([], None), (True, None)]
)
async def test_q079_counts_in_other_forms(count: Any, read_as: int | None) -> None:
    """Q079: what is no count is unknown."""
    result, _ = await read(delta(content="a"), {**delta("stop"), "usage": {"prompt_tokens": count}})
    assert result.usage.input_tokens == read_as


@pytest.mark.parametrize(("answer", "warned"), [(96, True), (97, False)])
async def test_q103_a_context_that_is_full_to_the_token_is_said(
    answer: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Q103: servers cut a history in silence, and then the counts add up to their context."""
    usage = {"prompt_tokens": 4000, "completion_tokens": answer}
    await read(delta(content="a"), {**delta("stop"), "usage": usage})
    assert ("4,096" in caplog.text) is warned


async def test_q097_a_required_call_that_is_not_made_is_an_answer() -> None:
    """Q097: text is taken as text; the run does not ask for ever."""
    async with FakeProvider(openai_sse("no need")) as server:
        loop = AgentLoop(
            OpenAICompatible("m", KEY, f"{server.url}/v1"),
            tools=[now],
            options=LoopOptions(tool_choice="required"),
        )
        played = await play(loop, "hi")
    assert (played.result.finish_reason, played.result.text) == ("final", "no need")
    assert [r.json["tool_choice"] for r in server.requests] == ["required"]
