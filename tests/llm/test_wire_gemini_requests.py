"""What Gemini's native API was publicly reported to refuse in a request. Wire cases G.

Each request goes over a real socket to a checker of what the API refuses.
"""

import json
from typing import Any

import pytest

from playhead import ChatMessage, UserMessage
from playhead.llm.gemini import Gemini
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
from tests.llm.gemini_wire import called, chunk, reply_of, sent, turn_of
from tests.support.invariants import KEY

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stream", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- turns


def said(*texts: str) -> list[ChatMessage]:
    """User and model by turns: `u:` begins a user's text, `m:` a model's."""
    made = {"u": UserMessage, "m": AssistantMessage}
    return [made[text[0]](text[2:]) for text in texts]


TURNS = [
    (["u:a", "u:b", "m:c"], ["user a|b", "model c", "user Go on."]),
    (["u:a", "m:b", "m:c", "u:d"], ["user a", "model b|c", "user d"]),
    (["m:a", "u:b"], ["user Go on.", "model a", "user b"]),
    (["m:a", "m:b", "m:c"], ["user Go on.", "model a|b|c", "user Go on."]),
    (["u:", "m:a", "u: \n", "m:b", "u:c"], None),
    (["u:a", "m:", "u:b"], ["user a|b"]),
    ([], ["user Go on."]),
]


@pytest.mark.parametrize(("texts", "expected"), TURNS, ids=lambda value: "-".join(value or ["x"]))
async def test_q140_contents_of_one_role_are_one(texts: list[str], expected: list[str] | None) -> None:
    """Q140, Q142, Q160: adjacent ones are merged, blank ones leave no empty part."""
    body = await sent(said(*texts))
    contents = [f"{c['role']} {'|'.join(p['text'] for p in c['parts'])}" for c in body["contents"]]
    if expected is not None:
        assert contents == expected
    assert [c["role"] for c in body["contents"]] == ["user", "model"] * (len(contents) // 2) + ["user"]


async def test_q140_a_reply_and_a_call_behind_it_are_one_content() -> None:
    """Q140: a call is refused behind a content of the model, and taken within it."""
    log = [*said("u:a", "m:b"), *turn_of(1)[1:]]
    body = await sent(log)
    assert [c["role"] for c in body["contents"]] == ["user", "model", "user"]
    assert [next(iter(p)) for p in body["contents"][1]["parts"]] == ["text", "functionCall"]


@pytest.mark.parametrize("parts", [[], [TextPart("")], [TextPart(" "), TextPart("")]])
async def test_q142_a_user_message_without_anything_is_never_empty(parts: list[TextPart]) -> None:
    """Q142: neither an empty part nor an empty list of parts."""
    body = await sent([UserMessage("a"), AssistantMessage("b"), UserMessage(parts)])
    assert body["contents"][-1]["parts"][0]["text"].strip()


@pytest.mark.parametrize(
    ("system", "messages", "expected"),
    [
        ("", said("u:a"), None),
        (" \n", said("u:a"), None),
        ("x", [], "x"),
        (None, said("u:a"), None),
        ("é", said("u:a"), "é"),
    ],
)
async def test_q143_instructions(
    system: str | None, messages: list[ChatMessage], expected: str | None
) -> None:
    """Q143: left out when blank; `contents` is never empty."""
    body = await sent(messages, system=system)
    assert body.get("systemInstruction", {"parts": [{"text": None}]})["parts"][0]["text"] == expected
    assert body["contents"]


# ---------------------------------------------------------------- media


async def test_pictures_sounds_and_files_go_in() -> None:
    """Files and images: data inline, addresses as they are, the kind from whatever says it."""
    parts: list[ContentPart] = [
        ImagePart("data:image/png;base64,AAAA"),
        AudioPart("data:;base64,BBBB", "audio/wav"),
        FilePart("data:text/plain;charset=utf-8,h%C3%A9", name="a.txt"),
        FilePart("https://files.example/report.pdf"),
        ImagePart("https://files.example/x?y=1", "image/webp"),
        FilePart("https://files.example/unknown"),
        TextPart("look"),
    ]
    body = await sent([UserMessage(parts)])
    assert body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "BBBB"}},
        {"inlineData": {"mimeType": "text/plain", "data": "aMOp"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://files.example/report.pdf"}},
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://files.example/x?y=1"}},
        {"fileData": {"fileUri": "https://files.example/unknown"}},
        {"text": "look"},
    ]


# ---------------------------------------------------------------- tools

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}, "at": {"type": ["number", "null"]}}}
SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"a": {"$ref": "#/$defs/T", "title": "t"}}, "$defs": {"T": NODE}},
    {"$ref": "#/$defs/T", "$defs": {"T": NODE}},
    {"properties": {"a": {"type": ["string", "null"]}, "b": {"type": ["string", "integer"]}}},
    {"properties": {"a": {"type": "number", "exclusiveMinimum": 0, "format": "odd"}, "b": {"type": "array"}}},
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {"enum": [1, "x"]}}},
    {"type": "object", "properties": {}},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "f"])
async def test_q145_to_q148_schemas_of_tools(schema: dict[str, Any], choice: str | None) -> None:
    """Q145, Q146, Q148: references, several types, no parameters; also for a forced call."""
    tool = ToolSchema("f", "F.", [], schema)
    body = await sent([UserMessage("go")], tools=[tool], tool_choice=choice)
    (declared,) = body["tools"][0]["functionDeclarations"]
    has_properties = len(schema.get("properties", {})) + ("$ref" in schema) > 0
    assert ("parameters" in declared) == (has_properties or choice in ("required", "f"))


@pytest.mark.parametrize("name", ["2fa", "-x", "files.read", "ünï", "x" * 200, "a b", ""])
async def test_names_are_rewritten_and_read_back(name: str, form: str) -> None:
    """kaitranntt/ccs#25: a name begins with a letter or `_`; the real one is told to the loop."""
    tool = ToolSchema(name or "files.read", "F.", [], {})
    log: list[ChatMessage] = [
        UserMessage("go"),
        AssistantMessage("", [ToolCall("t", name, {})]),
        ToolMessage("t", name, "1"),
    ]
    body = await sent(log, tools=[tool], tool_choice=tool.name)
    wire = body["tools"][0]["functionDeclarations"][0]["name"]
    async with FakeProvider(reply_of([chunk(called(wire), finish="STOP")], form)) as server:
        llm = Gemini("m", KEY, server.url)
        emit = None if form != "stream" else lambda _: None
        result = await llm.generate(LLMRequest([UserMessage("go")], tools=[tool]), emit)
    assert [c.name for c in result.message.tool_calls] == [tool.name]
