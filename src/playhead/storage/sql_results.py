"""A `ResultStore` in a database."""

from collections.abc import Mapping

from sqlalchemy import (
    Connection,
    Delete,
    Integer,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.engine import Database
from playhead.storage.results import ResultPage, no_turn
from playhead.storage.tables import agent_results, agent_threads, agent_turns, key_of

_results = agent_results.c
_HIGHEST = 2**31 - 2  # no text is as long, and no database counts further in one
_COPIED = ("thread_key", "result_key", "turn_key", "text", "created_at")
# A database counts characters from 1, and reads no more of the text than it returns.
_PAGE = select(
    func.substr(_results.text, bindparam("first", type_=Integer), bindparam("most", type_=Integer)),
    func.length(_results.text),
).where(_results.thread_key == bindparam("of_thread"), _results.result_key == bindparam("of_result"))
_TURNS = select(_results.turn_key).where(_results.thread_key == bindparam("of_thread")).distinct()
# On Postgres this keeps others from deleting the thread until the transaction ends.
_THERE = (
    select(agent_threads.c.thread_key)
    .where(
        agent_threads.c.thread_key == bindparam("of_thread"),
        exists().where(
            agent_turns.c.thread_key == bindparam("of_thread"), agent_turns.c.turn_key == bindparam("of_turn")
        ),
    )
    .with_for_update(read=True)
)


class SQLResultStore:
    """Results in a database, the same on SQLite and on Postgres.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        upsert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        self._put = upsert(agent_results).on_conflict_do_nothing()

    async def put(
        self, thread_id: str, result_id: str, text: str, *, turn_id: str, tenant_id: str | None = None
    ) -> None:
        """See `ResultStore.put`."""
        thread_key = key_of(tenant_id, thread_id)
        row = {
            "thread_key": thread_key,
            "result_key": key_of(result_id),
            "turn_key": key_of(tenant_id, turn_id),
            "text": scrub(text),
            "created_at": now_ms(),
        }

        def work(connection: Connection) -> None:
            turn = {"of_thread": thread_key, "of_turn": row["turn_key"]}
            if connection.execute(_THERE, turn).first() is None:
                raise no_turn(turn_id)
            connection.execute(self._put, row)

        await self._database.write(work, order=thread_key)

    async def page(
        self, thread_id: str, result_id: str, offset: int, limit: int, *, tenant_id: str | None = None
    ) -> ResultPage | None:
        """See `ResultStore.page`."""
        which = {"of_thread": key_of(tenant_id, thread_id), "of_result": key_of(result_id)}
        values = {**which, "first": min(offset, _HIGHEST) + 1, "most": min(limit, _HIGHEST)}
        row = await self._database.read(lambda connection: connection.execute(_PAGE, values).first())
        return None if row is None else ResultPage(*row)

    def copy(self, connection: Connection, source: str, target: str, turns: Mapping[str, str]) -> None:
        """Copy, within a `Database.write`, those of a thread's key that belong to some turns.

        `turns` says what key each turn has in the target.
        """
        for (old,) in connection.execute(_TURNS, {"of_thread": source}).all():
            if old in turns:
                values = (literal(target), _results.result_key, literal(turns[old]))
                mine = select(*values, _results.text, _results.created_at).where(
                    _results.thread_key == source, _results.turn_key == old
                )
                connection.execute(insert(agent_results).from_select(list(_COPIED), mine))


def forget_results(created_at: int) -> Delete:
    """The statement that deletes those older than a time, in milliseconds, whose turn is gone."""
    turn = exists().where(
        agent_turns.c.thread_key == _results.thread_key, agent_turns.c.turn_key == _results.turn_key
    )
    return delete(agent_results).where(_results.created_at < created_at, ~turn)
