"""Whatever a log holds, the request that is made of it is valid at every API, and says all that was said.

The logs are random: what people and tools said, and answers as each API gives them.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.llm.anthropic import Anthropic
from playhead.llm.gemini import Gemini
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.openai_responses import OpenAIResponses
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    SystemMessage,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from tests.llm.strictest import BUDGET, LONG, REASONING, STRICTEST
from tests.support.invariants import KEY, stored_again
from tests.support.strict_apis import Issued, check_anthropic, check_gemini, check_openai
from tests.support.strict_responses import check_responses

TOOLS = [
    ToolSchema(LONG, "Tides.", [], {"type": "object", "properties": {"port": {"type": "string"}}}),
    ToolSchema("files.read", "Read.", [], {"anyOf": [{"properties": {"a": {"type": ["string", "null"]}}}]}),
]
TEXTS = st.sampled_from(["", " ", "\n", "hi", "é🎬", "a\n\nb", "</think>", '"}]}'])
IDS = st.sampled_from(["a", "b", "a-2", "", "x:1", "é", "y" * 80])
NAMED = st.sampled_from(["f", LONG, "files.read", "", "2nd", "ünï"])
ARGS = st.sampled_from([{}, {"port": "é"}, {"z": 1, "a": [None, {"b": 1.5}]}])
SIGNED = st.sampled_from(["", "S1", "S2/+="])
CALLED = st.lists(st.tuples(IDS, NAMED, ARGS, SIGNED), max_size=3)


@st.composite
def gemini_bodies(draw: st.DrawFn) -> Any:
    parts: list[Any] = []
    for text, signature in draw(st.lists(st.tuples(TEXTS, SIGNED), max_size=2)):
        parts.append({"text": text, **({"thoughtSignature": signature} if signature else {})})
    for id, name, args, signature in draw(CALLED):
        call = {"functionCall": {"name": name, "args": args, **({"id": id} if id else {})}}
        parts.append({**call, **({"thoughtSignature": signature} if signature else {})})
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


@st.composite
def anthropic_bodies(draw: st.DrawFn) -> Any:
    blocks: list[Any] = []
    for text, signature in draw(st.lists(st.tuples(TEXTS, SIGNED), max_size=3)):
        blocks.append(
            {"type": "thinking", "thinking": text, "signature": signature}
            if signature
            else {"type": "text", "text": text}
        )
    for id, name, args, _ in draw(CALLED):
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": args})
    return {
        "content": draw(st.permutations(blocks)),
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", "refusal"])),
    }


@st.composite
def openai_bodies(draw: st.DrawFn) -> Any:
    calls = [
        {
            "id": id,
            "function": {"name": name, "arguments": json.dumps(args)},
            **({"extra": signature} if signature else {}),
        }
        for id, name, args, signature in draw(CALLED)
    ]
    message = {"content": draw(TEXTS), "tool_calls": calls, "reasoning_content": draw(SIGNED)}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


@st.composite
def responses_bodies(draw: st.DrawFn) -> Any:
    items: list[Any] = []
    for text, encrypted in draw(st.lists(st.tuples(TEXTS, SIGNED), max_size=3)):
        said = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": encrypted}
        items.append({**(thought if encrypted else said), "status": "completed"})
    for id, name, args, encrypted in draw(CALLED):
        call = {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(args)}
        items += [call] if not encrypted else [{"type": "reasoning", "id": "rs", "summary": []}, call]
    status = draw(st.sampled_from(["completed", "incomplete"]))
    return {"status": status, "output": draw(st.permutations(items))}


BODIES = st.one_of(
    st.tuples(st.just("gemini"), gemini_bodies()),
    st.tuples(st.just("anthropic"), anthropic_bodies()),
    st.tuples(st.just("openai"), openai_bodies()),
    st.tuples(st.just("responses"), responses_bodies()),
)
OTHERS: st.SearchStrategy[ChatMessage] = st.one_of(
    st.builds(UserMessage, TEXTS),
    st.builds(ToolMessage, IDS, NAMED, TEXTS, st.booleans()),
    st.builds(SystemMessage, TEXTS),
)
LOGS = st.lists(st.one_of(OTHERS, BODIES), max_size=9)


def issued_by(body: Any) -> Issued:
    """What the servers gave out in a body and take back."""
    parts = [p for c in body.get("candidates", ()) for p in c["content"]["parts"]]
    for choice in body.get("choices", ()):
        parts += [{"extra": c["extra"]} for c in choice["message"]["tool_calls"] if "extra" in c]
    for item in body.get("output", ()):
        parts.append({name: value for name, value in item.items() if name != "status"})
    return Issued([*parts, *body.get("content", ())])


def histories(log: Sequence[Any]) -> tuple[list[ChatMessage], dict[str, Issued]]:
    """The log as messages, and what each vendor gave out."""
    made: dict[str, Any] = {
        "gemini": Gemini("m", KEY),
        "anthropic": Anthropic("m", KEY),
        "openai": OpenAICompatible("m", KEY),
        "responses": OpenAIResponses("m", KEY),
    }
    issued = {name: Issued(signs=False) for name in made}
    messages: list[ChatMessage] = []
    for item in log:
        if not isinstance(item, tuple):
            messages.append(item)
            continue
        name, body = item
        result = made[name].parse_response(LLMRequest([]), json.dumps(body).encode())
        messages.append(result.message)
        issued[name].parts += issued_by(body).parts
        issued[name].texts |= {"S1", "S2/+="} if name == "openai" else set()
    return stored_again(messages), issued


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS, st.booleans(), st.sampled_from([None, "auto", "required", LONG]))
def test_any_history_is_taken_by_every_api(log: list[Any], tools: bool, choice: str | None) -> None:
    """Issue 3: whatever the log holds, the request is valid, for each adapter and the strictest profile."""
    messages, issued = histories(log)
    request: dict[str, Any] = {"tools": TOOLS if tools else (), "tool_choice": choice}
    targets: list[tuple[Any, Callable[[Any], None]]] = [
        (Gemini("m", KEY), lambda body: check_gemini(body, issued["gemini"])),
        (OpenAIResponses("m", KEY), lambda body: check_responses(body, issued["responses"])),
        (Anthropic("m", KEY), lambda body: check_anthropic(body, issued["anthropic"])),
        (Anthropic("m", KEY, thinking=BUDGET), lambda body: check_anthropic(body, issued["anthropic"])),
        (
            OpenAICompatible("m", KEY, profile=STRICTEST),
            lambda body: check_openai(body, STRICTEST, issued["openai"]),
        ),
        (
            OpenAICompatible("m", KEY, profile=REASONING),
            lambda body: check_openai(body, REASONING, issued["openai"]),
        ),
    ]
    for llm, check in targets:
        body = llm.build_request(LLMRequest(messages, **request), False).body
        check(json.loads(body))


EACH: list[Any] = [
    Gemini("m", KEY),
    Anthropic("m", KEY),
    OpenAIResponses("m", KEY),
    OpenAICompatible("m", KEY, profile=STRICTEST),
]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS, st.lists(st.integers(0, 9), max_size=4))
def test_a_history_that_grows_makes_the_same_request(log: list[Any], cuts: list[int]) -> None:
    """Encode once: what was kept of earlier requests of the run changes nothing of the next."""
    messages, _ = histories(log)
    for llm in EACH:
        memo: dict[str, Any] = {}
        for cut in [*sorted(cuts), len(messages)]:
            grown = llm.build_request(LLMRequest(messages[:cut], memo=memo), False).body
            fresh = llm.build_request(LLMRequest(stored_again(messages[:cut])), False).body
            assert grown == fresh


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS)
def test_nothing_said_is_lost(log: list[Any]) -> None:
    """Issue 3: every text of a person and of a model is in the request, in order, for every adapter."""
    messages, _ = histories(log)
    said = [m.content for m in messages if isinstance(m, UserMessage | AssistantMessage)]
    for llm in EACH:
        body = json.loads(llm.build_request(LLMRequest(messages), False).body)
        told = _squeezed("".join(_texts(body.get("contents") or body.get("messages") or body.get("input"))))
        place = 0
        for text in map(_squeezed, map(str, said)):
            place = told.find(text, place)
            assert place >= 0, f"{text!r} is not in {told!r}"
            place += len(text)


def _squeezed(text: str) -> str:
    """Without white space: two texts may be put together with a blank line."""
    return "".join(text.split())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("text", "content") and isinstance(inner, str):
                yield inner
            elif key not in ("thinking", "summary", "tool_calls", "functionResponse"):
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
