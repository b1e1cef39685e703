"""What the Messages API was publicly reported to refuse in a request. Wire cases H, and E where it is strict.

Each request goes over a real socket to a checker of what the API refuses.
"""

import base64
import json
from typing import Any

import pytest

from playhead import AgentLoop, SystemMessage, UserMessage, connect
from playhead.events import TextDelta
from playhead.llm.anthropic import DEFAULT_MAX_TOKENS, Anthropic
from playhead.testing import FakeProvider
from playhead.types import (
    AssistantMessage,
    AudioPart,
    ContentPart,
    FilePart,
    ImagePart,
    LLMRequest,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
)
from tests.llm.anthropic_wire import (
    DONE,
    Log,
    asks,
    delta,
    events,
    run,
    sent,
    shape,
    started,
    stopped,
    text,
    thinks,
    turn,
)
from tests.support.invariants import KEY, play

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stream", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- turns


async def test_q157_results_come_first_and_together() -> None:
    """Q157: in the very next message, in call order, before what the user says."""
    calls = [ToolCall("t1", "f", {}), ToolCall("t2", "g", {})]
    log: Log = [
        UserMessage("go"),
        AssistantMessage("", calls),
        ToolMessage("t2", "g", "2"),
        UserMessage("wait"),
        ToolMessage("t1", "f", "1", True),
        UserMessage([TextPart("look"), ImagePart("data:image/png;base64,AAAA")]),
    ]
    body = await sent(log)
    assert shape(body)[2] == ["user", "tool_result", "tool_result", "text", "text", "image"]
    results = body["messages"][2]["content"][:2]
    assert [(r["tool_use_id"], r["content"], r.get("is_error")) for r in results] == [
        ("t1", "1", True),
        ("t2", "2", None),
    ]


@pytest.mark.parametrize("calls", [1, 2])
async def test_q157_a_message_while_tools_run_waits_behind_the_results(form: str, calls: int) -> None:
    """Q185: never between a call and its result, in a history that grows step by step."""
    asked = [asks("now", id=f"t{n}") for n in range(calls)]
    seen = await run(turn(*asked), DONE, turn(text("again")), form=form, then="thanks")
    assert seen.shape() == [
        ["user", "text"],
        ["assistant", *["tool_use"] * calls],
        ["user", *["tool_result"] * calls],
        ["assistant", "text"],
        ["user", "text"],
    ]


@pytest.mark.parametrize("blank", ["", "\n", " \t ", "\u00a0"])
async def test_q158_blank_text_never_goes_out(blank: str) -> None:
    """Q158: not of a user, of a model, of a tool, or of the instructions."""
    log: Log = [
        UserMessage(blank),
        AssistantMessage(blank, [ToolCall("t", "f", {})]),
        ToolMessage("t", "f", blank),
        UserMessage([TextPart(blank), TextPart("hi"), TextPart(blank)]),
        AssistantMessage(blank, provider_metadata={"gemini": {"parts": []}}),
        UserMessage([TextPart(blank)]),
    ]
    body = await sent(log, system=blank)
    assert "system" not in body
    assert shape(body) == [
        ["user", "text"],
        ["assistant", "tool_use"],
        ["user", "tool_result", "text"],
        ["assistant", "text"],
        ["user", "text"],
    ]


@pytest.mark.parametrize("blank", ["", "\n", "\n\n"])
async def test_q158_blank_text_never_comes_in(form: str, blank: str) -> None:
    """Q158: the API sends such blocks, too."""
    seen = await run(turn(text(blank), asks("now")), DONE, form=form)
    assert [m.content for m in seen.played.messages if m.role == "assistant"] == ["", "done"]
    assert seen.shape()[1] == ["assistant", "tool_use"]
    shown = "".join(e.text for e in seen.played.events if isinstance(e, TextDelta))
    assert shown == "done"


async def test_q158_white_space_inside_a_text_is_kept() -> None:
    """Q158: only what stays blank is dropped."""
    pieces = ["\n", "\n", "Hello", "\n", " ", "you", "\n"]
    reply = events(started(text("")), *(delta("text", text=piece) for piece in pieces), stopped())
    seen = await run(reply)
    assert seen.played.result.text == "\n\nHello\n you\n"


TURNS = [
    (["m:summary", "u:go"], ["user", "assistant", "user"]),
    (["u:a", "m:b"], ["user", "assistant", "user"]),
    (["u:a", "u:b"], ["user"]),
    (["u:a", "m:b", "m:c", "u:d"], ["user", "assistant", "user", "assistant", "user"]),
    (["m:a"], ["user", "assistant", "user"]),
    (["u:a", "m:", "u:b"], ["user"]),
    ([], ["user"]),
]


@pytest.mark.parametrize(("texts", "roles"), TURNS, ids=lambda value: "-".join(value or ["x"]))
async def test_q160_the_first_and_the_last_message_are_the_users(texts: list[str], roles: list[str]) -> None:
    """Q160, Q101: a visible turn is put before, behind and between, never a blank one."""
    made = {"u": UserMessage, "m": AssistantMessage}
    body = await sent([made[t[0]](t[2:]) for t in texts])
    assert [m["role"] for m in body["messages"]] == roles


