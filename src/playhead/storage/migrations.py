"""How the tables come to be, step by step. Append a migration; never change one that was released."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select

from playhead.errors import StoreError
from playhead.storage.tables import schema

# One list of statements for each version of the schema. `{id}` is a number that counts itself.
MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """
        CREATE TABLE agent_threads (
            thread_key TEXT NOT NULL PRIMARY KEY,
            tenant_key TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            tenant_id TEXT,
            last_seq BIGINT NOT NULL,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL
        )
        """,
        "CREATE INDEX agent_threads_tenant ON agent_threads (tenant_key)",
        """
        CREATE TABLE agent_turns (
            row_id {id},
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            turn_key TEXT NOT NULL,
            message_key TEXT NOT NULL,
            seq BIGINT NOT NULL,
            turn_seq BIGINT NOT NULL,
            id TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            tenant_id TEXT,
            step_index BIGINT NOT NULL,
            role TEXT NOT NULL,
            content TEXT,
            content_parts TEXT,
            tool_calls TEXT,
            tool_call_id TEXT,
            tool_name TEXT,
            extra TEXT NOT NULL,
            format INTEGER NOT NULL,
            created_at BIGINT NOT NULL,
            CONSTRAINT agent_turns_once UNIQUE (thread_key, message_key),
            CONSTRAINT agent_turns_seq UNIQUE (thread_key, seq)
        )
        """,
        "CREATE INDEX agent_turns_window ON agent_turns (thread_key, turn_seq, seq)",
        "CREATE INDEX agent_turns_turn ON agent_turns (turn_key, thread_key)",
    ),
    (
        """
        CREATE TABLE ai_call_log (
            row_id {id},
            tenant_key TEXT NOT NULL,
            thread_key TEXT NOT NULL,
            turn_key TEXT NOT NULL,
            task TEXT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            status TEXT NOT NULL,
            created_at BIGINT NOT NULL,
            http_status BIGINT,
            latency_ms BIGINT,
            tokens_in BIGINT,
            tokens_out BIGINT,
            cost_micro_usd BIGINT,
            error_kind TEXT,
            error_message TEXT,
            tenant_id TEXT,
            thread_id TEXT,
            turn_id TEXT
        )
        """,
        "CREATE INDEX ai_call_log_tenant ON ai_call_log (tenant_key, row_id)",
        "CREATE INDEX ai_call_log_thread ON ai_call_log (thread_key)",
        "CREATE INDEX ai_call_log_turn ON ai_call_log (turn_key)",
        "CREATE INDEX ai_call_log_age ON ai_call_log (created_at)",
    ),
    (
        "ALTER TABLE agent_threads ADD COLUMN last_event_seq BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE agent_turns ADD COLUMN replaced INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE agent_runs (
            row_id {id},
            run_key TEXT NOT NULL,
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            message_key TEXT,
            run_id TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            tenant_id TEXT,
            state TEXT NOT NULL,
            policy TEXT NOT NULL,
            message TEXT,
            answers TEXT,
            context TEXT,
            owner TEXT NOT NULL,
            absorbed_by TEXT,
            first_seq BIGINT NOT NULL,
            finish_reason TEXT,
            created_at BIGINT NOT NULL,
            ended_at BIGINT,
            CONSTRAINT agent_runs_run UNIQUE (run_key),
            CONSTRAINT agent_runs_once UNIQUE (thread_key, message_key)
        )
        """,
        "CREATE INDEX agent_runs_thread ON agent_runs (thread_key, row_id)",
        "CREATE INDEX agent_runs_state ON agent_runs (state, row_id)",
        "CREATE INDEX agent_runs_age ON agent_runs (created_at)",
        """
        CREATE TABLE agent_events (
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            seq BIGINT NOT NULL,
            run_key TEXT NOT NULL,
            event_key TEXT NOT NULL,
            type TEXT NOT NULL,
            data TEXT NOT NULL,
            format INTEGER NOT NULL,
            created_at BIGINT NOT NULL,
            PRIMARY KEY (thread_key, seq),
            CONSTRAINT agent_events_once UNIQUE (run_key, event_key)
        )
        """,
        "CREATE INDEX agent_events_age ON agent_events (created_at)",
        """
        CREATE TABLE agent_pending (
            turn_key TEXT NOT NULL,
            call_key TEXT NOT NULL,
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            call TEXT NOT NULL,
            kind TEXT NOT NULL,
            args_hash TEXT NOT NULL,
            expires_at BIGINT NOT NULL,
            answered_by TEXT,
            place INTEGER NOT NULL,
            PRIMARY KEY (turn_key, call_key)
        )
        """,
        "CREATE INDEX agent_pending_thread ON agent_pending (thread_key)",
    ),
    (
        """
        CREATE TABLE message_log (
            row_id {id},
            tenant_key TEXT NOT NULL,
            thread_key TEXT NOT NULL,
            turn_key TEXT NOT NULL,
            message_key TEXT,
            own_key TEXT,
            channel TEXT NOT NULL,
            direction TEXT NOT NULL,
            peer TEXT NOT NULL,
            text TEXT NOT NULL,
            kind TEXT NOT NULL,
            channel_id TEXT,
            own_id TEXT,
            tenant_id TEXT,
            thread_id TEXT,
            turn_id TEXT,
            state TEXT NOT NULL,
            error_message TEXT,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL,
            CONSTRAINT message_log_once UNIQUE (message_key),
            CONSTRAINT message_log_own UNIQUE (own_key)
        )
        """,
        "CREATE INDEX message_log_tenant ON message_log (tenant_key, row_id)",
        "CREATE INDEX message_log_thread ON message_log (thread_key)",
        "CREATE INDEX message_log_turn ON message_log (turn_key)",
        "CREATE INDEX message_log_age ON message_log (created_at)",
    ),
    (
        """
        CREATE TABLE breaker_states (
            provider_key TEXT NOT NULL PRIMARY KEY,
            provider TEXT NOT NULL,
            state TEXT NOT NULL,
            updated_at BIGINT NOT NULL
        )
        """,
    ),
    (
        """
        CREATE TABLE agent_summaries (
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            through_seq BIGINT NOT NULL,
            text TEXT NOT NULL,
            format INTEGER NOT NULL,
            created_at BIGINT NOT NULL,
            PRIMARY KEY (thread_key, through_seq)
        )
        """,
    ),
    (
        """
        CREATE TABLE agent_results (
            thread_key TEXT NOT NULL REFERENCES agent_threads (thread_key) ON DELETE CASCADE,
            result_key TEXT NOT NULL,
            turn_key TEXT NOT NULL,
            text TEXT NOT NULL,
            created_at BIGINT NOT NULL,
            PRIMARY KEY (thread_key, result_key)
        )
        """,
        "CREATE INDEX agent_results_age ON agent_results (created_at)",
    ),
    (
        "ALTER TABLE agent_runs ADD COLUMN stopping INTEGER NOT NULL DEFAULT 0",
        "CREATE TABLE agent_processes (name TEXT NOT NULL PRIMARY KEY, seen_at BIGINT NOT NULL)",
    ),
    # What is old is found by its run; each commit wrote a page of this.
    ("DROP INDEX agent_events_age",),
    (
        """
        CREATE TABLE projects (
            project_key TEXT NOT NULL PRIMARY KEY,
            tenant_key TEXT NOT NULL,
            project_id TEXT NOT NULL,
            tenant_id TEXT,
            name TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL
        )
        """,
        "CREATE INDEX projects_tenant ON projects (tenant_key)",
        """
        CREATE TABLE project_media (
            project_key TEXT NOT NULL REFERENCES projects (project_key) ON DELETE CASCADE,
            media_key TEXT NOT NULL,
            media_id TEXT NOT NULL,
            added_at BIGINT NOT NULL,
            PRIMARY KEY (project_key, media_key)
        )
        """,
        "CREATE INDEX project_media_media ON project_media (media_key)",
        """
        CREATE TABLE transcript_edits (
            media_key TEXT NOT NULL,
            line_key TEXT NOT NULL,
            start_ms BIGINT NOT NULL,
            end_ms BIGINT NOT NULL,
            said TEXT NOT NULL,
            text TEXT NOT NULL,
            updated_at BIGINT NOT NULL,
            PRIMARY KEY (media_key, line_key)
        )
        """,
    ),
    (
        """
        CREATE TABLE transcript_changes (
            media_key TEXT NOT NULL,
            change_key TEXT NOT NULL,
            change_id TEXT NOT NULL,
            made_by TEXT NOT NULL,
            made_at BIGINT NOT NULL,
            lines TEXT NOT NULL,
            PRIMARY KEY (media_key, change_key)
        )
        """,
    ),
)

_IDS = {
    "sqlite": "INTEGER NOT NULL PRIMARY KEY",
    "postgresql": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
}
# Any number, as long as nobody else in the database locks it: the first eight letters of the name.
_LOCK = int.from_bytes(b"playhead", "big")


def migrate(connection: Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring a database to the newest schema, inside the transaction of `connection`.

    Of several that open a database at once one does it and the others wait: on SQLite the
    transaction is an immediate one, on Postgres a lock is taken. Raises `StoreError` when the
    database is at a later schema than this version knows.
    """
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS playhead_schema (version INTEGER NOT NULL PRIMARY KEY)"
    )
    version = connection.execute(select(func.max(schema.c.version))).scalar() or 0
    if version > len(migrations):
        raise StoreError(
            f"The database is at schema {version}, and this version of Playhead knows those up to"
            f" {len(migrations)}: update Playhead, or give it another database."
        )
    for number, statements in enumerate(migrations[version:], version + 1):
        for statement in statements:
            connection.exec_driver_sql(statement.replace("{id}", _IDS[dialect]))
        connection.execute(insert(schema), {"version": number})
