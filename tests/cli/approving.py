"""`playhead` with a tool that a person has to approve, in place of its own: `python approving.py chat`."""

import sys
from pathlib import Path

from playhead import ToolRegistry, tool
from playhead.cli import chat
from playhead.cli.commands import run

COMMAND = (sys.executable, str(Path(__file__)))


@tool(approval=True)
async def publish(title: str) -> str:
    """Publish a video."""
    return f"{title} is out"


if __name__ == "__main__":
    chat.create_registry = lambda *_: ToolRegistry([publish])  # type: ignore[attr-defined]  # an import
    sys.exit(run())
