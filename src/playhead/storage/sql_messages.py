"""A `MessageLog` in a database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Delete, Row, bindparam, case, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.engine import Database
from playhead.storage.messages import (
    ANY_MESSAGE,
    DEFAULT_MESSAGES,
    Added,
    ChannelMessage,
    MessageFilter,
    MessageId,
    MessageRow,
    MessageState,
    after,
    check_id,
    clean_message,
    first_state,
    id_is_taken,
)
from playhead.storage.tables import key_of, message_log

_log = message_log.c
_FIELDS = ChannelMessage.__struct_fields__
_STATE = ("state", "error_message", "created_at", "updated_at")
_READ = select(_log.row_id, *(_log[name] for name in (*_FIELDS, *_STATE)))
_is_own = _log.own_key == bindparam("own_key")
# Two rows when the ids are those of two messages: the one of our own id is meant, and comes first.
_HELD = _READ.where(or_(_is_own, _log.message_key == bindparam("message_key"))).order_by(
    case((_is_own, 0), else_=1)
)
_TAKEN = select(_log.row_id).where(_log.message_key == bindparam("message_key"))


class NewMessage(msgspec.Struct, frozen=True):
    """A row that is ready to be written: columns of `message_log`, and the message that will be read."""

    message: ChannelMessage
    columns: Mapping[str, Any]

    @property
    def order(self) -> str:
        """What `Database.write` takes as its `order`."""
        return _order(self.columns)


def prepare_message(message: ChannelMessage) -> NewMessage:
    """Return what `SQLMessageLog.put` writes. Raises `StoreError` as `MessageLog.add` does."""
    kept, now = clean_message(message), now_ms()
    columns = {
        **msgspec.structs.asdict(kept),
        **_keys(message.id, message.tenant_id),
        "tenant_key": key_of(message.tenant_id),
        "thread_key": key_of(message.thread_id),
        "turn_key": key_of(message.turn_id),
        "state": first_state(kept),
        "created_at": now,
        "updated_at": now,
    }
    return NewMessage(kept, columns)


class SQLMessageLog:
    """Messages of channels in a database.

    Args:
        database: what `open_database` returned. It is not closed with the log.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        self._insert = insert(message_log).on_conflict_do_nothing().returning(_log.row_id)

    async def add(self, message: ChannelMessage) -> Added:
        """See `MessageLog.add`."""
        new = prepare_message(message)
        return await self._database.write(lambda connection: self.put(connection, new), order=new.order)

    def put(self, connection: Connection, new: NewMessage) -> Added:
        """Add a message within a `Database.write`, together with whatever else that writes."""
        columns = new.columns
        row_id = connection.execute(self._insert, dict(columns)).scalar()
        if row_id is None:
            keys = {"own_key": columns["own_key"], "message_key": columns["message_key"]}
            return Added(_row(connection.execute(_HELD, keys).all()[0]), False)
        written: int = columns["created_at"]
        return Added(MessageRow(row_id, new.message, columns["state"], None, written, written), True)

    async def set_state(
        self,
        which: MessageId,
        state: MessageState,
        *,
        error: str | None = None,
        turn_id: str | None = None,
        tenant_id: str | None = None,
    ) -> MessageRow | None:
        """See `MessageLog.set_state`."""
        check_id(which, state)
        keys = _keys(which, tenant_id)

        def tell(connection: Connection) -> MessageRow | None:
            # On SQLite the whole database is locked, and the compiler leaves the words out.
            held = connection.execute(_HELD.with_for_update(), keys).all()
            if not held:
                return None
            before = _row(held[0])
            row = after(before, which, state, error, turn_id, now_ms())
            if row is before:
                return row
            values = {name: getattr(row, name) for name in _STATE}
            if row.message.turn_id != before.message.turn_id:
                values |= {"turn_id": row.message.turn_id, "turn_key": key_of(turn_id)}
            if row.message.channel_id != before.message.channel_id:
                if connection.execute(_TAKEN, {"message_key": keys["message_key"]}).first() is not None:
                    raise id_is_taken(which)
                values |= {"channel_id": row.message.channel_id, "message_key": keys["message_key"]}
            statement = update(message_log).where(_log.row_id == row.row_id).values(values)
            connection.execute(statement)
            return row

        return await self._database.write(tell, order=_order(keys))

    async def find(self, which: MessageId, *, tenant_id: str | None = None) -> MessageRow | None:
        """See `MessageLog.find`."""
        check_id(which)
        keys = _keys(which, tenant_id)
        held = await self._database.read(lambda connection: connection.execute(_HELD, keys).all())
        return _row(held[0]) if held else None

    async def messages(
        self,
        which: MessageFilter = ANY_MESSAGE,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_MESSAGES,
        before: int | None = None,
    ) -> Sequence[MessageRow]:
        """See `MessageLog.messages`."""
        query = _READ.where(*_where(which, tenant_id)).order_by(_log.row_id.desc()).limit(max(limit, 0))
        if before is not None:
            query = query.where(_log.row_id < before)
        found = await self._database.read(lambda connection: connection.execute(query).all())
        return [_row(row) for row in found]

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `MessageLog.delete_thread`."""
        return await self._delete(_log.thread_key == key_of(thread_id), _log.tenant_key == key_of(tenant_id))

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `MessageLog.delete_tenant`."""
        return await self._delete(_log.tenant_key == key_of(tenant_id))

    async def delete_before(self, created_at: int) -> int:
        """See `MessageLog.delete_before`."""
        return await self._delete(_log.created_at < created_at)

    async def _delete(self, *which: ColumnElement[bool]) -> int:
        statement: Delete = delete(message_log).where(*which)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)


def _keys(which: MessageId, tenant_id: str | None) -> dict[str, str | None]:
    ids = {"own_key": which.own_id, "message_key": which.channel_id}
    return {
        name: None if id is None else key_of(tenant_id, which.channel, which.direction, id)
        for name, id in ids.items()
    }


def _order(keys: Mapping[str, Any]) -> str:
    key: str = keys["own_key"] or keys["message_key"]
    return key


def _row(found: Row[Any]) -> MessageRow:
    row_id, *columns = tuple(found)
    return MessageRow(row_id, ChannelMessage(*columns[: len(_FIELDS)]), *columns[len(_FIELDS) :])


def _where(which: MessageFilter, tenant_id: str | None) -> Sequence[ColumnElement[bool]]:
    names = ("channel", "direction", "peer", "kind", "state")
    wanted = {_log[name]: scrub(value) for name in names if (value := getattr(which, name)) is not None}
    if not which.all_tenants:
        wanted[_log.tenant_key] = key_of(tenant_id)
    if which.thread_id is not None:
        wanted[_log.thread_key] = key_of(which.thread_id)
    if which.turn_id is not None:
        wanted[_log.turn_key] = key_of(which.turn_id)
    where = [column == value for column, value in wanted.items()]
    if which.since is not None:
        where.append(_log.created_at >= which.since)
    if which.until is not None:
        where.append(_log.created_at < which.until)
    return where
