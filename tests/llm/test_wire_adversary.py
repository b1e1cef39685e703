"""Responses of the OpenAI-compatible dialect that no report lists: mixes of faults, by chance.

Whatever arrives: an answer or an `LLMError`, a message that can be stored and sent on, and a reader
who was told what the message says.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from playhead import LLMError, LLMRequest, LLMResult, UserMessage
from playhead.events import LLMDelta
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.sse import EventParser
from playhead.testing import sse
from tests.llm.openai_wire import (
    assert_told,
    assert_valid,
)

Told = list[LLMDelta]

LLM = OpenAICompatible("fake-model", "sk-x", "http://fake.example/v1")
ASKED = LLMRequest([UserMessage("hi")])


def heard(pieces: Sequence[bytes]) -> tuple[LLMResult | LLMError, Told]:
    """What comes of a stream, and what was told meanwhile."""
    told: Told = []
    reader, parser = LLM.reader(ASKED, told.append), EventParser()
    try:
        for piece in pieces:
            for name, data in parser.feed(piece):
                reader.take(name, data)
        for name, data in parser.finish():
            reader.take(name, data)
        return reader.result(), told
    except LLMError as error:
        return error, told


def assert_good(pieces: Sequence[bytes]) -> LLMResult | LLMError:
    outcome, told = heard(pieces)
    if isinstance(outcome, LLMResult):
        assert_told(outcome, told)
        assert_valid(outcome)
    else:
        assert "secret body" not in str(outcome)
    return outcome


# ---------------------------------------------------------------- what may arrive

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", " ", 0, -1, 1.5, 10**30, True, [], {}, [None], [[]], ["x"], "null", {"a": None}]
)
TEXTS = st.sampled_from(
    [
        *("", "a", "é", "🎬", "\ud83d", "\ude00", "\x00", "\n", " ", "{", "}", "`"),
        *("<", "<think>", "</think>", "<thi", "nk>", "</th", "ink>", "b </think> c"),
    ]
)
FRAGMENTS = st.sampled_from(
    [
        *("", "{", "}", '{"a"', ":1}", '{"a":1}', '"', "\\", "\\ud83d", "\\ude00", "\ud83d", "null", "[1]"),
        *("NaN", " ", '{"a":1e999}', '{"a":' + "9" * 40 + "}", '"{\\"n\\":2}"', "x", '{"s":"\\ud83d"}'),
    ]
)
NAMES = st.sampled_from(["f", "g", "read_", "page", "read_page", "", " ", "é", "\ud83d", "a b"])
IDS = st.sampled_from(["t1", "t2", "", " ", "f", "\ud83d", "x" * 200, 7, None])
INDEXES = st.sampled_from([0, 1, 2, 5, None, "0", "1", -1, 10**30, 0.0, True])


def fields(known: dict[str, st.SearchStrategy[Any]], odd: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields, each now and then of a wrong type."""
    values = {k: st.one_of(v, v, v, ODD) if odd else v for k, v in known.items()}
    return st.fixed_dictionaries({}, optional=values)


FUNCTION = fields({"name": NAMES, "arguments": FRAGMENTS})
CALL = fields(
    {"index": INDEXES, "id": IDS, "function": FUNCTION, "type": st.just("function"), "extra": TEXTS}
)
PART = fields({"type": st.sampled_from(["text", "thinking", "odd"]), "text": TEXTS, "thinking": TEXTS})
DELTA = fields(
    {
        "role": st.just("assistant"),
        "content": st.one_of(TEXTS, st.lists(PART, max_size=3)),
        "reasoning_content": TEXTS,
        "reasoning": TEXTS,
        "reasoning_details": st.lists(fields({"type": TEXTS, "text": TEXTS}), max_size=2),
        "tool_calls": st.lists(CALL, max_size=3),
        "function_call": FUNCTION,
        "refusal": TEXTS,
    }
)
FINISH = st.sampled_from([None, None, None, "stop", "tool_calls", "length", "content_filter", "odd", ""])
CHOICE = fields({"index": st.sampled_from([0, 0, 0, 1]), "delta": DELTA, "finish_reason": FINISH})
COUNT = st.sampled_from([0, 5, -1, None, "7", 10**30, 1.5, 4.0])
USAGE = fields({"prompt_tokens": COUNT, "completion_tokens": COUNT, "completion_tokens_details": ODD})
CHUNK = fields({"choices": st.lists(CHOICE, max_size=2), "usage": USAGE, "model": TEXTS})
PLAIN = st.fixed_dictionaries({"choices": DELTA.map(lambda delta: [{"index": 0, "delta": delta}])})
EVENT = st.one_of(PLAIN, PLAIN, PLAIN, CHUNK, ODD.map(json.dumps), st.just("[DONE]"))
SPOILT = st.sampled_from(
    [{"error": {"message": "secret body", "code": 503}}, {"error": "secret body"}, '{"choices":[{"del', "<a>"]
)
ENDS = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def body_of(chunks: Sequence[Any]) -> bytes:
    # As ASCII, for halves of characters stand in some of them.
    texts = [c if isinstance(c, str) else json.dumps(c) for c in chunks]
    return b"".join(sse(*texts))


@settings(max_examples=250, deadline=None)
@given(st.lists(EVENT, max_size=8), st.booleans())
def test_any_chunks_give_a_message_that_is_valid_and_was_told(chunks: list[Any], ends: bool) -> None:
    """Issue 3: the kinds of A to D in any mix. An answer or an `LLMError`, nothing else."""
    assert_good([body_of([*chunks, *(ENDS if ends else [])])])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(EVENT, EVENT, SPOILT), max_size=6), st.booleans())
def test_an_error_in_any_place_is_an_error_or_comes_after_the_end(chunks: list[Any], ends: bool) -> None:
    """Q017, Q020: wherever it stands."""
    assert_good([body_of([*chunks, *(ENDS if ends else [])])])


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENT, max_size=6), st.lists(st.integers(0, 2000), max_size=30))
def test_where_the_bytes_are_cut_makes_no_difference(chunks: list[Any], cuts: list[int]) -> None:
    """Q001: for odd streams as well."""
    body = body_of([*chunks, *ENDS])
    borders = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    whole, _ = heard([body])
    cut, _ = heard([body[a:b] for a, b in pairwise(borders)])
    assert _essence(whole) == _essence(cut)


def _essence(outcome: LLMResult | LLMError) -> Any:
    if isinstance(outcome, LLMError):
        return type(outcome)
    message = outcome.message
    calls = [(call.name, call.args, call.error) for call in message.tool_calls]
    return message.content, message.reasoning, calls, outcome.stop_reason, outcome.usage


@settings(max_examples=60, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=5), st.data())
def test_a_stream_that_breaks_off_at_any_byte_is_never_complete(chunks: list[Any], data: Any) -> None:
    """Q014: without a finish reason and without `[DONE]` it is `interrupted`, or an error."""
    body = body_of(chunks)
    outcome = assert_good([body[: data.draw(st.integers(0, len(body)))]])
    assert isinstance(outcome, LLMError) or outcome.stop_reason == "interrupted"


@settings(max_examples=60, deadline=None)
@given(st.one_of(fields({"choices": st.lists(fields({"message": DELTA, "finish_reason": FINISH}))}), ODD))
def test_any_whole_answer_gives_a_message_that_is_valid_and_was_told(body: Any) -> None:
    """Q022, Q076: the same for answers that are not streamed."""
    told: Told = []
    try:
        result = LLM.parse_response(ASKED, json.dumps(body).encode(), told.append)
    except LLMError:
        return
    assert_told(result, told)
    assert_valid(result)
