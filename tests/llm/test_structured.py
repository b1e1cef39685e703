"""An answer in the form of a schema, by every way of every API, over a real socket. Issue 4 item 5."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from playhead.events import Attempt, LLMDelta, TextDelta, ToolCallStart
from playhead.llm.anthropic import Anthropic
from playhead.llm.attempts import Attempts
from playhead.llm.base import AgentLLM
from playhead.llm.gemini import Gemini
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.llm.structured import FINAL_OUTPUT, OutputForm
from playhead.testing import (
    FakeProvider,
    Reply,
    Request,
    anthropic_calls,
    anthropic_sse,
    anthropic_text,
    gemini_calls,
    gemini_sse,
    gemini_text,
    openai_calls,
    openai_sse,
    openai_text,
    reply_json,
    sse,
    stream,
)
from playhead.types import ChatMessage, JsonObject, LLMRequest, LLMResult, ToolSchema, UserMessage
from tests.support.strict_apis import Refused, check_anthropic, check_gemini, check_openai

pytestmark = pytest.mark.anyio

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city"],
}
OPEN: JsonObject = {"type": "object", "additionalProperties": {"type": "integer"}}
VALUE = {"city": "Århus 😀", "people": 5}
ANSWER = json.dumps(VALUE, ensure_ascii=False)
ADD = ToolSchema("add", "Add.", (), {"type": "object", "properties": {"a": {"type": "integer"}}})
SYSTEM = "Be brief."


@dataclass(frozen=True)
class Api:
    """A dialect, as these tests need it."""

    text: Callable[..., Reply]
    calls: Callable[..., Reply]
    sse: Callable[..., Reply]
    tools: Callable[[JsonObject], list[str]]
    system: Callable[[JsonObject], str]
    choice: Callable[[JsonObject], Any]
    check: Callable[[JsonObject], None]


def _gemini_tools(body: JsonObject) -> list[str]:
    return [d["name"] for tool in body.get("tools", ()) for d in tool["functionDeclarations"]]


OPENAI = Api(
    openai_text,
    openai_calls,
    openai_sse,
    lambda body: [tool["function"]["name"] for tool in body.get("tools", ())],
    lambda body: str(body["messages"][0]["content"]),
    lambda body: body.get("tool_choice"),
    check_openai,
)
GEMINI = Api(
    gemini_text,
    gemini_calls,
    gemini_sse,
    _gemini_tools,
    lambda body: str(body["systemInstruction"]["parts"][0]["text"]),
    lambda body: body.get("toolConfig", {}).get("functionCallingConfig"),
    check_gemini,
)
ANTHROPIC = Api(
    anthropic_text,
    anthropic_calls,
    anthropic_sse,
    lambda body: [tool["name"] for tool in body.get("tools", ())],
    lambda body: str(body["system"][0]["text"]),
    lambda body: body.get("tool_choice"),
    check_anthropic,
)


@dataclass(frozen=True)
class Way:
    """How one model on one API is asked, and with which schema."""

    api: Api
    make: Callable[[str], AgentLLM]
    form: OutputForm
    beside_tools: OutputForm
    told: bool = False
    schema: JsonObject | None = None

    @property
    def asked(self) -> JsonObject:
        return {"output_schema": self.schema or SCHEMA}

    def form_with(self, tools: bool) -> OutputForm:
        return self.beside_tools if tools else self.form


def _openai(url: str, **profile: Any) -> OpenAICompatible:
    return OpenAICompatible("m", "k", f"{url}/v1", profile=Profile(name="test", **profile))


def _gemini(url: str, model: str = "gemini-2.5-flash") -> Gemini:
    return Gemini(model, "k", url)


def _anthropic(url: str, change: JsonObject | None = None, **more: Any) -> Anthropic:
    return Anthropic("m", "k", url, **more).repaired(change or {})


WAYS = {
    "openai-strict": Way(
        OPENAI,
        partial(_openai, output="json_schema", output_strict=True, output_beside_tools=True),
        *("json_schema", "json_schema"),
    ),
    "openai-loose": Way(OPENAI, partial(_openai, output="json_schema"), "json_schema", "tool", told=True),
    "openai-strict-open": Way(
        OPENAI,
        partial(_openai, output="json_schema", output_strict=True, output_beside_tools=True),
        *("json_schema", "json_schema"),
        told=True,
        schema=OPEN,
    ),
    "openai-json": Way(OPENAI, partial(_openai, output="json_object"), "json_object", "tool", told=True),
    "openai-tool": Way(OPENAI, partial(_openai, output="tool", tool_choice="named"), "tool", "tool"),
    "openai-prompt": Way(OPENAI, partial(_openai), "prompt", "prompt", told=True),
    "gemini-2": Way(GEMINI, _gemini, "json_schema", "tool"),
    "gemini-3": Way(GEMINI, partial(_gemini, model="gemini-3-pro"), "json_schema", "json_schema"),
    "gemini-open": Way(GEMINI, _gemini, "json_object", "prompt", told=True, schema=OPEN),
    "anthropic": Way(ANTHROPIC, _anthropic, "json_schema", "json_schema"),
    "anthropic-open": Way(ANTHROPIC, _anthropic, "tool", "tool", schema=OPEN),
    "anthropic-old": Way(ANTHROPIC, partial(_anthropic, change={"native_output": False}), "tool", "tool"),
    "anthropic-thinking": Way(
        ANTHROPIC,
        partial(_anthropic, change={"native_output": False}, thinking={"type": "adaptive"}),
        *("prompt", "tool"),
        told=True,
    ),
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    assert isinstance(request.param, Way)
    return request.param


@pytest.fixture(params=[False, True], ids=["alone", "beside-tools"])
def tools(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def answer(
    api: Api, streaming: bool, text: str = ANSWER, *before: Any, name: str = FINAL_OUTPUT
) -> Callable[[Request], Reply]:
    """An answer as a model gives it: by the tool if it is offered, else as text."""

    def reply(request: Request) -> Reply:
        by_tool = name in api.tools(request.json)
        if streaming:
            half = len(text) // 2
            pieces = () if by_tool else (text[:half], text[half:])
            return api.sse(*pieces, calls=[*before, *([(name, _args(api, text))] if by_tool else ())])
        return api.calls([*before, (name, _args(api, text))]) if by_tool else api.text(text)

    return reply


def _args(api: Api, text: str) -> Any:
    return text if api is OPENAI else json.loads(text)


async def ask(llm: AgentLLM, streaming: bool, **fields: Any) -> tuple[LLMResult, list[LLMDelta]]:
    deltas: list[LLMDelta] = []
    request = LLMRequest(
        [UserMessage("Where?")], **{"system": SYSTEM, "timeout": 5.0, "output_schema": SCHEMA, **fields}
    )
    return await llm.generate(request, deltas.append if streaming else None), deltas


def shown(deltas: list[LLMDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


# ---------------------------------------------------------------- the matrix


async def test_the_answer_is_the_text_whatever_way_it_was_asked_for(
    way: Way, tools: bool, streaming: bool
) -> None:
    """R: one promise for every API: JSON as text, shown as it comes, and no call of a tool of ours."""
    async with FakeProvider(answer(way.api, streaming)) as server:
        offered = (ADD,) if tools else ()
        result, deltas = await ask(way.make(server.url), streaming, tools=offered, **way.asked)
        check_form(way, tools, server.requests[0].json)
    message = result.message
    assert json.loads(message.content) == VALUE
    assert (message.tool_calls, message.stop_reason, result.stop_reason) == ((), "stop", "stop")
    if streaming:
        assert shown(deltas) == message.content
        assert not any(isinstance(delta, ToolCallStart) for delta in deltas)


def check_form(way: Way, tools: bool, body: JsonObject) -> None:
    """Is this the body of a request in that form, and one that the API takes?"""
    form, api, schema = way.form_with(tools), way.api, way.schema or SCHEMA
    api.check(body)
    if api is OPENAI:
        native = body.get("response_format", {})
    elif api is GEMINI:
        native = body.get("generationConfig", {})
    else:
        native = body.get("output_config", {})
    kind = native.get("responseMimeType") or native.get("type") or native.get("format", {}).get("type")
    kinds = {form: {form, "application/json"} for form in ("json_schema", "json_object")}
    assert kind in kinds.get(form, {None})
    assert ("responseSchema" in native) == (form == "json_schema" and api is GEMINI)
    assert api.tools(body) == [*(["add"] if tools else []), *([FINAL_OUTPUT] if form == "tool" else [])]
    forced = form == "tool" and not tools
    assert (FINAL_OUTPUT in json.dumps(api.choice(body))) == forced
    told = way.told and form != "tool"
    assert api.system(body).startswith(SYSTEM)
    assert (json.dumps(schema, separators=(",", ":")) in api.system(body)) == told


async def test_a_strict_schema_is_closed_and_an_open_one_is_not_strict() -> None:
    """R: `strict` only where it is documented, and only for what can be said in it."""
    bodies = []
    for name in ("openai-strict", "openai-loose", "openai-strict-open"):
        way = WAYS[name]
        async with FakeProvider(answer(OPENAI, False)) as server:
            await ask(way.make(server.url), False, output_schema=way.schema or SCHEMA)
            bodies.append(server.requests[0].json["response_format"]["json_schema"])
    strict, loose, open_one = bodies
    assert strict["strict"] is True
    assert strict["schema"]["required"] == ["city", "people"]
    assert strict["schema"]["additionalProperties"] is False
    assert {"type": "null"} in strict["schema"]["properties"]["people"]["anyOf"]
    assert "strict" not in loose
    assert loose["schema"] == SCHEMA
    assert "strict" not in open_one
    assert open_one["schema"] == OPEN


# ---------------------------------------------------------------- the tool

BY_TOOL = {name: way for name, way in WAYS.items() if way.beside_tools == "tool"}


@pytest.fixture(params=BY_TOOL.values(), ids=list(BY_TOOL))
def by_tool(request: pytest.FixtureRequest) -> Way:
    assert isinstance(request.param, Way)
    return request.param


async def test_calls_beside_the_answer_are_run_and_the_answer_is_text_before_them(
    by_tool: Way, streaming: bool
) -> None:
    """Design 7.1: calls decide. An answer that came with calls was written without their results."""
    reply = answer(by_tool.api, streaming, ANSWER, ("add", {"a": 1}))
    async with FakeProvider(reply) as server:
        result, deltas = await ask(by_tool.make(server.url), streaming, tools=(ADD,), **by_tool.asked)
    assert json.loads(result.message.content) == VALUE
    assert [(call.name, call.args) for call in result.message.tool_calls] == [("add", {"a": 1})]
    assert result.stop_reason == "tool_calls" or by_tool.api is GEMINI
    if streaming:
        assert shown(deltas) == result.message.content
        assert [d.name for d in deltas if isinstance(d, ToolCallStart)] == ["add"]


async def test_a_text_before_the_call_stays_before_the_answer(streaming: bool) -> None:
    """Nothing that was shown is taken back, and the two are apart."""
    calls = [(FINAL_OUTPUT, ANSWER)]
    reply = openai_sse("Here", " it is:", calls=calls) if streaming else openai_calls(calls, "Here it is:")
    async with FakeProvider(reply) as server:
        result, deltas = await ask(WAYS["openai-tool"].make(server.url), streaming)
    assert result.message.content == f"Here it is:\n\n{ANSWER}"
    assert not streaming or shown(deltas) == result.message.content


async def test_text_that_turned_out_to_be_thoughts_is_not_part_of_the_answer() -> None:
    """A closing think tag voids what was shown; the answer begins anew."""
    reply = openai_sse("I should", " call it.</think>", calls=[(FINAL_OUTPUT, ANSWER)])
    async with FakeProvider(reply) as server:
        result, deltas = await ask(WAYS["openai-tool"].make(server.url), True)
    assert result.message.content.strip() == ANSWER
    void = max(n for n, delta in enumerate(deltas) if isinstance(delta, Attempt))
    assert shown(deltas[void:]) == result.message.content


@pytest.mark.parametrize(
    ("sent", "content"),
    [('{"city": "A', '{"city": "A'), ("", "{}"), ("{}", "{}"), ('{"a":1} and', '{"a":1} and')],
)
async def test_arguments_become_text_as_they_were_written(sent: str, content: str, streaming: bool) -> None:
    """What is wrong with an answer is judged above; no arguments are an empty object."""
    calls = [(FINAL_OUTPUT, sent)]
    reply = openai_sse(calls=calls) if streaming else openai_calls(calls)
    async with FakeProvider(reply) as server:
        result, deltas = await ask(WAYS["openai-tool"].make(server.url), streaming)
    assert (result.message.content, result.message.tool_calls) == (content, ())
    assert not streaming or shown(deltas) == content


async def test_halves_of_characters_come_together() -> None:
    """Design 4: half a surrogate pair is held back; no store and no wire takes one."""
    first, second = r'"{\"city\": \"\ud83d"', r'"\ude00\"}"'
    start = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":%s}]}}]}'
    named, more = '{"name":"final_output","arguments":%s}', '{"arguments":%s}'
    end = '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}'
    async with FakeProvider(
        stream(sse(start % (named % first), start % (more % second), end, done=True))
    ) as server:
        result, deltas = await ask(WAYS["openai-tool"].make(server.url), True)
    assert result.message.content == '{"city": "😀"}' == shown(deltas)
    assert all(delta.text.encode() for delta in deltas if isinstance(delta, TextDelta))


async def test_an_answer_that_breaks_off_is_kept_and_said_to_be_cut() -> None:
    """Design 4: `interrupted`, with what was said."""
    reply = openai_sse(calls=[(FINAL_OUTPUT, ANSWER)], finish_reason=None, done=False, cut="rst")
    async with FakeProvider(reply) as server:
        result, deltas = await ask(WAYS["openai-tool"].make(server.url), True)
    assert result.stop_reason == "interrupted"
    assert result.message.tool_calls == ()
    assert ANSWER.startswith(result.message.content)
    assert shown(deltas) == result.message.content != ""


async def test_a_tool_of_the_applications_own_keeps_its_name(streaming: bool) -> None:
    """Nothing of the application's is taken for ours."""
    own = ToolSchema(FINAL_OUTPUT, "Mine.", (), {"type": "object", "properties": {}})
    reply = answer(OPENAI, streaming, ANSWER, (FINAL_OUTPUT, {}), name=f"{FINAL_OUTPUT}_")
    async with FakeProvider(reply) as server:
        result, _ = await ask(WAYS["openai-tool"].make(server.url), streaming, tools=(own,))
        assert OPENAI.tools(server.requests[0].json) == [FINAL_OUTPUT, f"{FINAL_OUTPUT}_"]
    assert json.loads(result.message.content) == VALUE
    assert [call.name for call in result.message.tool_calls] == [FINAL_OUTPUT]


