"""Results that are too long for a model: kept whole, shown shortened, read on by page."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from playhead.encode import encode_result
from playhead.errors import ConfigError
from playhead.tools.builtin.read_result import ReadPage, read_result
from playhead.tools.joined import JoinedTools
from playhead.tools.registry import ToolRegistry
from playhead.types import ToolCall, ToolResult

Keep = Callable[[str, str], Awaitable[str | None]]
"""Takes the id of a call and its result's text; returns the id under which it can be read, or None
where it could not be kept."""

KEPT_LIMIT = 10_000_000
"""How many characters of a result are kept; of a longer one the middle is left out, and it says so."""
LEAST_ABOVE = 1_000
READER = "read_result"
# Of what a result may have, so much is shown of a longer one: two thirds from its beginning.
_SHOWN = 4
_HEAD = 300  # what the tool that reads says before a page


def check_aside(inner: ToolRegistry, above: int) -> None:
    """Raise `ConfigError` where `AsideTools` cannot be made of these."""
    if above < LEAST_ABOVE:
        raise ConfigError(f"Results are kept aside above {above!r} characters; give {LEAST_ABOVE} or more.")
    if inner.has(READER):
        raise ConfigError(f"{READER!r} is the tool that reads what is kept aside; give yours another name.")


class AsideTools(JoinedTools):
    """The tools of another registry, whose long results are kept aside, and one more that reads them.

    What the registry is given later is here too. `read_result` is always among the tools, so that
    what a model is offered is the same in every step.

    Args:
        inner: the tools.
        above: results of more characters are kept aside, at least 1,000.
        keep: keeps a result.
        read: reads a part of one.

    Raises `ConfigError` as `check_aside` does.
    """

    def __init__(self, inner: ToolRegistry, above: int, keep: Keep, read: ReadPage) -> None:
        if above < LEAST_ABOVE:
            raise ConfigError(
                f"Results are kept aside above {above!r} characters; give {LEAST_ABOVE} or more."
            )
        # A page is never so long that it is kept aside itself.
        reader = read_result(read, above - _HEAD)
        if inner.has(reader.name):
            raise ConfigError(
                f"{reader.name!r} is the tool that reads what is kept; give yours another name."
            )
        super().__init__(inner, [reader])
        self.result_limit = KEPT_LIMIT
        self._above = above
        self._keep = keep

    async def execute(
        self, call: ToolCall, context: Any = None, *, timeout: float | None = None
    ) -> ToolResult:
        result = await super().execute(call, context, timeout=timeout)
        if result.error is not None:
            return result
        text = await self.shortened(call.id, result.text)
        return result if text is result.text else replace(result, result=text, text=text)

    async def shortened(self, call_id: str, text: str) -> str:
        """Return a result's text as a model is shown it; a long one is kept before."""
        if len(text) <= self._above:
            return text
        room = self._above // _SHOWN
        id = await self._keep(call_id, text)
        if id is None:
            return encode_result(text, room).text
        head, tail = room - room // 3, room // 3
        note = (
            f"\n\n[... {len(text) - room} characters were left out here. All {len(text)} are kept: read on"
            f' with read_result(id="{id}", offset={head}) ...]\n\n'
        )
        return text[:head] + note + text[-tail:]
