"""An `EditStore` in a database."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.edits import KEPT, By, Change, ChangedLine, Line, LineEdit, changed_lines, taken_back
from playhead.storage.engine import Database
from playhead.storage.tables import key_of, transcript_changes, transcript_edits

_held = transcript_edits.c
_made = transcript_changes.c
_OF_MEDIA = (
    select(_held.start_ms, _held.end_ms, _held.said, _held.text)
    .where(_held.media_key == bindparam("of_media"))
    .order_by(_held.start_ms, _held.end_ms, _held.said)
)
_DROP = delete(transcript_edits).where(
    _held.media_key == bindparam("of_media"), _held.line_key == bindparam("of_line")
)
_CHANGES = (
    select(_made.change_id, _made.made_by, _made.made_at, _made.lines)
    .where(_made.media_key == bindparam("of_media"))
    .order_by(_made.made_at.desc(), _made.change_key)
)
_CHANGE = _CHANGES.where(_made.change_key == bindparam("of_change"))
_DROP_CHANGE = delete(transcript_changes).where(
    _made.media_key == bindparam("of_media"), _made.change_key == bindparam("of_change")
)
_TIMES = (
    select(_made.change_key, _made.made_at)
    .where(_made.media_key == bindparam("of_media"))
    .order_by(_made.made_at.desc(), _made.change_key)
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[ChangedLine]).decode


class SQLEditStore:
    """Edits in a database, the same on SQLite and on Postgres.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        put, keep = insert(transcript_edits), insert(transcript_changes)
        # Of two processes that write one line at once, the later one stands.
        self._put = put.on_conflict_do_update(
            index_elements=[_held.media_key, _held.line_key],
            set_={"text": put.excluded.text, "updated_at": put.excluded.updated_at},
        )
        self._keep = keep.on_conflict_do_update(
            index_elements=[_made.media_key, _made.change_key],
            set_={"made_at": keep.excluded.made_at, "lines": keep.excluded.lines},
        )

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """See `EditStore.edits`."""
        of = {"of_media": key_of(tenant_id, media_id)}
        rows = await self._database.read(lambda connection: connection.execute(_OF_MEDIA, of).all())
        return [LineEdit(*row) for row in rows]

    async def write(
        self,
        media_id: str,
        edits: Sequence[LineEdit],
        *,
        change: str,
        by: By = "person",
        tenant_id: str | None = None,
    ) -> None:
        """See `EditStore.write`."""
        key, change_key = key_of(tenant_id, media_id), key_of(change)
        # What is read back names the line, so the key is made of that too.
        edits = [LineEdit(e.start_ms, e.end_ms, scrub(e.said), scrub(e.text)) for e in edits]

        def work(connection: Connection) -> None:
            of = {"of_media": key, "of_change": change_key}
            old = connection.execute(_CHANGE, of).first()
            lines = changed_lines(_lines(connection, key), edits, () if old is None else _decode(old.lines))
            self._write(connection, key, edits)
            connection.execute(_DROP_CHANGE, of)
            last = connection.execute(_TIMES, of).all()
            if too_old := [{**of, "of_change": row.change_key} for row in last[KEPT - 1 :]]:
                connection.execute(_DROP_CHANGE, too_old)
            if lines:
                row = {
                    "media_key": key,
                    "change_key": change_key,
                    "change_id": scrub(change),
                    "made_by": by,
                    # Of two in one millisecond the later one is the newer one.
                    "made_at": max(now_ms(), last[0].made_at + 1 if last else 0),
                    "lines": _encode(lines).decode(),
                }
                connection.execute(self._keep, row)

        await self._database.write(work, order=key)

    async def changes(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[Change]:
        """See `EditStore.changes`."""
        of = {"of_media": key_of(tenant_id, media_id)}
        rows = await self._database.read(lambda connection: connection.execute(_CHANGES, of).all())
        return [Change(row.change_id, row.made_by, row.made_at, _decode(row.lines)) for row in rows]

    async def undo(
        self, media_id: str, change: str, *, tenant_id: str | None = None
    ) -> Sequence[LineEdit] | None:
        """See `EditStore.undo`."""
        key = key_of(tenant_id, media_id)
        of = {"of_media": key, "of_change": key_of(change)}

        def work(connection: Connection) -> Sequence[LineEdit] | None:
            found = connection.execute(_CHANGE, of).first()
            if found is None:
                return None
            back = taken_back(_lines(connection, key), _decode(found.lines))
            self._write(connection, key, back)
            connection.execute(_DROP_CHANGE, of)
            return back

        return await self._database.write(work, order=key)

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `EditStore.forget`."""
        key = key_of(tenant_id, media_id)

        def work(connection: Connection) -> None:
            connection.execute(delete(transcript_edits).where(_held.media_key == key))
            connection.execute(delete(transcript_changes).where(_made.media_key == key))

        await self._database.write(work, order=key)

    def _write(self, connection: Connection, key: str, edits: Sequence[LineEdit]) -> None:
        now = now_ms()
        rows: list[dict[str, Any]] = [
            {
                "media_key": key,
                "line_key": key_of(str(edit.start_ms), str(edit.end_ms), edit.said),
                "start_ms": edit.start_ms,
                "end_ms": edit.end_ms,
                "said": edit.said,
                "text": edit.text,
                "updated_at": now,
            }
            for edit in edits
        ]
        gone = [{"of_media": key, "of_line": row["line_key"]} for row in rows if row["text"] == row["said"]]
        kept = [row for row in rows if row["text"] != row["said"]]
        if gone:
            connection.execute(_DROP, gone)
        if kept:
            connection.execute(self._put, kept)


def _lines(connection: Connection, key: str) -> dict[Line, LineEdit]:
    rows = connection.execute(_OF_MEDIA, {"of_media": key}).all()
    return {edit.line: edit for edit in (LineEdit(*row) for row in rows)}
