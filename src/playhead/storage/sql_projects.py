"""A `ProjectStore` in a database."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.engine import Database
from playhead.storage.projects import Project, no_project
from playhead.storage.tables import key_of, project_media, projects

_held = projects.c
_media = project_media.c
_COLUMNS = (_held.project_id, _held.name, _held.thread_id, _held.created_at, _held.updated_at)
_ONE = select(*_COLUMNS).where(_held.project_key == bindparam("of_project"))
_ALL = (
    select(*_COLUMNS)
    .where(_held.tenant_key == bindparam("of_tenant"))
    .order_by(_held.created_at, _held.project_id)
)
_MEDIA = (
    select(_media.media_id)
    .where(_media.project_key == bindparam("of_project"))
    .order_by(_media.added_at, _media.media_id)
)
_MINE = select(_held.project_key).where(_held.tenant_key == bindparam("of_tenant"))
_PLACED = select(_media.media_id).where(_media.project_key.in_(_MINE))
_DROP = delete(project_media).where(
    _media.project_key == bindparam("of_project"), _media.media_key == bindparam("of_media")
)


class SQLProjectStore:
    """Projects in a database, the same on SQLite and on Postgres.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        self._insert = insert(projects).on_conflict_do_nothing()
        self._place = insert(project_media).on_conflict_do_nothing()

    async def create(self, project: Project, *, tenant_id: str | None = None) -> Project:
        """See `ProjectStore.create`."""
        key, now = key_of(tenant_id, project.id), now_ms()
        row = {
            "project_key": key,
            "tenant_key": key_of(tenant_id),
            "project_id": scrub(project.id),
            "tenant_id": None if tenant_id is None else scrub(tenant_id),
            "name": scrub(project.name),
            "thread_id": scrub(project.thread_id),
            "created_at": now,
            "updated_at": now,
        }

        def work(connection: Connection) -> Project:
            connection.execute(self._insert, row)
            return _there(connection, key, project.id)

        return await self._database.write(work, order=key)

    async def list(self, *, tenant_id: str | None = None) -> Sequence[Project]:
        """See `ProjectStore.list`."""
        of = {"of_tenant": key_of(tenant_id)}
        rows = await self._database.read(lambda connection: connection.execute(_ALL, of).all())
        return [Project(*row) for row in rows]

    async def get(self, project_id: str, *, tenant_id: str | None = None) -> Project | None:
        """See `ProjectStore.get`."""
        of = {"of_project": key_of(tenant_id, project_id)}
        row = await self._database.read(lambda connection: connection.execute(_ONE, of).first())
        return None if row is None else Project(*row)

    async def change(
        self,
        project_id: str,
        *,
        name: str | None = None,
        thread_id: str | None = None,
        tenant_id: str | None = None,
    ) -> Project:
        """See `ProjectStore.change`."""
        key = key_of(tenant_id, project_id)
        given = {"name": name, "thread_id": thread_id}
        values: dict[str, Any] = {column: scrub(text) for column, text in given.items() if text is not None}
        values["updated_at"] = now_ms()

        def work(connection: Connection) -> Project:
            connection.execute(update(projects).where(_held.project_key == key).values(values))
            return _there(connection, key, project_id)

        return await self._database.write(work, order=key)

    async def delete(self, project_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.delete`."""
        key = key_of(tenant_id, project_id)

        def work(connection: Connection) -> None:
            _there(connection, key, project_id)
            connection.execute(delete(projects).where(_held.project_key == key))

        await self._database.write(work, order=key)

    async def put_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.put_media`."""
        key = key_of(tenant_id, project_id)
        row = {
            "project_key": key,
            "media_key": key_of(tenant_id, media_id),
            "media_id": scrub(media_id),
            "added_at": now_ms(),
        }

        def work(connection: Connection) -> None:
            _there(connection, key, project_id)
            connection.execute(self._place, row)

        await self._database.write(work, order=key)

    async def drop_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> bool:
        """See `ProjectStore.drop_media`."""
        key = key_of(tenant_id, project_id)
        which = {"of_project": key, "of_media": key_of(tenant_id, media_id)}
        return await self._database.write(
            lambda connection: connection.execute(_DROP, which).rowcount > 0, order=key
        )

    async def media(self, project_id: str, *, tenant_id: str | None = None) -> Sequence[str]:
        """See `ProjectStore.media`."""
        of = {"of_project": key_of(tenant_id, project_id)}
        return await self._database.read(lambda connection: connection.execute(_MEDIA, of).scalars().all())

    async def placed(self, *, tenant_id: str | None = None) -> frozenset[str]:
        """See `ProjectStore.placed`."""
        of = {"of_tenant": key_of(tenant_id)}
        return await self._database.read(
            lambda connection: frozenset(connection.execute(_PLACED, of).scalars())
        )

    async def forget_media(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.forget_media`."""
        key = key_of(tenant_id, media_id)

        def work(connection: Connection) -> None:
            connection.execute(delete(project_media).where(_media.media_key == key))

        await self._database.write(work)


def _there(connection: Connection, key: str, project_id: str) -> Project:
    row = connection.execute(_ONE, {"of_project": key}).first()
    if row is None:
        raise no_project(project_id)
    return Project(*row)
