"""An app of one's own with the agent mounted in it: `python mount_in_starlette.py [PORT]`.

The page is then at /agent/, the chat route at /agent/api/agent/chat.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from playhead.server import create_app

agent = create_app()


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("My app. The agent is at /agent/")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with agent.router.lifespan_context(agent):  # runs end when this app ends
        yield


app = Starlette(routes=[Route("/", home), Mount("/agent", agent)], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, timeout_graceful_shutdown=3)
