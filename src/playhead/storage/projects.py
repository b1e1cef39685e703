"""Projects: a name, a conversation, and the ids of the media that belong to it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from playhead.errors import StoreError
from playhead.ids import now_ms
from playhead.storage.ledger import coded


class Project(msgspec.Struct, frozen=True, rename="camel"):
    """A project. `thread_id` is its conversation; times are in milliseconds since 1970."""

    id: str
    name: str
    thread_id: str
    created_at: int = 0
    updated_at: int = 0


class ProjectStore(Protocol):
    """The projects of each tenant. Tenants never see each other.

    A file may be in several projects. Each method raises `StoreError` when the store cannot be read
    or written, and with the code `not_found` for a project that is not there.
    """

    async def create(self, project: Project, *, tenant_id: str | None = None) -> Project:
        """Add a project and return it; one that is there already stays as it is, and is returned."""
        ...

    async def list(self, *, tenant_id: str | None = None) -> Sequence[Project]:
        """Return all, oldest first."""
        ...

    async def get(self, project_id: str, *, tenant_id: str | None = None) -> Project | None:
        """Return one, or None."""
        ...

    async def change(
        self,
        project_id: str,
        *,
        name: str | None = None,
        thread_id: str | None = None,
        tenant_id: str | None = None,
    ) -> Project:
        """Give it another name, or another conversation."""
        ...

    async def delete(self, project_id: str, *, tenant_id: str | None = None) -> None:
        """Forget a project, not its media."""
        ...

    async def put_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> None:
        """Put a file into a project; one that is in it stays where it is."""
        ...

    async def drop_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> bool:
        """Take a file out of a project, and say whether it was in it."""
        ...

    async def media(self, project_id: str, *, tenant_id: str | None = None) -> Sequence[str]:
        """Return the ids of its media in the order in which they were put in."""
        ...

    async def placed(self, *, tenant_id: str | None = None) -> frozenset[str]:
        """Return the ids of all media that are in any project of the tenant."""
        ...

    async def forget_media(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """Take a file out of all projects of the tenant."""
        ...


def no_project(project_id: str) -> StoreError:
    """Return the error of a project that is not there."""
    text = f"There is no project with the id {project_id[:100]!r}; it may have been deleted."
    return coded("not_found", text)


class MemoryProjectStore:
    """Projects in memory."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, str], Project] = {}
        self._media: dict[tuple[str | None, str], dict[str, None]] = {}

    async def create(self, project: Project, *, tenant_id: str | None = None) -> Project:
        """See `ProjectStore.create`."""
        now = now_ms()
        made = replace(project, created_at=now, updated_at=now)
        return self._held.setdefault((tenant_id, project.id), made)

    async def list(self, *, tenant_id: str | None = None) -> Sequence[Project]:
        """See `ProjectStore.list`."""
        mine = [project for (tenant, _), project in self._held.items() if tenant == tenant_id]
        return sorted(mine, key=lambda project: (project.created_at, project.id))

    async def get(self, project_id: str, *, tenant_id: str | None = None) -> Project | None:
        """See `ProjectStore.get`."""
        return self._held.get((tenant_id, project_id))

    async def change(
        self,
        project_id: str,
        *,
        name: str | None = None,
        thread_id: str | None = None,
        tenant_id: str | None = None,
    ) -> Project:
        """See `ProjectStore.change`."""
        held = self._there(project_id, tenant_id)
        changed = replace(
            held,
            name=held.name if name is None else name,
            thread_id=held.thread_id if thread_id is None else thread_id,
            updated_at=now_ms(),
        )
        self._held[tenant_id, project_id] = changed
        return changed

    async def delete(self, project_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.delete`."""
        self._there(project_id, tenant_id)
        del self._held[tenant_id, project_id]
        self._media.pop((tenant_id, project_id), None)

    async def put_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.put_media`."""
        self._there(project_id, tenant_id)
        self._media.setdefault((tenant_id, project_id), {}).setdefault(media_id)

    async def drop_media(self, project_id: str, media_id: str, *, tenant_id: str | None = None) -> bool:
        """See `ProjectStore.drop_media`."""
        held = self._media.get((tenant_id, project_id), {})
        there = media_id in held
        held.pop(media_id, None)
        return there

    async def media(self, project_id: str, *, tenant_id: str | None = None) -> Sequence[str]:
        """See `ProjectStore.media`."""
        return tuple(self._media.get((tenant_id, project_id), ()))

    async def placed(self, *, tenant_id: str | None = None) -> frozenset[str]:
        """See `ProjectStore.placed`."""
        return frozenset(
            id for (tenant, _), held in self._media.items() if tenant == tenant_id for id in held
        )

    async def forget_media(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `ProjectStore.forget_media`."""
        for (tenant, _), held in self._media.items():
            if tenant == tenant_id:
                held.pop(media_id, None)

    def _there(self, project_id: str, tenant_id: str | None) -> Project:
        held = self._held.get((tenant_id, project_id))
        if held is None:
            raise no_project(project_id)
        return held
