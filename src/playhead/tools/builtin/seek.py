"""A tool that moves the playhead. The front end executes it: only there is a player."""

from typing import Annotated, Any

from msgspec import Meta

from playhead.tools.define import tool
from playhead.types import ToolDefinition


def seek() -> ToolDefinition[..., Any]:
    """Make the `seek` tool, which a front end executes.

    It is given `seconds` and, for another file than the one that is open, `assetId`; what it is to
    answer is where the playhead is then: `assetId` and `seconds`.
    """

    @tool(
        name="seek",
        description="Move the playhead of the player to a time, in the open file or in the one of assetId.",
        client=True,
        replay="safe",
    )
    def move(
        seconds: Annotated[float, Meta(ge=0, description="Where to, in seconds from the beginning.")],
        assetId: Annotated[str | None, Meta(description="The id of the file, if it is not open.")] = None,
    ) -> None:
        """Nothing happens here."""

    return move