async def test_a_plain_answer_is_left_as_it_is(by_tool: Way, streaming: bool) -> None:
    """With `auto`, a model may answer in text; whether that will do is judged above."""
    api = by_tool.api
    async with FakeProvider(api.sse("Hel", "lo") if streaming else api.text("Hello")) as server:
        result, deltas = await ask(by_tool.make(server.url), streaming, tools=(ADD,), **by_tool.asked)
    assert (result.message.content, result.stop_reason) == ("Hello", "stop")
    assert not streaming or shown(deltas) == "Hello"


@pytest.mark.parametrize("choice", ["required", "add"])
async def test_a_demanded_call_is_no_answer_yet(way: Way, choice: str) -> None:
    """The tool would be a way out of the demand, and Gemini refuses both together (vercel/ai#16540)."""
    async with FakeProvider(way.api.calls([("add", {"a": 1})])) as server:
        result, _ = await ask(way.make(server.url), False, tools=(ADD,), tool_choice=choice)
        body = server.requests[0].json
    assert way.api.tools(body) == ["add"]
    assert not {"response_format", "output_config"} & body.keys()
    assert "responseMimeType" not in body.get("generationConfig", {})
    assert [call.name for call in result.message.tool_calls] == ["add"]


async def test_withheld_tools_leave_only_the_answer(by_tool: Way) -> None:
    """`tool_choice "none"`: ours is the one that may be called."""
    async with FakeProvider(answer(by_tool.api, False)) as server:
        await ask(by_tool.make(server.url), False, tools=(ADD,), tool_choice="none", **by_tool.asked)
        body = server.requests[0].json
    choice = by_tool.api.choice(body)
    only = by_tool.api.tools(body) == [FINAL_OUTPUT] and choice in ("required", None)
    assert only or FINAL_OUTPUT in json.dumps(choice)


