"""What stands in a request for what an API does not take: shared by the dialects with strict turns."""

from collections.abc import Callable
from typing import Any, TypeVar

from playhead.types import LLMRequest, ToolSchema

T = TypeVar("T")

GO_ON = "Go on."
"""The user's turn where an API wants one and nobody said anything."""
EMPTY_MESSAGE = "(empty message)"
"""A user message without any text: blank text is refused, and so is no text."""
NO_TEXT = "(no text)"
"""A reply of which only opaque data is left, or none."""
NO_OUTPUT = "(no output)"
"""The result of a tool that returned nothing."""
NO_TOOL = ToolSchema("no_tool", "Does nothing. Do not call it.", [], {"type": "object", "properties": {}})
"""Declared where a history holds calls and the request offers no tools."""


def not_shown(what: str, name: str) -> str:
    """What stands for a part that no model of an API takes, so that the model can say so."""
    return f"(A {what} that cannot be shown to you: {name or 'unnamed'}.)"


def prepared(request: LLMRequest, name: str, key: Any, make: Callable[[], T]) -> T:
    """Return what `make` made for this run, made again once the tools, the schema or `key` change."""
    held: tuple[Any, Any, Any, T] | None = request.memo.get(name)
    # What is known by its identity is kept beside it, so that nothing else can have that identity.
    if held is None or held[0] is not request.tools or held[1] is not request.output_schema or held[2] != key:
        held = request.memo[name] = (request.tools, request.output_schema, key, make())
    return held[3]
