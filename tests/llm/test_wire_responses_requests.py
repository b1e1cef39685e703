"""What goes to the Responses API, held to what it refuses. Issue 3 item 4."""

from typing import Any

import pytest

from playhead import AgentLoop, ChatMessage, LoopOptions, UserMessage
from playhead.llm.openai_responses import OpenAIResponses
from playhead.testing import FakeProvider, reply_json
from playhead.testing.responses import responses_events, responses_message
from playhead.types import (
    AssistantMessage,
    AudioPart,
    ContentPart,
    FilePart,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
)
from tests.llm.responses_wire import answer, asks, played, said, sent, thinks, tide_at
from tests.support.invariants import KEY, play
from tests.support.strict_apis import Issued, StrictProvider
from tests.support.strict_responses import check_responses

pytestmark = pytest.mark.anyio


async def test_nothing_is_stored_and_instructions_stand_apart() -> None:
    """R36: the system text is not a message; SystemMessages follow it."""
    body = await sent([SystemMessage("Be terse."), UserMessage("hi")], system="You edit videos.")
    assert body == {
        "model": "fake-model",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "You edit videos.\n\nBe terse.",
        "input": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        *((word, word) for word in ("auto", "none", "required")),
        ("tide_at", {"type": "function", "name": "tide_at"}),
    ],
)
async def test_tools_are_flat_and_can_be_forced(choice: str, wire: Any) -> None:
    """Function tools of this API have no inner object, and are strict unless told otherwise."""
    schema = ToolSchema(
        "tide_at", "Tides.", [], {"type": "object", "properties": {"port": {"type": "string"}}}
    )
    body = await sent([UserMessage("hi")], tools=[schema], tool_choice=choice)
    assert body["tool_choice"] == wire
    assert body["tools"] == [
        {
            "type": "function",
            "name": "tide_at",
            "description": "Tides.",
            "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
            "strict": False,
        }
    ]


async def test_options_of_the_request_and_of_the_model_are_sent() -> None:
    """A limit below what the API takes becomes the least that it takes."""
    body = await sent(
        [UserMessage("hi")],
        {"reasoning": {"effort": "low", "summary": "auto"}},
        max_tokens=5,
        temperature=0.0,
        tool_choice="required",
    )
    assert (body["max_output_tokens"], body["temperature"]) == (16, 0.0)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert "tool_choice" not in body


async def test_an_answer_can_have_a_schema() -> None:
    """`text.format`, held to the schema where the API's subset has it."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = (await sent([UserMessage("hi")], output_schema=schema))["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "output", True)
    assert form["schema"] == {**schema, "additionalProperties": False}
    open_ended = {"type": "object", "additionalProperties": {"type": "string"}}
    body = await sent([UserMessage("hi")], output_schema=open_ended)
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "output",
        "schema": open_ended,
        "strict": False,
    }
    assert "additionalProperties" in body["instructions"]


async def test_pictures_and_files_go_in() -> None:
    """developers.openai.com/api/docs/guides/file-inputs, vercel/ai#20300; sounds are named in words."""
    parts: list[ContentPart] = [
        TextPart("See."),
        ImagePart("data:image/png;base64,AAAA"),
        ImagePart("https://example.com/a.png"),
        FilePart("data:application/pdf;base64,BBBB", name="a.pdf"),
        FilePart("data:application/pdf;base64,BBBB"),
        FilePart("https://example.com/b.pdf"),
        FilePart("data:image/webp;base64,CCCC"),
        AudioPart("data:audio/wav;base64,DDDD", name="a.wav"),
    ]
    (message,) = (await sent([UserMessage(parts)]))["input"]
    picture = {"type": "input_image", "detail": "auto"}
    pdf = {"type": "input_file", "file_data": "data:application/pdf;base64,BBBB"}
    assert message["content"] == [
        {"type": "input_text", "text": "See."},
        {**picture, "image_url": "data:image/png;base64,AAAA"},
        {**picture, "image_url": "https://example.com/a.png"},
        {**pdf, "filename": "a.pdf"},
        {**pdf, "filename": "file.pdf"},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
        {**picture, "image_url": "data:image/webp;base64,CCCC"},
        {"type": "input_text", "text": "(A sound that cannot be shown to you: a.wav.)"},
    ]


@pytest.mark.parametrize(
    "history",
    [
        [],
        [SystemMessage("Be terse.")],
        [UserMessage("")],
        [UserMessage([])],
        [UserMessage("hi"), AssistantMessage("hello")],
        [AssistantMessage("", provider_metadata={"gemini": {"parts": []}}), UserMessage("hi")],
    ],
)
async def test_a_request_has_something_to_answer(history: list[ChatMessage]) -> None:
    """Whatever the log holds, the request is valid."""
    body = await sent(history)
    assert body["input"][-1]["role"] == "user"


async def test_long_and_foreign_ids_and_names_are_made_fit() -> None:
    """decolua/9router#393: a call_id has 64 characters at most, and the pair stays a pair."""
    id, name = "functions.read:" + "x" * 80, "files.read"
    history: list[ChatMessage] = [
        UserMessage("go"),
        AssistantMessage("", [ToolCall(id, name, {})]),
        ToolMessage(id, name, ""),
    ]
    body = await sent(history, tools=[ToolSchema(name, "Read.", [], {"anyOf": [{"properties": {"a": {}}}]})])
    call, output = body["input"][1:]
    assert call["call_id"] == output["call_id"]
    assert call["name"] == body["tools"][0]["name"] != name
    assert output["output"] == "(no output)"
    result, _ = await answer(
        responses_message(asks(name=call["name"])), False, tools=[ToolSchema(name, "Read.", [], {})]
    )
    assert result.message.tool_calls[0].name == name


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        (
            {
                "code": "invalid_encrypted_content",
                "message": "The encrypted content gAAA could not be verified.",
            },
            "E1",
        ),
        ({"code": None, "message": "The encrypted content gAAA could not be verified."}, "E1"),
        ({"message": "Item with id 'rs_1' not found. Items are not persisted when `store` is false."}, "E1"),
        ({"message": "Item 'rs_1' was provided without its required following item."}, "E1"),
        ({"message": "Encrypted content is not supported with this model."}, "include"),
        ({"message": "Unsupported parameter: 'include'."}, "include"),
        ({"message": "Unsupported parameter: 'temperature' is not supported."}, "temperature"),
    ],
)
async def test_what_a_server_refuses_is_left_out_from_then_on(refusal: Any, gone: str) -> None:
    """The kind of Q098: a repair that the attempt loop applies once, not a conversation that is lost."""
    no = reply_json({"error": {"type": "invalid_request_error", **refusal}}, 400)
    first = [thinks("plan"), asks()]
    strict = StrictProvider(
        lambda body: check_responses(body, Issued(first)),
        played(*responses_events(*first)),
        no,
        played(*responses_events(said("done"))),
        played(*responses_events(said("more"))),
    )
    async with FakeProvider(default=strict) as server:
        llm = OpenAIResponses("fake-model", KEY, server.url)
        loop = AgentLoop(llm, tools=[tide_at], options=LoopOptions(temperature=0.5))
        seen = await play(loop, "go")
        seen = await play(loop, [*seen.messages, UserMessage("on")])
    assert seen.result.text == "more"
    assert [gone in request.body.decode() for request in server.requests] == [
        gone != "E1",
        True,
        False,
        False,
    ]