# ---------------------------------------------------------------- a history


async def test_an_answer_goes_back_as_text_and_is_accepted(way: Way, tools: bool) -> None:
    """An answer that is asked for again stands in the history; no API finds a call without a result."""
    more: dict[str, Any] = {"tools": (ADD,) if tools else (), "memo": {}, **way.asked}
    async with FakeProvider(answer(way.api, True), answer(way.api, False)) as server:
        llm = way.make(server.url)
        first, _ = await ask(llm, True, **more)
        history: list[ChatMessage] = [UserMessage("Where?"), first.message, UserMessage("Once more.")]
        await llm.generate(LLMRequest(history, system=SYSTEM, **more))
        one, two = (request.json for request in server.requests)
    try:
        way.api.check(two)
    except Refused as why:
        pytest.fail(str(why))
    assert json.dumps("Århus 😀")[1:-1] in json.dumps(two)
    assert way.api.tools(one) == way.api.tools(two)
    assert way.api.system(one) == way.api.system(two)


async def test_another_schema_in_the_same_run_is_another_request() -> None:
    """`prepare_step` may change it; what is kept for a run is not kept for another schema."""
    async with FakeProvider(*[answer(OPENAI, False)] * 2) as server:
        llm = WAYS["openai-prompt"].make(server.url)
        memo: dict[str, Any] = {}
        for schema in (SCHEMA, OPEN):
            await ask(llm, False, output_schema=schema, memo=memo)
        one, two = (OPENAI.system(request.json) for request in server.requests)
    assert '"city"' in one
    assert '"city"' not in two


