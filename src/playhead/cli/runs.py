"""`playhead runs` and `playhead show`: what runs where, read from the database."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from playhead.cli.exits import DONE, FAILED
from playhead.cli.screen import clean, make_console, put
from playhead.config import Settings
from playhead.session.durable.survey import RunAt, survey
from playhead.storage.engine import Database, open_database
from playhead.storage.ledger import RunRow, events_of
from playhead.storage.sql_dispatch import SQLDispatch
from playhead.storage.sql_ledger import SQLLedger

T = TypeVar("T")


class Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One run. `events` are the types of what it showed so far; `error` is said of its end."""

    run: RunRow
    events: Sequence[str] = ()
    error: str | None = None
    at: RunAt | None = None


def surveyed(settings: Settings) -> Sequence[RunAt]:
    """Return every run that has not ended. Raises `ConfigError` and `StoreError`."""
    return asyncio.run(_with(settings, survey))


def list_runs(settings: Settings, *, as_json: bool) -> int:
    """Print what has not ended. Returns the exit code."""
    found = surveyed(settings)
    if as_json:
        put(sys.stdout, msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
        return DONE
    console = make_console(sys.stdout)
    if not found:
        console.print("Nothing runs, and nothing waits.")
    for run in found:
        console.print(clean(f"{run.run_id}  {run.place:8}  {_time(run.since)}  thread {run.thread_id}"))
        if run.process:
            console.print(clean(f"  in {run.process}, attempt {run.attempts}"))
        if run.todo:
            console.print(clean(f"  {run.todo}"), style="yellow")
    return DONE


def show_run(settings: Settings, run_id: str, *, as_json: bool) -> int:
    """Print what is known of a run. Returns the exit code."""
    shown = asyncio.run(_with(settings, lambda database: _show(database, run_id)))
    if shown is None:
        put(sys.stderr, f"There is no run {clean(run_id)!r}, or it is forgotten by now.\n")
        return FAILED
    if as_json:
        put(sys.stdout, msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n")
        return DONE
    run, console = shown.run, make_console(sys.stdout)
    state = run.finish_reason or (shown.at.place if shown.at else run.state)
    console.print(clean(f"{run.run_id}  {state}  {_time(run.created_at)}"))
    console.print(clean(f"  thread {run.thread_id}, turn {run.turn_id}"))
    if shown.at is not None and shown.at.process:
        console.print(clean(f"  in {shown.at.process}, attempt {shown.at.attempts}"))
    if shown.at is not None and shown.at.todo:
        console.print(clean(f"  {shown.at.todo}"), style="yellow")
    if shown.error:
        console.print(clean(f"  {shown.error}"), style="red")
    console.print(clean(f"  showed: {', '.join(shown.events) or 'nothing yet'}"))
    return DONE


async def _with(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    async with await open_database(settings.database_url) as database:
        return await work(database)


async def _show(database: Database, run_id: str) -> Shown | None:
    row = await SQLDispatch(database).find(run_id)
    if row is None:
        return None
    events = await events_of(SQLLedger(database).events, row)
    error = next((_error(event.data) for event in events if event.type == "run_end"), None)
    at = next((run for run in await survey(database) if run.run_id == run_id), None)
    return Shown(row, [event.type for event in events], error, at)


def _error(data: bytes) -> str | None:
    result: Any = msgspec.json.decode(data).get("result", {})
    message = result.get("errorMessage")
    return None if message is None else str(message)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
