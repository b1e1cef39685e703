"""The shared shapes: one module, one wire form. Requirements F, S9, S15, S16; design 4."""

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import playhead
from playhead import events, types
from playhead.types import (
    AgentContext,
    AgentRunResult,
    AgentStep,
    AssistantMessage,
    AudioPart,
    CallAnswer,
    CallRecord,
    ChatMessage,
    FilePart,
    ImagePart,
    LLMRequest,
    LLMResult,
    MediaAsset,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolParameter,
    ToolResult,
    ToolSchema,
    Usage,
    UserMessage,
)

PACKAGE = Path(playhead.__file__).parent
CALL = ToolCall("c1", "seek", {"b": 1, "a": [None, 2.5]})
ASKS = AssistantMessage("", [CALL], "why", "tool_calls", {"x": {"s": "é"}}, id="m", timestamp=5)
STEP = AgentStep(1, ASKS, [ToolMessage("c1", "seek", "ok", id="t", timestamp=6)], "p", "m", 3, 4, 5)
VALUES: list[tuple[Any, Any]] = [
    (SystemMessage("be terse"), ChatMessage),
    (UserMessage("hi"), ChatMessage),
    (UserMessage([TextPart("a"), ImagePart("data:,"), AudioPart("data:,"), FilePart("data:,")]), ChatMessage),
    (ASKS, ChatMessage),
    (ToolMessage("c1", "seek", "no", True), ChatMessage),
    (ToolResult("c1", "seek", {"at": 1}, None, '{"at":1}'), ToolResult),
    (ToolSchema("seek", "Go.", [ToolParameter("to", "number", True)], {"type": "object"}), ToolSchema),
    (AgentContext("p", "s", [MediaAsset("a", "a.mp4", "video", 1.5)], 12.5), AgentContext),
    (CallAnswer("c1", True, {"to": 2}, "ok"), CallAnswer),
    (CallRecord("chat", "p", "m", "success", 1), CallRecord),
    (LLMResult(ASKS, "tool_calls", Usage(1, 2, 3, 4, 5), "p", "m", 9), LLMResult),
    (STEP, AgentStep),
    (AgentRunResult("turn", "final", "x", [STEP], "stop", usage=Usage(1)), AgentRunResult),
]


@pytest.mark.parametrize(("value", "type"), VALUES, ids=lambda v: getattr(v, "__name__", type(v).__name__))
def test_each_shape_is_the_same_after_its_wire_form(value: Any, type: Any) -> None:
    """R33, S9, S15, S16: recorded values and wire forms are one JSON, and lose nothing."""
    wire = msgspec.json.encode(value)
    assert msgspec.json.decode(wire, type=type) == value
    keys = [key for key in json.loads(wire) if not key.islower() or "_" in key]
    assert all("_" not in key for key in keys)


def test_no_other_module_defines_a_shared_shape() -> None:
    """R33, R34: one module is the source of truth."""
    shared = {name for name, value in vars(types).items() if isinstance(value, type)} - {"Any"}
    shared = {name for name in shared if getattr(types, name).__module__ == "playhead.types"}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "types.py" or path.parent != PACKAGE:
            defined = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)}
            assert not {name for name in defined & shared if not name.startswith("_")} - {"_Message"}, path


NAMES = (
    *("ChatMessage", "ToolCall", "ToolResult", "ExecutionState", "ExecutionStatus", "AgentContext"),
    *("ToolDefinition", "AgentMessage", "ToolSchema", "ToolParameter", "AgentStep", "AgentRunResult"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_the_specifications_are_importable(name: str) -> None:
    """R33, R34, S15, S16: from the package as from its module."""
    assert getattr(playhead, name) is getattr(types, name)


def test_each_message_and_event_names_its_kind_as_its_wire_tag_does() -> None:
    """Design 4: a readable `role` and `type`."""
    for cls in (SystemMessage, UserMessage, AssistantMessage, ToolMessage):
        assert cls.role == cls.__struct_config__.tag
    told = [c for c in vars(events).values() if isinstance(c, type) and issubclass(c, events._Event)]
    assert len(told) > 12
    for event in told:
        if event is not events._Event:
            assert event.type == event.__struct_config__.tag  # type: ignore[attr-defined]


def test_what_must_always_be_on_the_wire_is() -> None:
    """Design 4: `required` of a parameter and `content` of an answer, whatever their value."""
    assert json.loads(msgspec.json.encode(ToolParameter("k", "string", False)))["required"] is False
    assert json.loads(msgspec.json.encode(AssistantMessage("")))["content"] == ""


def test_ids_and_timestamps_are_filled_in_when_absent() -> None:
    """R4, design 4: also for messages that are decoded."""
    first, second = (msgspec.json.decode(b'{"role":"user","content":"x"}', type=ChatMessage) for _ in "ab")
    assert first.id != second.id
    assert first.timestamp > 1_700_000_000_000


def test_shapes_are_frozen() -> None:
    """R33: what was said is not changed afterwards."""
    for value in (ASKS, CALL, Usage(), LLMRequest([])):
        with pytest.raises(AttributeError, match="immutable"):
            value.id = "other"  # type: ignore[union-attr,misc]


def test_arguments_keep_the_order_of_their_keys() -> None:
    """Design 4: args are JSON text, never a type that reorders keys."""
    assert list(msgspec.json.decode(msgspec.json.encode(CALL), type=ToolCall).args) == ["b", "a"]


def test_wire_bytes_kept_in_a_message_are_not_part_of_it() -> None:
    """Design 4, "encode once": neither encoded, compared nor copied."""
    plain, holding = (AssistantMessage("x", id="m", timestamp=1) for _ in "ab")
    holding.__dict__["dialect"] = b"bytes"
    assert holding == plain
    assert b"bytes" not in msgspec.json.encode(holding)
    assert msgspec.structs.replace(holding, content="y").__dict__ == {}