async def test_without_a_schema_nothing_is_changed(way: Way, streaming: bool) -> None:
    """The plain path stays plain."""
    async with FakeProvider(way.api.sse("hi") if streaming else way.api.text("hi")) as server:
        result, _ = await ask(way.make(server.url), streaming, output_schema=None)
        body = server.requests[0].json
    assert (way.api.system(body), way.api.tools(body)) == (SYSTEM, [])
    assert result.message.content == "hi"


# ---------------------------------------------------------------- what a server does not take

REFUSED = {
    "old model": "'response_format' of type 'json_schema' is not supported with this model.",
    "deepseek": "This response_format type is unavailable now",
    "lm studio": "'response_format.type' must be 'json_schema' or 'text'",
    "groq": "json mode cannot be combined with tool/function calling",
    "cerebras": '"tools" is incompatible with "response_format"',
    "llama.cpp": 'Either "json_schema" or "grammar" can be specified, but not both',
}


@pytest.mark.parametrize("said", REFUSED.values(), ids=REFUSED)
async def test_a_form_that_is_refused_gives_way_to_a_weaker_one(said: str) -> None:
    """Design 7.6: an error carries a repair, which the attempt loop applies, and remembers."""
    refusal = reply_json({"error": {"message": said}}, 400)
    make = partial(_openai, output="json_schema", output_strict=True)
    async with FakeProvider(refusal, refusal, answer(OPENAI, False), answer(OPENAI, False)) as server:
        llm = Attempts([make(server.url)])
        for _ in range(2):
            result, _ = await ask(llm, False)
            assert json.loads(result.message.content) == VALUE
        bodies = [request.json for request in server.requests]
    kinds = [body.get("response_format", {}).get("type") for body in bodies]
    assert kinds == ["json_schema", "json_object", None, None]
    assert all('"city"' in OPENAI.system(body) for body in bodies[1:])


