"""A server in a process of its own: `python -m tests.server.serving HOME MODEL` prints its address."""

import asyncio
import logging
import sys
from pathlib import Path

from playhead.events import EmitDelta, TextDelta
from playhead.llm.base import AgentLLM
from playhead.server import create_app, serve
from playhead.types import AssistantMessage, LLMRequest, LLMResult
from tests.server.support import HeldModel, settings


class Stubborn:
    """A model that does not let itself be stopped."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        if emit is not None:
            emit(TextDelta(text="Never"))
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass


class Asked:
    """A model that holds back the rest of its answer where it is asked to `hold`."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        said = "Here it is."
        if emit is not None:
            emit(TextDelta(text=said[:5]))
        if request.messages[-1].content == "hold":
            await asyncio.Event().wait()
        if emit is not None:
            emit(TextDelta(text=said[5:]))
        return LLMResult(AssistantMessage(said))


MODELS: dict[str, type[AgentLLM]] = {"asked": Asked, "held": HeldModel, "stubborn": Stubborn}


def main(home: Path, model: str) -> None:
    logging.basicConfig(level=logging.INFO)
    app = create_app(llm=MODELS[model](), settings=settings(home))
    asyncio.run(serve(app, port=0, on_ready=lambda url: print(url, flush=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
