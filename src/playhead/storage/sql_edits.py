"""An `EditStore` in a database."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.edits import LineEdit
from playhead.storage.engine import Database
from playhead.storage.tables import key_of, transcript_edits

_held = transcript_edits.c
_OF_MEDIA = (
    select(_held.start_ms, _held.end_ms, _held.said, _held.text)
    .where(_held.media_key == bindparam("of_media"))
    .order_by(_held.start_ms, _held.end_ms, _held.said)
)
_DROP = delete(transcript_edits).where(
    _held.media_key == bindparam("of_media"), _held.line_key == bindparam("of_line")
)


class SQLEditStore:
    """Edits in a database, the same on SQLite and on Postgres.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """See `EditStore.edits`."""
        of = {"of_media": key_of(tenant_id, media_id)}
        rows = await self._database.read(lambda connection: connection.execute(_OF_MEDIA, of).all())
        return [LineEdit(*row) for row in rows]

    async def put(self, media_id: str, edit: LineEdit, *, tenant_id: str | None = None) -> None:
        """See `EditStore.put`."""
        key = key_of(tenant_id, media_id)
        # What is read back names the line, so the key is made of that too.
        said, text = scrub(edit.said), scrub(edit.text)
        row = {
            "media_key": key,
            "line_key": key_of(str(edit.start_ms), str(edit.end_ms), said),
            "start_ms": edit.start_ms,
            "end_ms": edit.end_ms,
            "said": said,
            "text": text,
            "updated_at": now_ms(),
        }

        def work(connection: Connection) -> None:
            connection.execute(_DROP, {"of_media": key, "of_line": row["line_key"]})
            if text != said:
                connection.execute(insert(transcript_edits), row)

        await self._database.write(work, order=key)

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `EditStore.forget`."""
        key = key_of(tenant_id, media_id)

        def work(connection: Connection) -> None:
            connection.execute(delete(transcript_edits).where(_held.media_key == key))

        await self._database.write(work, order=key)
