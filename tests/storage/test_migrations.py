"""Every database of an earlier version opens in this one, with all that is in it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, MetaData, insert, inspect, select, text

from playhead.errors import StoreError
from playhead.events import RunStart
from playhead.llm.breaker import CLOSED, BreakerState, succeeded
from playhead.session.shown import Shown
from playhead.storage.breakers import SQLBreakerStore
from playhead.storage.connect import connect_engines
from playhead.storage.edits import LineEdit
from playhead.storage.engine import Database, open_database
from playhead.storage.ledger import PendingCall, RunRow
from playhead.storage.messages import ChannelMessage, MessageRow
from playhead.storage.migrations import MIGRATIONS, migrate
from playhead.storage.projects import Project
from playhead.storage.results import ResultPage
from playhead.storage.sql_calls import SQLCallLog
from playhead.storage.sql_dispatch import SQLDispatch
from playhead.storage.sql_edits import SQLEditStore
from playhead.storage.sql_ledger import SQLLedger
from playhead.storage.sql_messages import SQLMessageLog
from playhead.storage.sql_projects import SQLProjectStore
from playhead.storage.sql_results import SQLResultStore
from playhead.storage.sql_summaries import SQLSummaryStore
from playhead.storage.summaries import Summary
from playhead.storage.tables import metadata, schema
from playhead.storage.turns import SQLTurnStore
from playhead.types import AgentContext, CallRecord, ToolCall, UserMessage

pytestmark = pytest.mark.anyio

# What each schema added, as a database of that version holds it, keys included. Frozen: it is never
# made by the code of today.
THREAD = {"thread_id": "t", "tenant_id": "acme", "thread_key": "1b4ebb479df125a128a607305f8f4d592026ba00"}
THREAD_3 = {**THREAD, "thread_id": "t3", "thread_key": "0c7357aede89821de46143ef8832f6ec4f44bc68"}
ACME = "7181a4831812fef8b990cedf8f708b453ad7ab44"
TIMES = {"created_at": 900, "updated_at": 950}
TURN = {
    **THREAD,
    "turn_id": "turn",
    "turn_key": "41160b3d0b8a33275358d8a77608b8b2733759b6",
    "turn_seq": 1,
    "format": 1,
    "extra": '{"timestamp":900}',
}
DATA: Mapping[int, Sequence[tuple[str, Mapping[str, Any]]]] = {
    1: [
        (
            "agent_threads",
            {**THREAD, "tenant_key": ACME, "last_seq": 2, "created_at": 900, "updated_at": 950},
        ),
        (
            "agent_turns",
            {
                **TURN,
                "message_key": "9dad3afa5f6973df433a9e189707b8ca74126aec",
                "id": "m1",
                "seq": 1,
                "step_index": 0,
                "role": "user",
                "content": "hello",
                "created_at": 900,
            },
        ),
        (
            "agent_turns",
            {
                **TURN,
                "message_key": "5bb9a151eff0034756758958a2eaf65e11b4c3db",
                "id": "m2",
                "seq": 2,
                "step_index": 1,
                "role": "assistant",
                "content": "hi",
                "tool_calls": '[{"id":"c","name":"f","args":{"z":1,"a":2}}]',
                "created_at": 950,
            },
        ),
    ],
    2: [
        (
            "ai_call_log",
            {
                "thread_id": "t",
                "tenant_id": "acme",
                "turn_id": "turn",
                "tenant_key": ACME,
                "thread_key": "3aef55ba3cd145acf0d64a7a8cac60b1edadf520",
                "turn_key": "c25840461dc836127934f70c5f563f3ed9375547",
                "task": "chat",
                "provider": "p",
                "model": "m",
                "status": "success",
                "created_at": 900,
                "cost_micro_usd": 7,
            },
        )
    ],
    3: [
        (
            "agent_threads",
            {
                **THREAD_3,
                "tenant_key": ACME,
                "last_seq": 0,
                "last_event_seq": 1,
                "created_at": 900,
                "updated_at": 950,
            },
        ),
        (
            "agent_runs",
            {
                **THREAD_3,
                "run_key": "28efffbd0e6712159f651aac0805dfba4746cc29",
                "message_key": "9dad3afa5f6973df433a9e189707b8ca74126aec",
                "run_id": "run",
                "turn_id": "turn",
                "state": "paused",
                "policy": "queue",
                "message": '{"role":"user","content":"hello","id":"m1","timestamp":900}',
                "context": '{"projectId":"p","activeSceneId":null,"mediaAssets":[],"playbackTimeMs":null}',
                "owner": "elsewhere/boot/1/2/x",
                "first_seq": 1,
                "finish_reason": "paused",
                "created_at": 900,
                "ended_at": 950,
            },
        ),
        (
            "agent_events",
            {
                "thread_key": THREAD_3["thread_key"],
                "seq": 1,
                "run_key": "28efffbd0e6712159f651aac0805dfba4746cc29",
                "event_key": "0/start",
                "type": "run_start",
                "data": '{"type":"run_start","turnId":"turn","runId":"run","at":900}',
                "format": 1,
                "created_at": 900,
            },
        ),
        (
            "agent_pending",
            {
                "turn_key": TURN["turn_key"],
                "call_key": "fb665324bda523d929fe17524e29348ee150b96c",
                "thread_key": THREAD_3["thread_key"],
                "call": '{"id":"c","name":"f","args":{"z":1,"a":2}}',
                "kind": "approval",
                "args_hash": "abc",
                "expires_at": 2_000,
                "place": 0,
            },
        ),
    ],
    4: [
        (
            "message_log",
            {
                "tenant_key": ACME,
                "thread_key": "3aef55ba3cd145acf0d64a7a8cac60b1edadf520",
                "turn_key": "c25840461dc836127934f70c5f563f3ed9375547",
                "message_key": "83468e843c955350aa4bdf032f371aa0dc35b74e",
                "channel": "whatsapp",
                "direction": "inbound",
                "peer": "491700000000",
                "text": "hello",
                "kind": "text",
                "channel_id": "wamid.1",
                "tenant_id": "acme",
                "thread_id": "t",
                "turn_id": "turn",
                "state": "done",
                "created_at": 900,
                "updated_at": 950,
            },
        ),
        (
            "message_log",
            {
                "tenant_key": ACME,
                "thread_key": "3aef55ba3cd145acf0d64a7a8cac60b1edadf520",
                "turn_key": "c25840461dc836127934f70c5f563f3ed9375547",
                "own_key": "566e203e73925f1d5327e07148e3def5cd5956bd",
                "channel": "whatsapp",
                "direction": "outbound",
                "peer": "491700000000",
                "text": "hi",
                "kind": "text",
                "own_id": "turn/1",
                "tenant_id": "acme",
                "thread_id": "t",
                "turn_id": "turn",
                "state": "failed",
                "error_message": "too many",
                "created_at": 960,
                "updated_at": 970,
            },
        ),
    ],
    5: [
        (
            "breaker_states",
            {
                "provider_key": "633874b7206b338cc9678bb6e8f4bfe9d17785a0",
                "provider": "p",
                "state": '{"openUntil":960.0,"openedFor":30.0,"kind":"rate_limit"}',
                "updated_at": 930,
            },
        )
    ],
    6: [
        (
            "agent_summaries",
            {
                "thread_key": THREAD["thread_key"],
                "through_seq": 2,
                "text": "They said hello.",
                "format": 1,
                "created_at": 960,
            },
        )
    ],
    7: [
        (
            "agent_results",
            {
                "thread_key": THREAD["thread_key"],
                "result_key": "dbbe2b7e91572781fc8ee4e64856673a34beea40",
                "turn_key": TURN["turn_key"],
                "text": "a long result",
                "created_at": 960,
            },
        )
    ],
    8: [
        (
            "agent_runs",
            {
                "run_key": "9a866c268bf7bbd66303d1c4995788bd38b31ef6",
                "thread_key": THREAD_3["thread_key"],
                "run_id": "run-8",
                "turn_id": "turn-8",
                "thread_id": "t3",
                "tenant_id": "acme",
                "state": "running",
                "policy": "queue",
                "owner": "durable",
                "first_seq": 1,
                "created_at": 970,
                "stopping": 1,
            },
        )
    ],
    9: [],
    10: [
        (
            "projects",
            {
                "project_key": "5ecc3dfe7cfc09f408e180c3399d4d1d0ad5879e",
                "tenant_key": ACME,
                "project_id": "p1",
                "tenant_id": "acme",
                "name": "My film",
                "thread_id": "t",
                "created_at": 900,
                "updated_at": 950,
            },
        ),
        (
            "project_media",
            {
                "project_key": "5ecc3dfe7cfc09f408e180c3399d4d1d0ad5879e",
                "media_key": "8da106a3bd9c32655c490a2395a21e15b2f9c8d9",
                "media_id": "m1",
                "added_at": 950,
            },
        ),
        (
            "transcript_edits",
            {
                "media_key": "8da106a3bd9c32655c490a2395a21e15b2f9c8d9",
                "line_key": "6e6f85a84a8dd14cf971cf2d62a82c0e1c34e730",
                "start_ms": 0,
                "end_ms": 1_500,
                "said": "helo",
                "text": "hello",
                "updated_at": 950,
            },
        ),
    ],
    11: [
        (
            "transcript_changes",
            {
                "media_key": "8da106a3bd9c32655c490a2395a21e15b2f9c8d9",
                "change_key": "c25840461dc836127934f70c5f563f3ed9375547",
                "change_id": "turn",
                "made_by": "agent",
                "made_at": 950,
                "lines": '[{"startMs":0,"endMs":1500,"said":"helo","before":"helo","text":"hello"}]',
            },
        ),
    ],
}
RECORD = CallRecord(
    "chat", "p", "m", "success", 900, cost_micro_usd=7, tenant_id="acme", thread_id="t", turn_id="turn"
)
INBOUND = ChannelMessage(
    "whatsapp",
    "inbound",
    "491700000000",
    "hello",
    channel_id="wamid.1",
    tenant_id="acme",
    thread_id="t",
    turn_id="turn",
)
OUTBOUND = replace(INBOUND, direction="outbound", text="hi", channel_id=None, own_id="turn/1")
TRIPPED = BreakerState(open_until=960.0, opened_for=30.0, kind="rate_limit")


def make_at(url: str, version: int) -> None:
    """Make a database of a schema, with the data of that time in it."""
    engines = connect_engines(url, 10)
    with engines.write.begin() as connection:
        migrate(connection, MIGRATIONS[:version])
        for number in range(1, version + 1):
            for table, row in DATA[number]:
                values = ", ".join(f":{name}" for name in row)
                connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)
    engines.dispose()


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_a_database_of_every_earlier_schema_opens_with_its_data(url: str, version: int) -> None:
    """Q205: it is brought to the newest schema, nothing of it is lost, and it is written as before."""
    make_at(url, version)
    async with await open_database(url) as database:
        store, log = SQLTurnStore(database), SQLCallLog(database)
        rows = await store.window("t", tenant_id="acme")
        if version >= 1:
            assert [(r.seq, r.id, r.content, r.step_index, r.created_at) for r in rows] == [
                (1, "m1", "hello", 0, 900),
                (2, "m2", "hi", 1, 950),
            ]
            assert rows[1].tool_calls == [ToolCall("c", "f", {"z": 1, "a": 2})]
            assert list(rows[1].tool_calls[0].args) == ["z", "a"]
            assert await store.turn("turn", tenant_id="acme") == rows
            again = await store.append("t", UserMessage("x", id="m1"), turn_id="new", tenant_id="acme")
            assert again == rows[0]
        if version >= 3:
            await _check_run(SQLLedger(database))
        summary = await SQLSummaryStore(database).last("t", tenant_id="acme")
        assert summary == (Summary(2, "They said hello.", 960) if version >= 6 else None)
        if version >= 8:
            stopping = RunRow("run-8", "turn-8", "t3", "acme")
            assert await SQLDispatch(database).stopping([stopping]) == ["run-8"]
        page = await SQLResultStore(database).page("t", "r1", 2, 4, tenant_id="acme")
        assert page == (ResultPage("long", 13) if version >= 7 else None)
        calls = await log.calls(tenant_id="acme")
        assert [row.call for row in calls] == ([RECORD] if version >= 2 else [])
        added = await store.append("t", UserMessage("next"), turn_id="turn", tenant_id="acme")
        assert added.seq == len(rows) + 1
        audit = SQLMessageLog(database)
        kept = await audit.messages(tenant_id="acme")
        if version >= 4:
            assert [replace(row, row_id=0) for row in kept] == [
                MessageRow(0, OUTBOUND, "failed", "too many", 960, 970),
                MessageRow(0, INBOUND, "done", None, 900, 950),
            ]
        assert [(await audit.add(m)).new for m in (INBOUND, OUTBOUND)] == [version < 4] * 2
        breakers = SQLBreakerStore(database, BreakerState, CLOSED)
        state = await breakers.update("p", lambda state: (succeeded(state, 1_000.0), state))
        assert state == (TRIPPED if version >= 5 else CLOSED)
        projects, edits = SQLProjectStore(database), SQLEditStore(database)
        film = Project("p1", "My film", "t", 900, 950)
        assert await projects.list(tenant_id="acme") == ([film] if version >= 10 else [])
        assert await projects.media("p1", tenant_id="acme") == (["m1"] if version >= 10 else [])
        kept_edits = await edits.edits("m1", tenant_id="acme")
        assert kept_edits == ([LineEdit(0, 1_500, "helo", "hello")] if version >= 10 else [])
        back = await edits.undo("m1", "turn", tenant_id="acme")
        assert back == ([LineEdit(0, 1_500, "helo", "helo")] if version >= 11 else None)
        await log.record(RECORD)
        assert len(await log.calls(tenant_id="acme")) == len(calls) + 1


async def _check_run(ledger: SQLLedger) -> None:
    run = await ledger.run("run", tenant_id="acme")
    assert run is not None
    assert (run.state, run.message, run.context) == (
        "paused",
        UserMessage("hello", id="m1", timestamp=900),
        AgentContext("p", media_assets=[]),
    )
    page = await ledger.events.after("t3", 0, run_id="run", tenant_id="acme")
    assert [Shown.of_row(row).event for row in page.rows] == [
        RunStart(turn_id="turn", run_id="run", at=900, seq=1)
    ]
    call = ToolCall("c", "f", {"z": 1, "a": 2})
    assert await ledger.pending("turn", tenant_id="acme") == [PendingCall(call, "approval", "abc", 2_000)]


def test_every_schema_has_data_to_be_opened_with() -> None:
    """Q205: who adds a migration adds what a database of it holds."""
    assert list(DATA) == list(range(1, len(MIGRATIONS) + 1))


async def test_the_migrations_make_the_tables_that_are_queried(database: Database) -> None:
    """Q205: what `tables.py` says and what `migrations.py` makes are the same."""

    def shape(tables: MetaData) -> dict[str, Any]:
        return {
            table.name: (
                [(column.name, column.nullable, column.primary_key) for column in table.columns],
                sorted((str(i.name), [c.name for c in i.columns]) for i in table.indexes),
            )
            for table in tables.tables.values()
        }

    def made(connection: Connection) -> tuple[dict[str, Any], dict[str, list[str]]]:
        found = MetaData()
        found.reflect(connection)
        inspector = inspect(connection)
        unique = [u for table in found.tables for u in inspector.get_unique_constraints(table)]
        return shape(found), {str(u["name"]): list(u["column_names"]) for u in unique}

    tables, unique = await database.read(made)
    wanted = shape(metadata)
    assert tables == wanted
    assert unique == {
        "agent_turns_once": ["thread_key", "message_key"],
        "agent_turns_seq": ["thread_key", "seq"],
        "agent_runs_run": ["run_key"],
        "agent_runs_once": ["thread_key", "message_key"],
        "agent_events_once": ["run_key", "event_key"],
        "message_log_once": ["message_key"],
        "message_log_own": ["own_key"],
    }


async def test_a_database_of_a_later_version_is_left_alone(url: str) -> None:
    """Q205: a newer schema is refused with what to do, and nothing of it is touched."""
    make_at(url, len(MIGRATIONS))
    engines = connect_engines(url, 10)
    with engines.write.begin() as connection:
        connection.execute(insert(schema), {"version": 99})
    with pytest.raises(StoreError, match=rf"schema 99, .* up to {len(MIGRATIONS)}: update Playhead"):
        await open_database(url)
    with engines.read.connect() as connection:
        assert list(connection.execute(select(schema.c.version)).scalars()) == [*DATA, 99]
    engines.dispose()


async def test_a_migration_that_fails_leaves_the_schema_it_found(url: str) -> None:
    """Q205: a migration is done whole or not at all."""
    make_at(url, 1)
    engines = connect_engines(url, 10)
    broken = (*MIGRATIONS[:1], ("CREATE TABLE half (x INTEGER)", "CREATE TABEL nonsense"))
    with pytest.raises(Exception, match="syntax"), engines.write.begin() as connection:
        migrate(connection, broken)
    with engines.read.connect() as connection:
        assert not inspect(connection).has_table("half")
        assert list(connection.execute(select(schema.c.version)).scalars()) == [1]
    engines.dispose()
