"""The tools of one registry, and some more beside them."""

from collections import ChainMap
from collections.abc import Iterable
from typing import Any

from playhead.tools.registry import ToolRegistry
from playhead.types import ToolDefinition, ToolSchema


class JoinedTools(ToolRegistry):
    """The tools of another registry and some of its own. What that is given later is here too.

    Args:
        inner: the tools.
        more: those beside them; none of their names may be in `inner`.
    """

    def __init__(self, inner: ToolRegistry, more: Iterable[ToolDefinition[..., Any]]) -> None:
        super().__init__()
        own = ToolRegistry(more)
        self.result_limit = inner.result_limit
        self._inner = inner
        self._items = ChainMap(own._items, inner._items)
        self._own = own.to_tool_schemas()
        self._of: tuple[ToolSchema, ...] | None = None
        self._all: tuple[ToolSchema, ...] = ()

    def register(self, definition: ToolDefinition[..., Any]) -> None:
        self._inner.register(definition)

    def to_tool_schemas(self) -> tuple[ToolSchema, ...]:
        inner = self._inner.to_tool_schemas()
        if self._of is not inner:
            self._of, self._all = inner, (*inner, *self._own)
        return self._all
