"""What each API refuses in a request, as far as it is publicly known: checkers, and fakes that use them.

Each checker takes the body of a request and raises `Refused` as the API would answer 400.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from playhead.llm.gemini import FOREIGN_SIGNATURE
from playhead.llm.profiles import DEFAULT, Profile
from playhead.testing import Reply, Request, reply_json

Body = dict[str, Any]

_ID = {
    "any": re.compile(r"(?s).+"),
    "alnum9": re.compile(r"[A-Za-z0-9]{9}"),
    "safe64": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "short40": re.compile(r"(?s).{1,40}"),
}
_GEMINI_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


class Refused(Exception):
    """The API would answer 400."""


def refuse(unless: Any, why: str) -> None:
    if not unless:
        raise Refused(why)


@dataclass
class Issued:
    """What a server gave out itself, and takes back only as it was: signed parts, thinking, reasoning."""

    parts: list[Any] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    signs: bool = True
    """Whether the model signs its calls, and then wants a signature on each first one."""


class StrictProvider:
    """A script for a `FakeProvider`: checks each request, then answers with the next reply."""

    def __init__(self, check: Callable[[Body], None], *replies: Reply) -> None:
        self.check = check
        self.replies = list(replies)
        self.refusals: list[str] = []

    def __call__(self, request: Request) -> Reply:
        try:
            self.check(request.json)
        except Refused as why:
            self.refusals.append(str(why))
            return reply_json({"error": {"message": str(why), "type": "invalid_request_error"}}, 400)
        return self.replies.pop(0)


# ---------------------------------------------------------------- chat completions


def check_openai(body: Body, profile: Profile = DEFAULT, issued: Issued | None = None) -> None:
    """Chat completions, as strict as a profile says."""
    issued = issued or Issued()
    messages = body["messages"]
    refuse(messages, "no messages")
    ids: list[str] = []
    waiting: list[str] = []
    before = ""
    for n, message in enumerate(messages):
        role, where = message["role"], f"messages.{n}"
        refuse(role in ("system", "user", "assistant", "tool"), f"{where}: role {role}")
        refuse(role != "system" or n == 0, f"{where}: system is not first")
        if role == "tool":
            refuse(waiting, f"{where}: a result without a call before it")
            refuse(message["tool_call_id"] == waiting.pop(0), f"{where}: a result out of order")
            refuse(isinstance(message["content"], str) and message["content"], f"{where}: blank result")
        else:
            refuse(not waiting, f"{where}: calls without results: {waiting}")
        if role == "user":
            refuse(message["content"] is not None, f"{where}: null content")
            refuse(not (profile.merge_users and before == "user"), f"{where}: two user messages")
            refuse(not (profile.needs_assistant_after_tool and before == "tool"), f"{where}: user after tool")
        if role == "assistant":
            waiting = _check_openai_assistant(message, profile, issued, where)
            ids += waiting
            waiting = list(waiting)
        before = role
    refuse(not waiting, f"calls without results: {waiting}")
    refuse(profile.prefill or before in ("user", "tool"), "the conversation ends on an assistant turn")
    refuse(len(set(ids)) == len(ids), "an id comes twice")
    _check_openai_options(body, profile, bool(ids))


def _check_openai_assistant(message: Body, profile: Profile, issued: Issued, where: str) -> list[str]:
    calls = message.get("tool_calls")
    refuse(calls is None or calls, f"{where}: an empty list of calls")
    content = message.get("content")
    refuse(content or calls, f"{where}: neither text nor calls")
    forms = {"text": isinstance(content, str), "null": True, "omit": content is None or bool(content)}
    refuse(forms.get(profile.assistant_empty, bool(content)), f"{where}: content {content!r}")
    allowed = {"role", "content", "tool_calls"}
    if profile.replay_reasoning != "never":
        allowed |= {profile.reasoning_field, "reasoning_details"}
    if message.get("reasoning_details") in issued.parts:  # whoever sends them takes them back
        allowed.add("reasoning_details")
    refuse(set(message) <= allowed, f"{where}: unknown fields {set(message) - allowed}")
    for name in ("reasoning_content", "reasoning"):
        text = message.get(name)
        refuse(not text or text in issued.texts, f"{where}: reasoning of another model")
    ids = []
    for call in calls or ():
        extra = {k: v for k, v in call.items() if k not in ("id", "type", "function")}
        refuse(not extra or extra in issued.parts, f"{where}: foreign data in a call: {extra}")
        refuse(_ID[profile.id_codec].fullmatch(call["id"]), f"{where}: id {call['id']!r}")
        check_name(call["function"]["name"], profile.max_tool_name, where)
        arguments = json.loads(call["function"]["arguments"])
        refuse(isinstance(arguments, dict), f"{where}: arguments are no object")
        ids.append(call["id"])
    return ids


def check_name(name: str, limit: int, where: str) -> None:
    refuse(re.fullmatch(r"[A-Za-z0-9_-]+", name) and len(name) <= limit, f"{where}: name {name!r}")


def _check_openai_options(body: Body, profile: Profile, has_calls: bool) -> None:
    known = {"model", "messages", "tools", "temperature", "response_format", "stream"}
    known.add(profile.max_tokens_field)
    if profile.tool_choice != "none":
        known.add("tool_choice")
    if profile.usage_in_stream:
        known.add("stream_options")
    refuse(set(body) <= known, f"unknown fields {set(body) - known}")
    if profile.needs_tools_with_tool_history and has_calls:
        refuse(body.get("tools"), "calls in the history, and no tools")
    for tool in body.get("tools", ()):
        check_name(tool["function"]["name"], profile.max_tool_name, "tools")
        if profile.schema_dialect == "openapi":
            check_gemini_schema(tool["function"]["parameters"])


# ---------------------------------------------------------------- generateContent


def check_gemini(body: Body, issued: Issued | None = None) -> None:
    """generateContent, as strict as Gemini 3: a call of another model needs the documented stand-in."""
    issued = issued or Issued()
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    refuse(set(body) <= known, f"unknown fields {set(body) - known}")
    contents = body["contents"]
    refuse(contents, "contents is empty")
    asked: list[Body] = []
    before: Body | None = None
    for n, content in enumerate(contents):
        where = f"contents.{n}"
        role, parts = content["role"], content["parts"]
        refuse(role in ("user", "model"), f"{where}: role {role}")
        refuse(n or role == "user", "the first content is not the user's")
        refuse(parts, f"{where}: no parts")
        for part in parts:
            _check_gemini_part(part, role, issued, where)
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        refuse(not answers or len(answers) == len(parts), f"{where}: something beside the results")
        if asked or answers:
            _check_gemini_results(asked, answers, where)
        if before is not None and before["role"] == role:
            mixed = bool(answers) != any("functionResponse" in part for part in before["parts"])
            refuse(role == "user" and mixed, f"{where}: two contents of the {role}")
        asked = [part["functionCall"] for part in parts if "functionCall" in part]
        _check_gemini_signed([part for part in parts if "functionCall" in part], issued, where)
        before = content
    refuse(before and before["role"] == "user", "the last content is not the user's")
    _check_gemini_options(body)


def _check_gemini_part(part: Body, role: str, issued: Issued, where: str) -> None:
    kinds = {"text", "functionCall", "functionResponse", "inlineData", "fileData"}
    mine = [kind for kind in part if kind in kinds]
    refuse(len(mine) == 1, f"{where}: a part holds {sorted(part)}")
    refuse(set(part) <= {*mine, "thoughtSignature", "thought"}, f"{where}: a part holds {sorted(part)}")
    signature = part.get("thoughtSignature")
    if mine == ["text"]:
        refuse(part["text"] or signature, f"{where}: an empty text")
    if mine in (["functionCall"], ["functionResponse"]):
        call = part[mine[0]]
        refuse((mine == ["functionCall"]) == (role == "model"), f"{where}: {mine[0]} of the {role}")
        refuse(_GEMINI_NAME.fullmatch(call.get("name", "")), f"{where}: name {call.get('name')!r}")
        value = call.get("args", {}) if mine == ["functionCall"] else call.get("response")
        refuse(isinstance(value, dict), f"{where}: {mine[0]} holds no object")
    if signature is not None and signature != FOREIGN_SIGNATURE:
        refuse(part in issued.parts, f"{where}: a signature that is not of this part: {signature[:40]}")


def _check_gemini_results(asked: Sequence[Body], answers: Sequence[Body], where: str) -> None:
    refuse(len(asked) == len(answers), f"{where}: {len(asked)} calls, {len(answers)} results")
    for call, answer in zip(asked, answers, strict=True):
        refuse(call["name"] == answer["name"], f"{where}: a result of {answer['name']} for {call['name']}")
        refuse(call.get("id") == answer.get("id"), f"{where}: ids {call.get('id')} and {answer.get('id')}")


def _check_gemini_signed(parts: Sequence[Body], issued: Issued, where: str) -> None:
    if parts and "thoughtSignature" not in parts[0] and issued.signs:
        refuse(parts[0] in issued.parts, f"{where}: the first call has no signature")


def _check_gemini_options(body: Body) -> None:
    for part in body.get("systemInstruction", {}).get("parts", ()):
        refuse(part["text"].strip(), "blank instructions")
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    tools = [d for tool in body.get("tools", ()) for d in tool["functionDeclarations"]]
    names = [declaration["name"] for declaration in tools]
    refuse(set(config.get("allowedFunctionNames", ())) <= set(names), "a tool that is not declared is forced")
    for declaration in tools:
        refuse(_GEMINI_NAME.fullmatch(declaration["name"]), f"tool name {declaration['name']!r}")
        schema = declaration.get("parameters")
        if schema is None:
            refuse(config.get("mode") != "ANY", "a forced call needs parameters of type object")
            continue
        refuse(schema.get("type") == "object", "parameters are no object")
        refuse(schema.get("properties") or config.get("mode") == "ANY", "properties are empty")
        check_gemini_schema(schema)


def check_gemini_schema(schema: Body) -> None:
    """The subset of OpenAPI 3.0, down to every part."""
    if "anyOf" in schema:
        refuse(set(schema) == {"anyOf"}, f"beside anyOf: {set(schema) - {'anyOf'}}")
        for option in schema["anyOf"]:
            check_gemini_schema(option)
        return
    own = {
        "string": {"enum", "format", "pattern", "minLength", "maxLength"},
        "integer": {"format", "minimum", "maximum"},
        "number": {"format", "minimum", "maximum"},
        "boolean": set(),
        "array": {"items", "minItems", "maxItems"},
        "object": {"properties", "required", "propertyOrdering", "minProperties", "maxProperties"},
    }
    kind = schema.get("type")
    refuse(kind in own, f"type {kind!r}")
    unknown = set(schema) - own[str(kind)] - {"type", "title", "description", "default", "nullable"}
    refuse(not unknown, f"{kind}: unknown fields {unknown}")
    formats = {"string": {"enum", "date-time"}, "integer": {"int32", "int64"}, "number": {"float", "double"}}
    refuse(schema.get("format") in {None, *formats.get(str(kind), set())}, f"format {schema.get('format')}")
    values = schema.get("enum", ["a"])
    refuse(values and all(isinstance(v, str) and v for v in values), f"enum {values}")
    refuse(kind != "array" or "items" in schema, "items: missing field")
    refuse(set(schema.get("required", ())) <= set(schema.get("properties", {})), "required of no property")
    refuse(schema.get("required", ["a"]), "required is empty")
    for sub in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else ())):
        check_gemini_schema(sub)


# ---------------------------------------------------------------- messages


def check_anthropic(body: Body, issued: Issued | None = None) -> None:
    """The Messages API."""
    issued = issued or Issued()
    _check_anthropic_options(body)
    messages = body["messages"]
    refuse(messages, "messages: at least one message is required")
    ids: list[str] = []
    waiting: list[str] = []
    for n, message in enumerate(messages):
        where, role = f"messages.{n}", message["role"]
        refuse(role == ("assistant" if n % 2 else "user"), f"{where}: role {role}")
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        refuse(blocks, f"{where}: no content")
        for block in blocks:
            _check_anthropic_block(block, issued, where)
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        refuse(results == waiting, f"{where}: results {results} for calls {waiting}")
        kinds = [block["type"] for block in blocks]
        refuse(kinds[: len(results)] == ["tool_result"] * len(results), f"{where}: results are not first")
        refuse(role == "assistant" or "tool_use" not in kinds, f"{where}: a call of the user")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if waiting:
            refuse(kinds[-len(waiting) :] == ["tool_use"] * len(waiting), f"{where}: text behind a call")
        if role == "assistant":
            refuse("thinking" not in kinds[-1], f"{where}: the final block is {kinds[-1]}")
        ids += waiting
    refuse(not waiting and len(messages) % 2, "the conversation must end with a user message")
    refuse(len(set(ids)) == len(ids), "tool_use ids must be unique")
    refuse(not ids or body.get("tools"), "requests with tool_use blocks must define tools")
    _check_anthropic_thinking(body)


def _check_anthropic_block(block: Body, issued: Issued, where: str) -> None:
    kind = block["type"]
    rest = {k: v for k, v in block.items() if k != "cache_control"}
    if kind == "text":
        refuse(block["text"].strip(), f"{where}: text without any but white space")
    elif kind == "tool_use":
        refuse(_ID["safe64"].fullmatch(block["id"]), f"{where}: id {block['id']!r}")
        check_name(block["name"], 64, where)
        refuse(isinstance(block["input"], dict), f"{where}: input is no object")
        refuse(
            set(block) <= {"type", "id", "name", "input"} or rest in issued.parts, f"{where}: foreign data"
        )
    elif kind == "tool_result":
        refuse(block["content"].strip(), f"{where}: blank result")
    elif kind in ("image", "document"):
        source = block["source"]
        refuse(source["type"] in ("base64", "url", "text"), f"{where}: source {source['type']}")
        refuse(source["type"] != "base64" or source["media_type"], f"{where}: no media type")
    else:
        refuse(rest in issued.parts, f"{where}: a {kind} block that is not as it was given")
        refuse("cache_control" not in block, f"{where}: cache_control on {kind}")


def _check_anthropic_options(body: Body) -> None:
    known = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "temperature"}
    known |= {"thinking", "output_config", "stream"}
    refuse(set(body) <= known, f"unknown fields {set(body) - known}")
    refuse(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: field required")
    marked = json.dumps(body).count('"cache_control"')
    refuse(marked <= 4, f"{marked} blocks with cache_control")
    for block in body.get("system", ()):
        refuse(block["text"].strip(), "system: blank text")
    tools = {tool["name"] for tool in body.get("tools", ())}
    for tool in body.get("tools", ()):
        check_name(tool["name"], 64, "tools")
        schema = tool["input_schema"]
        refuse(schema.get("type") == "object", "input_schema is no object")
        refuse(not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema), "a choice at the top of input_schema")
    choice = body.get("tool_choice")
    if choice is not None:
        refuse(tools, "tool_choice without tools")
        refuse(choice["type"] in ("auto", "any", "tool", "none"), f"tool_choice {choice}")
        refuse(choice["type"] != "tool" or choice["name"] in tools, "a tool that is not declared is forced")
        refuse(choice["type"] != "none" or len(choice) == 1, "tool_choice none takes nothing else")


def _check_anthropic_thinking(body: Body) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    refuse(body.get("tool_choice", {}).get("type") not in ("any", "tool"), "thinking with a forced tool")
    last = body["messages"][-1]["content"]
    if thinking["type"] == "enabled" and not isinstance(last, str) and last[0]["type"] == "tool_result":
        first = body["messages"][-2]["content"][0]["type"]
        refuse("thinking" in first, f"expected thinking, but found {first}")
