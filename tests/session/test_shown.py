"""What of a run may leave the process."""

import json

import pytest

from playhead import AgentLoop, tool
from playhead.events import RunEnd, TextDelta
from playhead.session.feed import Cursor, Feed, follow
from playhead.session.sessions import Sessions
from playhead.storage.ledger import Thread
from playhead.storage.memory_ledger import MemoryLedger
from playhead.testing import ScriptedLLM
from playhead.types import AgentRunResult, AssistantMessage, LLMRequest, LLMResult, ToolMessage
from tests.session.models import StrictLLM

pytestmark = pytest.mark.anyio


async def test_a_tools_error_is_one_masked_text_for_model_store_and_reader(store_url: str | None) -> None:
    """Q221: nobody is told more than the others, and nobody a key or a path."""

    @tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("no access to /home/ada/secret.txt with sk-live0123456789abcdef")

    llm = ScriptedLLM([("fail", {})], "so")
    async with Sessions(AgentLoop(llm, tools=[fail]), store_url) as sessions:
        run = await sessions.start("t", "go")
        shown = [one async for one in sessions.shown(run.run_id)]
        (stored,) = [m.content for m in await sessions.history("t") if isinstance(m, ToolMessage)]
    (seen,) = [m.content for m in llm.requests[1].messages if isinstance(m, ToolMessage)]
    (told,) = [json.loads(one.data)["result"] for one in shown if one.type == "tool_result"]
    assert seen == stored == told["error"]
    assert "no access to" in seen
    everything = b"".join(one.data for one in shown).decode() + stored
    assert "sk-live" not in everything
    assert "/home/ada" not in everything


class Named(StrictLLM):
    """A model with an account in its name, and data of its provider's."""

    async def generate(self, request: LLMRequest, emit: object = None) -> LLMResult:
        message = AssistantMessage("so", reasoning="hm", provider_metadata={"signature": "OPAQUE"})
        return LLMResult(message, "stop", provider="vertex", model="projects/acme-123/models/flash")


async def test_accounts_and_opaque_data_stay_inside(store_url: str | None) -> None:
    """Q230: of a model's name the last part; of its message what a person may read."""
    async with Sessions(AgentLoop(Named()), store_url) as sessions:
        run = await sessions.start("t", "go")
        shown = [one async for one in sessions.shown(run.run_id)]
        late = [one async for one in sessions.shown(run.run_id)]
        kept = (await sessions.history("t"))[1]
        assert isinstance(kept, AssistantMessage)
        assert kept.provider_metadata is not None
    for events in (shown, late):
        everything = b"".join(one.data for one in events).decode()
        assert "acme-123" not in everything
        assert "OPAQUE" not in everything
        assert '"model":"flash"' in everything


async def test_a_reader_that_is_behind_gets_the_text_before_an_end_that_is_not_written() -> None:
    """Q200: what was shown and never recorded is told to who is slow, before the end that was told for it."""
    feed, log = Feed(), MemoryLedger().events
    reading = follow(feed, log, Thread("t"), Cursor())
    feed.live("r", TextDelta(text="he", run_id="r", message_id="m"))
    first = await anext(reading)
    feed.live("r", TextDelta(text="llo", run_id="r", message_id="m", offset=2))
    end = RunEnd(result=AgentRunResult("turn", "error", "hello"), run_id="r")
    feed.end_unless_told("r", end)
    told = [first.event, (await anext(reading)).event, (await anext(reading)).event]
    await reading.aclose()
    assert [getattr(event, "text", event.type) for event in told] == ["he", "llo", "run_end"]