# ---------------------------------------------------------------- what is asked


@pytest.mark.parametrize("id", ["functions.search:0", "run7.step2.call-1", "é", "a b", "x" * 300, "call_1"])
async def test_q092_ids_of_another_vendor(id: str) -> None:
    """Q092: in the alphabet, paired."""
    log: Log = [UserMessage("go"), AssistantMessage("", [ToolCall(id, "f", {})]), ToolMessage(id, "f", "1")]
    body = await sent(log)
    call, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert call["id"] == result["tool_use_id"]
    assert (call["id"] == id) == (id == "call_1")


@pytest.mark.parametrize("name", ["", "files.read", "ünïcode", "x" * 200, "a b"])
async def test_q094_names_are_rewritten_and_read_back(name: str, form: str) -> None:
    """Q094: a name the API would refuse goes by another on the wire, both ways."""
    wanted = ToolSchema(name or "files.read", "F.", [], {"type": "object", "properties": {}})
    log: Log = [
        UserMessage("go"),
        AssistantMessage("", [ToolCall("t", name, {})]),
        ToolMessage("t", name, "1"),
    ]
    body = await sent(log, tools=[wanted])
    wire = body["tools"][0]["name"]
    async with FakeProvider(turn(asks(wire)).reply(form)) as server:
        result = await Anthropic("m", KEY, server.url).generate(
            LLMRequest([UserMessage("go")], tools=[wanted]), (lambda _: None) if form == "stream" else None
        )
    assert [c.name for c in result.message.tool_calls] == [wanted.name]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("f", {"type": "tool", "name": "f"}),
    ],
)
async def test_q163_the_choice_of_a_tool(choice: str | None, expected: Any) -> None:
    """Q163: nothing beside it; none at all without tools."""
    wanted = ToolSchema("f", "F.", [], {"type": "object", "properties": {}})
    body = await sent([UserMessage("go")], tools=[wanted], tool_choice=choice)
    assert body.get("tool_choice") == expected
    assert "tool_choice" not in await sent([UserMessage("go")], tool_choice=choice)


async def test_q095_calls_in_the_history_need_tools_in_the_request() -> None:
    """Q095: a tool that cannot be called is declared."""
    log: Log = [UserMessage("go"), AssistantMessage("", [ToolCall("t", "f", {})]), ToolMessage("t", "f", "1")]
    body = await sent(log)
    assert [t["name"] for t in body["tools"]] == ["no_tool"]
    assert body["tool_choice"] == {"type": "none"}


async def test_instructions_go_to_the_top_and_are_marked() -> None:
    """Cache: the tools, the instructions and the last message; nothing with `cache=False`."""
    wanted = [ToolSchema(n, "F.", [], {"type": "object", "properties": {}}) for n in ("f", "g")]
    log: Log = [SystemMessage("B"), UserMessage("a"), AssistantMessage("b"), UserMessage("c")]
    body = await sent(log, system="A", tools=wanted)
    assert [(b["text"], "cache_control" in b) for b in body["system"]] == [("A\n\nB", True)]
    assert ["cache_control" in t for t in body["tools"]] == [False, True]
    assert ["cache_control" in m["content"][-1] for m in body["messages"]] == [False, False, True]
    plain = await sent(log, llm={"cache": False}, system="A", tools=wanted)
    assert "cache_control" not in json.dumps(plain)


async def test_the_mark_moves_on_with_the_history(form: str) -> None:
    """Cache: one message is marked in each request, always the last; what was before stays as it was."""
    seen = await run(turn(asks("now")), turn(asks("now", id="t2")), DONE, form=form)
    for body in seen.bodies:
        marked = [i for i, m in enumerate(body["messages"]) if "cache_control" in json.dumps(m)]
        assert marked == [len(body["messages"]) - 1]


async def test_limits(form: str) -> None:
    """S14: a limit is always sent; the request's own if it has one."""
    assert (await sent([UserMessage("a")]))["max_tokens"] == DEFAULT_MAX_TOKENS
    body = await sent([UserMessage("a")], max_tokens=7, temperature=0.0)
    assert (body["max_tokens"], body["temperature"]) == (7, 0.0)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "at": {"type": "number", "minimum": 1, "description": "When."},
        "who": {"oneOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]},
        "mail": {"type": "string", "format": "email"},
        "odd": {"type": "string", "format": "odd"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2},
    },
    "required": ["at"],
    "additionalProperties": True,
    "$defs": {"P": {"properties": {"name": {"type": "string"}}}},
}


