"""Calls that are not waited for any longer: a run goes on, and so does the work, elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from playhead.encode import encode_result
from playhead.tools.registry import ToolRegistry
from playhead.types import JsonObject, ToolCall, ToolContext, ToolDefinition, ToolResult, ToolSchema

HandOver = Callable[[ToolCall, ToolContext, ToolDefinition[..., Any]], Awaitable[JsonObject]]
"""Has a call carried out elsewhere, and returns what the model is told of that."""


class BackgroundTools(ToolRegistry):
    """The tools of another registry, whose calls are handed over after their tool's `background`.

    What the registry is given later is here too.

    Args:
        inner: the tools.
        hand_over: called once the call was stopped here.
    """

    def __init__(self, inner: ToolRegistry, hand_over: HandOver) -> None:
        super().__init__()
        self.result_limit = inner.result_limit
        self._inner = inner
        self._hand_over = hand_over
        self._items = inner._items

    def register(self, definition: ToolDefinition[..., Any]) -> None:
        self._inner.register(definition)

    def to_tool_schemas(self) -> tuple[ToolSchema, ...]:
        return self._inner.to_tool_schemas()

    def execute(
        self, call: ToolCall, context: Any = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        tool = self.named(call.name)
        work = self._inner.execute(call, context, timeout=timeout)
        if tool is None or tool.background is None:
            return work
        wrapped = context if isinstance(context, ToolContext) else ToolContext(context, call.id)
        return self._execute(work, call, wrapped, tool, tool.background)

    async def _execute(
        self,
        work: Coroutine[Any, Any, ToolResult],
        call: ToolCall,
        context: ToolContext,
        tool: ToolDefinition[..., Any],
        patience: float,
    ) -> ToolResult:
        here = asyncio.ensure_future(work)
        try:
            in_time, _ = await asyncio.wait((here,), timeout=patience)
        finally:
            # What both would do at once, one would do for nothing.
            here.cancel()
            await asyncio.wait((here,))
        # A tool may make an error of its own of being stopped.
        if in_time or not (here.cancelled() or here.exception() or here.result().error is not None):
            return here.result()
        text, value = encode_result(await self._hand_over(call, context, tool), self.result_limit)
        return ToolResult(call.id, call.name, value, None, text)
