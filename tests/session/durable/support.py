"""What the tests of durable sessions share."""

from collections.abc import Sequence

from sqlalchemy import text

from playhead import AgentLoop
from playhead.events import Event
from playhead.session.durable.lines import DurableLines
from playhead.session.durable.records import schema_of
from playhead.session.sessions import Sessions
from playhead.storage.engine import Database, open_database


def durable(loop: AgentLoop, url: str) -> Sessions:
    """Sessions that do not wait long for what a test holds back when they close."""
    return Sessions(loop, url, durable=True, stop_timeout=0.2)


def lines_of(sessions: Sessions) -> DurableLines:
    """What carries out the runs of sessions that are open."""
    opening = sessions._opening
    assert opening is not None
    lines = opening.result().lines
    assert isinstance(lines, DurableLines)
    return lines


async def steal(sessions: Sessions) -> None:
    """Do what another process does that thinks this one dead; this one then finds its runs in the queue."""
    engine = lines_of(sessions).engine
    assert await engine.recover(engine.executor) > 0
    engine.kick()


def recorded(told: Sequence[Event]) -> list[Event]:
    """Those that every reader is told alike, now and later."""
    return [event for event in told if event.seq is not None and event.type != "text_delta"]


async def table(database: Database, name: str) -> str:
    """How SQL names one of the engine's tables."""
    schema = await schema_of(database)
    return name if schema is None else f"{schema}.{name}"


async def change(url: str, name: str, sql: str) -> None:
    """Execute a statement on one of the engine's tables, which it names `{table}`."""
    async with await open_database(url) as database:
        statement = text(sql.replace("{table}", await table(database, name)))
        await database.write(lambda connection: connection.execute(statement))