async def test_a_form_that_is_refused_beside_tools_gives_way_to_the_tool() -> None:
    """The stronger form is kept for requests without tools."""
    refusal = reply_json({"error": {"message": REFUSED["cerebras"]}}, 400)
    make = partial(_openai, output="json_schema", output_beside_tools=True)
    async with FakeProvider(refusal, answer(OPENAI, False), answer(OPENAI, False)) as server:
        llm = Attempts([make(server.url)])
        await ask(llm, False, tools=(ADD,))
        await ask(llm, False)
        _, second, third = (request.json for request in server.requests)
    assert OPENAI.tools(second) == ["add", FINAL_OUTPUT]
    assert third["response_format"]["type"] == "json_schema"


async def test_gemini_gives_way_to_the_tool() -> None:
    """googleapis/python-genai#867, for a model that was thought to take both."""
    said = "Function calling with a response mime type: 'application/json' is unsupported"
    refusal = reply_json({"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}, 400)
    async with FakeProvider(refusal, answer(GEMINI, False)) as server:
        await ask(Attempts([_gemini(server.url, "gemini-3-pro")]), False, tools=(ADD,))
        assert GEMINI.tools(server.requests[1].json) == ["add", FINAL_OUTPUT]


async def test_anthropic_gives_way_to_the_tool() -> None:
    """Older models have no `output_config`."""
    said = "output_config: Extra inputs are not permitted"
    refusal = reply_json({"type": "error", "error": {"type": "invalid_request_error", "message": said}}, 400)
    async with FakeProvider(refusal, answer(ANTHROPIC, False)) as server:
        await ask(Attempts([_anthropic(server.url)]), False)
        body = server.requests[1].json
    assert "output_config" not in body
    assert body["tool_choice"] == {"type": "tool", "name": FINAL_OUTPUT}


async def test_a_tool_that_is_refused_gives_way_to_instructions() -> None:
    """A model that knows no tools can still be told."""
    refusal = reply_json({"error": {"message": "m does not support tools"}}, 400)
    async with FakeProvider(refusal, answer(OPENAI, False)) as server:
        await ask(Attempts([WAYS["openai-tool"].make(server.url)]), False)
        assert "tools" not in server.requests[1].json


def test_the_schema_of_these_tests_is_met_by_their_answer() -> None:
    Draft202012Validator(SCHEMA).validate(VALUE)
