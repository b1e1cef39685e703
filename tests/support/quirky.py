"""Servers of the OpenAI-compatible dialect that refuse what real ones were reported to refuse.

    FakeProvider(default=QuirkyServer(Rules(user_after_tool=False)))

What a rule does not forbid is taken. Refusals are the wire cases' own (Q083-Q100), with status 400.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from playhead.testing import Reply, Request, openai_calls, openai_sse, openai_text, reply_json

PERMISSIVE_FIELDS = frozenset({"max_tokens", "max_completion_tokens"})
_LONG = {"text": "one two three " * 100}


@dataclass(frozen=True)
class Rules:
    """What a server takes, and what its model does."""

    limit_fields: frozenset[str] = PERMISSIVE_FIELDS
    heeded_limits: frozenset[str] = PERMISSIVE_FIELDS
    refused_contents: frozenset[str] = frozenset()  # of a message with calls: "", "null", "absent"
    reasoning: Literal["ignored", "refused", "calls", "always"] = "ignored"
    user_after_tool: bool = True
    users_in_a_row: bool = True
    counts_calls: bool = True  # a template that counts neither calls nor results wants roles in turn
    prefill: bool | Literal["silent"] = True
    choice: Literal["named", "words", "none"] = "named"
    choice_heeded: Literal["named", "words", "none"] = "named"
    id_pattern: str = r".+"
    name_length: int = 1_000
    name_cut: int = 1_000
    rich_schemas: bool = True
    no_tools_with_history: bool = True
    stream_options: bool = True
    usage_comes: bool = True
    stream_calls: Literal["whole", "lost", "merged"] = "whole"
    tools: bool = True
    pictures: bool = True
    status: int = 400


class _Refusal(Exception):
    """What the server does not take."""


@dataclass
class QuirkyServer:
    """A reply to each request, by rule. Keeps the reasons of its refusals."""

    rules: Rules = Rules()
    refusals: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        body = request.json
        try:
            for check in (self._fields, self._tools, self._history, self._order):
                for refusal in check(body):
                    raise _Refusal(refusal)
        except _Refusal as refusal:
            self.refusals.append(str(refusal))
            # Some servers repeat the key, and some what was said.
            text = f"{refusal} (key {request.headers['authorization']})"
            return reply_json(
                {"error": {"message": text, "type": "invalid_request_error"}}, self.rules.status
            )
        return self._answer(body)

    # ------------------------------------------------------------ what is refused

    def _fields(self, body: dict[str, Any]) -> Iterator[str]:
        known = {"model", "messages", "tools", "stream", "stream_options", "tool_choice", "response_format"}
        for name in body.keys() - known - self.rules.limit_fields:
            yield f"Unsupported parameter: {name!r}"
        if "stream_options" in body and not self.rules.stream_options:
            yield "Extra inputs are not permitted: 'stream_options'"
        choice = body.get("tool_choice")
        if choice is not None and self.rules.choice == "none":
            yield "tool_choice is not supported"
        if isinstance(choice, dict) and self.rules.choice != "named":
            yield "Invalid tool_choice type: 'object'"

    def _tools(self, body: dict[str, Any]) -> Iterator[str]:
        tools = body.get("tools", [])
        if tools and not self.rules.tools:
            yield "This model does not support tools"
        for function in (tool["function"] for tool in tools):
            if (
                not re.fullmatch(r"[\w-]+", function["name"])
                or len(function["name"]) > self.rules.name_length
            ):
                yield f"Invalid function name of {len(function['name'])} characters"
            raw = json.dumps(function["parameters"])
            if not self.rules.rich_schemas and re.search(r'"(\$ref|\$defs|const|additionalProperties)"', raw):
                yield "Unknown name in the schema"
        called = any(message.get("tool_calls") for message in body["messages"])
        if called and not tools and not self.rules.no_tools_with_history:
            yield "Tools must be given when the history holds calls"

    def _history(self, body: dict[str, Any]) -> Iterator[str]:
        rules, open_ids = self.rules, list[str]()
        for message in body["messages"]:
            role, content = message["role"], message.get("content", "absent")
            if open_ids and role != "tool":
                yield "A call has no result"
            if role == "tool":
                if message["tool_call_id"] not in open_ids:
                    yield "A result has no call"
                open_ids.remove(message["tool_call_id"])
            if role == "assistant":
                yield from self._assistant(message, content)
                ids = [call["id"] for call in message.get("tool_calls", [])]
                open_ids += ids
                if len(set(ids)) < len(ids) or not all(re.fullmatch(rules.id_pattern, id) for id in ids):
                    yield "Invalid tool call id"
            if isinstance(content, list) and not rules.pictures:
                yield "This model reads no images"

    def _assistant(self, message: dict[str, Any], content: Any) -> Iterator[str]:
        calls = message.get("tool_calls")
        if not calls and not content:
            yield "An assistant message needs content or calls"
        if calls and ("null" if content is None else content) in self.rules.refused_contents:
            yield "Invalid content of an assistant message"
        replayed = "reasoning_content" in message or "reasoning" in message
        wanted = self.rules.reasoning == "always" or (self.rules.reasoning == "calls" and calls)
        if wanted and not replayed:
            yield "The reasoning_content must be passed back"
        if replayed and self.rules.reasoning == "refused":
            yield "Extra inputs are not permitted: 'reasoning_content'"

    def _order(self, body: dict[str, Any]) -> Iterator[str]:
        messages = [m for m in body["messages"] if m["role"] != "system"]
        for before, message in pairwise(messages):
            pair = before["role"], message["role"]
            if pair == ("tool", "user") and not self.rules.user_after_tool:
                yield "Unexpected role 'user' after role 'tool' (3230)"
            if pair == ("user", "user") and not self.rules.users_in_a_row:
                yield "Roles must alternate"
        if messages[-1]["role"] == "assistant" and not self.rules.prefill:
            yield "Expected last role user or tool"
        if not self.rules.counts_calls:
            counted = [m["role"] for m in messages if m["role"] != "tool" and not m.get("tool_calls")]
            if counted != [("user", "assistant")[n % 2] for n in range(len(counted))]:
                yield "Conversation roles must alternate user/assistant"

    # ------------------------------------------------------------ what is answered

    def _answer(self, body: dict[str, Any]) -> Reply:
        calls, last = self._calls(body), body["messages"][-1]
        limits = [body[name] for name in self.rules.heeded_limits & body.keys()]
        if calls and "probe_save" in calls[0][0]:
            cut = bool(limits) and limits[0] < 200
            usage = {"prompt_tokens": 9, "completion_tokens": limits[0] if cut else 400, "total_tokens": 500}
            text = json.dumps(_LONG)
            return openai_calls(
                [(calls[0][0], text[:40] if cut else text)],
                finish_reason="length" if cut else "tool_calls",
                usage=usage,
            )
        text = "" if last["role"] == "assistant" and self.rules.prefill == "silent" else "ok"
        if not body.get("stream"):
            return openai_calls(calls) if calls else openai_text(text)
        told = "stream_options" in body and self.rules.usage_comes
        if calls and self.rules.stream_calls == "lost":
            return openai_sse("", usage=False)
        if len(calls) > 1 and self.rules.stream_calls == "merged":
            calls = [(calls[0][0], "".join(json.dumps(call[1]) for call in calls))]
        return openai_sse(*([] if calls else [text]), calls=calls, usage=told)

    def _calls(self, body: dict[str, Any]) -> Sequence[tuple[str, Any]]:
        names = [tool["function"]["name"][: self.rules.name_cut] for tool in body.get("tools", [])]
        last, choice = body["messages"][-1], body.get("tool_choice")
        said = last["content"] if isinstance(last.get("content"), str) else ""
        if not names or last["role"] != "user":
            return []
        if isinstance(choice, dict) and self.rules.choice_heeded == "named":
            return [(choice["function"]["name"], {})]
        if "both at once" in said:
            return [(names[0], {"city": city}) for city in ("Oslo", "Rome")]
        demanded = choice == "required" and self.rules.choice_heeded != "none"
        if demanded or re.search(r"Use the tool|code of|time is it", said):
            return [(names[0], {"city": "Oslo"} if "lookup" in names[0] else {})]
        return []


# Mistral's API: datapizza-labs/datapizza-ai#98 (3230), anomalyco/opencode#1680 (ids),
# editor-code-assistant/eca#231 and charmbracelet/crush#1590 (unknown fields).
MISTRAL_LIKE = Rules(
    limit_fields=frozenset({"max_tokens"}),
    reasoning="refused",
    user_after_tool=False,
    prefill=False,
    id_pattern=r"[A-Za-z0-9]{9}",
    name_length=64,
    stream_options=False,
    status=422,
)
# LM Studio: lmstudio-ai/lmstudio-bug-tracker#670 (a named tool) and #261 (null content),
# mcowger/generic-copilot#43 (templates that count neither calls nor results).
LM_STUDIO_LIKE = Rules(
    limit_fields=frozenset({"max_tokens"}),
    refused_contents=frozenset({"null", "absent"}),
    counts_calls=False,
    choice="words",
    stream_calls="lost",
    prefill="silent",
)
# OpenAI's API: its reasoning models refuse `max_tokens`; vercel/ai#5171 (ids of 40 characters).
OPENAI_LIKE = Rules(
    limit_fields=frozenset({"max_completion_tokens"}),
    id_pattern=r".{1,40}",
    name_length=64,
)
