"""A server that is there to be killed: `python -m tests.chaos.worker URL HOME EFFECTS TAKEOVER`."""

import asyncio
import logging
import os
import sys
import threading
from pathlib import Path

import msgspec

from playhead.config import Settings
from playhead.server import create_app, serve
from playhead.session.durable.options import Durable, Lock
from playhead.tools.registry import ToolRegistry
from tests.chaos.model import Effects, Scripted, make_tools


def main(url: str, home: Path, effects_file: Path, takeover: Lock) -> None:
    """Serve until a signal, or until whoever started it is gone. Prints its address once it works."""
    logging.basicConfig(level=logging.WARNING, format="%(created).3f %(levelname)s %(message)s")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    effects = Effects(effects_file)
    app = create_app(
        llm=Scripted(effects),
        registry=ToolRegistry(make_tools(effects)),
        settings=Settings(home=home, database=url),
        durable=Durable(takeover=takeover),
    )

    async def work() -> None:
        # As `playhead serve` does: it takes part before anybody asks it something.
        await app.state.playhead.sessions.check()
        await serve(app, port=0, on_ready=lambda address: print(address, flush=True))

    asyncio.run(work())


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), msgspec.convert(sys.argv[4], Lock))
