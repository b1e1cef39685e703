"""A tool that reads on in a result that was too long to be shown whole."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from msgspec import Meta

from playhead.errors import ToolError
from playhead.tools.define import tool
from playhead.types import ToolDefinition

Page = tuple[str, int]
ReadPage = Callable[[str, int, int], Awaitable[Page | None]]
"""Takes an id, an offset and a limit in characters; returns the text from there and the length of all,
or None for an id that is not known where it is asked for."""


def read_result(read: ReadPage, most: int) -> ToolDefinition[..., Any]:
    """Make the `read_result` tool.

    It takes `id`, `offset` and `limit`, in characters, of which one call returns at most `most`, and
    says which these are and where the next begin.
    """

    @tool(
        name="read_result",
        description="Read more of a tool result that was too long to be shown whole.",
        replay="safe",
    )
    async def page(
        id: Annotated[str, Meta(description="The id that stands where the result was shortened.")],
        offset: Annotated[int, Meta(ge=0, description="The first character to read, counted from 0.")] = 0,
        limit: Annotated[int, Meta(ge=1, description=f"How many to read; {most} at most.")] = most,
    ) -> str:
        found = await read(id, offset, min(limit, most))
        if found is None:
            raise ToolError(
                f"No result {id[:100]!r} is kept in this conversation. Use an id as it stands in a result"
                " that was shortened."
            )
        text, total = found
        if offset >= total:
            raise ToolError(f"The result {id!r} has {total} characters; offset {offset} is past its end.")
        end = offset + len(text)
        rest = f"Go on with offset={end}." if end < total else "This is its end."
        return f"[Characters {offset} to {end} of {total} of the result {id}. {rest}]\n\n{text}"

    return page
