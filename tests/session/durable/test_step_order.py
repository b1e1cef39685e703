"""The order of a run's steps is a contract with every run that is in flight while the program changes."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text

from playhead import AgentLoop, LoopOptions, tool
from playhead.session.durable.records import VERSION
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.testing import ScriptedLLM
from tests.session.durable.support import table

pytestmark = pytest.mark.anyio

# What was recorded by each version. A change of the loop that changes this strands runs in flight, which
# end with code `version`: raise VERSION in records.py, and add what is recorded from then on.
ORDERS = {
    "loop-1": [
        "0/tool/0",
        "1/model",
        "1/tool/0",
        "1/tool/1",
        "1/tool/2",
        "2/model",
        "3/model",
        "4/model",
    ],
}


@tool(replay="safe")
async def safe(a: int) -> int:
    """Return the number."""
    return a


@tool
async def once(a: int) -> int:
    """Return the number."""
    return a


@tool(approval=True)
async def asked(a: int) -> int:
    """Return the number."""
    return a


async def recorded(url: str, run_id: str) -> Sequence[str]:
    async with await open_database(url) as database:
        outputs = await table(database, "operation_outputs")
        query = text(f"SELECT function_name FROM {outputs} WHERE workflow_uuid = :run ORDER BY function_id")
        return await database.read(lambda c: c.execute(query, {"run": run_id}).scalars().all())


async def test_the_order_of_steps_changes_only_with_the_version(url: str) -> None:
    """Issue 6: a run in flight while the program changes is replayed step by step, by place and name."""
    model = ScriptedLLM(
        ("asked", {"a": 1}),
        [("safe", {"a": 1}), ("once", {"a": 2}), ("safe", {"a": 3})],
        "not this",
        "nor this",
        "done",
    )
    checks = iter(["say something else", "and again", None])
    options = LoopOptions(check=lambda said: next(checks))
    loop = AgentLoop(model, tools=[safe, once, asked], options=options)
    async with Sessions(loop, url, durable=True) as sessions:
        paused = await sessions.run("t", "go")
        assert paused.finish_reason == "paused"
        ((run_id, call),) = await sessions.pending("t")
        run = await sessions.answer(run_id, call.call.id, approved=True)
        assert [event.type async for event in sessions.events(run.run_id)][-1] == "run_end"
    assert await recorded(url, run.run_id) == ORDERS[VERSION]
