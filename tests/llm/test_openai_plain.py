"""The short way to read a whole answer says what the reader says, wherever it says anything."""

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from playhead.llm.assembly import Assembly
from playhead.llm.openai_plain import read_plain
from playhead.llm.openai_reply import OpenAIReader
from playhead.types import LLMResult

NAMES = {"wire_name": "real.name"}


def call(id: Any = "c1", name: Any = "f", arguments: Any = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


MESSAGES: list[dict[str, Any] | None] = [
    None,
    {},
    {"content": None},
    {"content": "It rains."},
    {"content": "Schön \U0001f600 \0"},
    {"content": " \n"},
    {"content": "<think>why</think>so"},
    {"content": [{"type": "text", "text": "parts"}]},
    {"content": 5},
    {"content": "no", "refusal": "I will not."},
    {"content": "so", "reasoning": "why"},
    {"content": "so", "reasoning_details": [{"text": "why"}]},
    {"function_call": {"name": "f", "arguments": "{}"}},
    {"content": "both", "tool_calls": [call()]},
    {"tool_calls": [call(), call("c2", "wire_name", ' {"b": [1, 2.5, null]} ')]},
    {"tool_calls": [call(), call()]},
    {"tool_calls": [call(" c1 ")]},
    {"tool_calls": [call(name=" f")]},
    {"tool_calls": [call(None)]},
    {"tool_calls": [call(7)]},
    {"tool_calls": [call(name="")]},
    {"tool_calls": [call(arguments="")]},
    {"tool_calls": [call(arguments="null")]},
    {"tool_calls": [call(arguments='{"a":')]},
    {"tool_calls": [call(arguments='{"a":NaN}')]},
    {"tool_calls": [call(arguments="[1]")]},
    {"tool_calls": [call(arguments={"a": 1})]},
    {"tool_calls": [call(index=0)]},
    {"tool_calls": [call(extra_content={"signature": "s"})]},
    {"tool_calls": [{"id": "c1"}]},
    {"tool_calls": [{"id": "c1", "function": "f"}]},
]
REASONS = ["stop", "tool_calls", "length", "content_filter", "odd", "null", "", None]
USAGE = {"prompt_tokens": 2000, "completion_tokens": 48.0, "prompt_tokens_details": {"cached_tokens": 3}}
BODIES = [
    *(
        json.dumps({"choices": [{"index": n, "message": message, "finish_reason": reason}], **more})
        for n, (message, reason, more) in enumerate(
            itertools.product(MESSAGES, REASONS, ({}, {"usage": USAGE, "model": "m\0-2"}))
        )
    ),
    json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}] * 2}),
    json.dumps({"choices": [{"message": {"content": "a"}, "delta": {}, "finish_reason": "stop"}]}),
    json.dumps({"choices": [{"message": {"content": "a"}, "delta": {"content": "b"}}]}),
    '{"choices":[{"message":{"content":"half \\ud83d"},"finish_reason":"stop"}]}',
]


def plainly(result: LLMResult) -> LLMResult:
    """The result without the ids and times that each reading makes anew."""
    calls = [c if c.id.startswith("c") else replace(c, id="") for c in result.message.tool_calls]
    return replace(result, message=replace(result.message, id="", timestamp=0, tool_calls=calls))


@pytest.mark.parametrize("cap", [None, 48])
def test_what_is_read_in_one_go_is_what_the_reader_reads(cap: int | None) -> None:
    read = 0
    for body in BODIES:
        plain = read_plain(body.encode(), "m", NAMES, cap)
        if plain is None:
            continue
        reader = OpenAIReader(Assembly(), "m", "here", NAMES, cap=cap)
        reader.take_body(body.encode())
        assert plainly(plain) == plainly(reader.result()), body
        read += 1
    assert read >= 20


@pytest.mark.parametrize("body", [b"", b"[]", b"no", b"{}", b'{"error":"busy"}', b'{"choices":[]}'])
def test_what_holds_no_answer_is_left_to_the_reader(body: bytes) -> None:
    assert read_plain(body, "m", NAMES, None) is None
