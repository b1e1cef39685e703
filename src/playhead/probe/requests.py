"""The small requests that an endpoint is asked. Each is made anew: adapters keep bytes in messages."""

from collections.abc import Sequence
from typing import Any

from playhead.encode import encode_result
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    ContentPart,
    ImagePart,
    JsonObject,
    LLMRequest,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolParameter,
    ToolSchema,
    UserMessage,
)

# A loaded server may take long to its first byte, or still have to load the model.
TIMEOUT = 120.0
# Enough for a word; enough for a call, also behind some reasoning; too little for a call.
A_WORD, A_CALL, TOO_LITTLE = 64, 512, 16
# Short and of letters and digits: a server that refuses this one refuses all.
PLAIN_ID = "probe0001"
SIGNS_ID = "run7.step2:call/1"
LONG_ID = "functions.probe_lookup:0/" + "x" * 64

LOOKUP = ToolSchema(
    "probe_lookup",
    "Look up the code of one city.",
    [ToolParameter("city", "string", True)],
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
NOW = ToolSchema(
    "probe_now", "Tell the time. It takes no arguments.", [], {"type": "object", "properties": {}}
)
SAVE = ToolSchema(
    "probe_save",
    "Save a text.",
    [ToolParameter("text", "string", True)],
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
_RICH: JsonObject = {
    "type": "object",
    "properties": {
        "place": {"$ref": "#/$defs/Place"},
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "unit": {"const": "metric"},
        "depth": {"type": ["integer", "null"], "exclusiveMinimum": 0},
    },
    "required": ["place"],
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}
RICH = ToolSchema(
    "probe_forecast", "Tell the weather of a place.", [ToolParameter("place", "object", True)], _RICH
)
# A red square of 8 by 8 pixels.
_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9h"
    "AAAAAElFTkSuQmCC"
)


def request(
    messages: str | Sequence[ChatMessage],
    tools: Sequence[ToolSchema] = (),
    *,
    tool_choice: str | None = None,
    max_tokens: int = A_WORD,
) -> LLMRequest:
    """A request of this kind: few tokens, plain defaults."""
    if isinstance(messages, str):
        messages = [UserMessage(content=messages)]
    return LLMRequest(
        messages, tools, tool_choice=tool_choice, max_tokens=max_tokens, timeout=TIMEOUT, memo={}
    )


def word() -> LLMRequest:
    """The simplest of all."""
    return request("Reply with the single word: ok")


def called(
    *ids: str, said: str = "Let me look.", result: Any = "N-47", answered: bool = True
) -> list[ChatMessage]:
    """A history with a call for each id and, unless the run was stopped before, its result."""
    calls = [ToolCall(id, LOOKUP.name, {"city": "Oslo"}) for id in ids or (PLAIN_ID,)]
    text = encode_result(result).text
    results = [ToolMessage(content=text, tool_call_id=c.id, tool_name=c.name) for c in calls if answered]
    question = UserMessage(content="What is the code of Oslo?")
    return [question, AssistantMessage(content=said, tool_calls=calls), *results]


def after_calls(*ids: str, said: str = "Let me look.", result: Any = "N-47") -> LLMRequest:
    """What comes next after calls that were answered."""
    return request(called(*ids, said=said, result=result), [LOOKUP])


def odd_result() -> LLMRequest:
    """A result with letters of other scripts and a NUL, as it leaves the encoder."""
    return after_calls(result="Gr\u00fc\u00dfe \u65e5\u672c \U0001f600 \0 end")


def foreign() -> LLMRequest:
    """A history that another provider made: its reasoning and its opaque data come along."""
    history = called()
    kept = {"another-dialect": {"parts": [{"text": "hm", "thoughtSignature": "c2lnbmF0dXJl"}]}}
    first = AssistantMessage(content="Hello.", reasoning="The user greets.", provider_metadata=kept)
    return request([UserMessage(content="Hello"), first, *history], [LOOKUP])


def stopped() -> LLMRequest:
    """A run that was stopped before its call had a result, and what was said then."""
    history = called(answered=False)
    return request([*history, UserMessage(content="Never mind. Reply with the single word: ok")], [LOOKUP])


def twice_asked() -> LLMRequest:
    """Two user messages in a row."""
    return request([UserMessage(content="I have a question."), *word().messages])


def half_said() -> LLMRequest:
    """A history that ends with half an answer."""
    count = UserMessage(content="Count from one to five in words.")
    return request([count, AssistantMessage(content="one, two,")])


def picture() -> LLMRequest:
    """A picture that a tool returned, as it is handed on: behind the result, by the user."""
    parts: list[ContentPart] = [
        TextPart("This is the picture. Which colour is it?"),
        ImagePart(_PICTURE, "image/png"),
    ]
    answer = AssistantMessage(content="Here it comes.")
    return request([*called(result="A picture."), answer, UserMessage(content=parts)], [LOOKUP])