async def test_the_shape_of_an_answer_is_asked_for() -> None:
    """Structured output: closed objects; limits that are not taken are told in words."""
    body = await sent([UserMessage("a")], output_schema=SCHEMA)
    assert body["output_config"]["format"]["type"] == "json_schema"
    schema = body["output_config"]["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["P"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "additionalProperties": False,
    }
    assert schema["properties"]["at"] == {"type": "number", "description": "When.\n\n(minimum: 1)"}
    assert schema["properties"]["who"] == {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}
    assert schema["properties"]["mail"] == {"type": "string", "format": "email"}
    assert schema["properties"]["odd"] == {"type": "string", "description": "(format: odd)"}
    assert schema["properties"]["tags"]["description"] == "(minItems: 2)"


@pytest.mark.parametrize(
    "schema", [{"anyOf": [{"required": ["a"]}]}, {"$ref": "#/$defs/T", "$defs": {"T": SCHEMA}}, {}]
)
async def test_the_input_of_a_tool_is_an_object(schema: dict[str, Any]) -> None:
    """anthropics/claude-code#40075: no choice and no reference at the top."""
    body = await sent([UserMessage("a")], tools=[ToolSchema("f", "F.", [], schema)])
    assert body["tools"][0]["input_schema"]["type"] == "object"


async def test_pictures_and_documents_go_in() -> None:
    """Images and PDFs by data and by address, text as a document; what is not taken is said, not lost."""
    notes = base64.b64encode(b"h\xc3\xa9").decode()
    parts: list[ContentPart] = [
        ImagePart("data:image/png;base64,AAAA"),
        ImagePart("https://files.example/x.jpg"),
        FilePart("data:application/pdf;base64,BBBB", name="r.pdf"),
        FilePart("https://files.example/r.pdf"),
        FilePart(f"data:text/csv;base64,{notes}", name="n.csv"),
        FilePart("data:image/jpg;base64,CCCC"),
        AudioPart("data:audio/wav;base64,DDDD", name="a.wav"),
        ImagePart("data:image/tiff;base64,EEEE"),
        FilePart("data:application/zip;base64,//79", name="z.zip"),
    ]
    body = await sent([UserMessage(parts)], llm={"cache": False})
    data = {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://files.example/x.jpg"}},
        {"type": "document", "source": data, "title": "r.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://files.example/r.pdf"}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "hé"},
            "title": "n.csv",
        },
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "CCCC"}},
        {"type": "text", "text": "(A sound that cannot be shown to you: a.wav.)"},
        {"type": "text", "text": "(A picture that cannot be shown to you: image/tiff.)"},
        {"type": "text", "text": "(A file that cannot be shown to you: z.zip.)"},
    ]


BUDGET = {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("thinking", "choice", "foreign", "expected"),
    [
        (None, None, False, False),
        (BUDGET, None, False, True),
        (BUDGET, "auto", False, True),
        (BUDGET, "required", False, False),
        (BUDGET, "f", False, False),
        (BUDGET, None, True, False),
        ({"type": "adaptive"}, None, True, True),
        ({"type": "adaptive"}, "required", False, False),
    ],
)
async def test_the_thinking_field(thinking: Any, choice: str | None, foreign: bool, expected: bool) -> None:
    """Sent as it is given, except where the API takes none: a forced tool, an open round without it."""
    log: Log = [UserMessage("go")]
    if foreign:
        log += [
            AssistantMessage("", [ToolCall("t", "f", {})], reasoning="FOREIGN"),
            ToolMessage("t", "f", "1"),
        ]
    wanted = ToolSchema("f", "F.", [], {"type": "object", "properties": {}})
    body = await sent(log, llm={"thinking": thinking}, tools=[wanted], tool_choice=choice)
    assert body.get("thinking") == (thinking if expected else None)
    assert "FOREIGN" not in json.dumps(body)


async def test_a_budget_stays_on_within_its_own_round(form: str) -> None:
    """The open round began with the model's own thinking, so it goes on."""
    seen = await run(turn(thinks(), asks("now")), DONE, form=form, thinking=BUDGET)
    assert [body["thinking"] for body in seen.bodies] == [BUDGET, BUDGET]


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/messages", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/anthropic/v1/", "/anthropic/v1/messages"),
    ],
)
async def test_q122_the_address_is_joined_once(base: str, path: str) -> None:
    """Q122, Q121: and the key is in its header only."""
    async with FakeProvider(DONE.reply("stream")) as server:
        await play(AgentLoop(Anthropic("m", KEY, server.url + base)), "hi")
    request = server.requests[0]
    assert (request.method, request.path, request.query) == ("POST", path, {})
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in request.headers


@pytest.mark.parametrize("given", [False, True])
async def test_the_base_url_of_the_environment_is_honoured(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41, R42: from the environment, or from code, which wins."""
    async with FakeProvider(DONE.reply("whole")) as server:
        settings = {"PROVIDER": "anthropic", "MODEL": "m", "API_KEY": KEY}
        settings["BASE_URL"] = "http://127.0.0.1:9" if given else server.url
        for name, value in settings.items():
            monkeypatch.setenv(f"LLM_{name}", value)
        llm = connect(base_url=server.url if given else None)
        assert (await llm.generate(LLMRequest([UserMessage("hi")]))).message.content == "done"
