"""Projects, the media in them, and the lines that people wrote anew."""

from collections.abc import AsyncIterator

import pytest

from playhead.errors import StoreError
from playhead.session.opening import Books, open_books
from playhead.storage.edits import LineEdit
from playhead.storage.projects import Project

pytestmark = pytest.mark.anyio


@pytest.fixture
async def books(store_url: str | None) -> AsyncIterator[Books]:
    opened = await open_books(store_url, 200, 900)
    yield opened
    if opened.database is not None:
        await opened.database.aclose()
    if opened.listening is not None:
        await opened.listening.aclose()


async def test_projects_are_made_changed_and_deleted_each_tenant_by_itself(books: Books) -> None:
    """Issue 7, 2: several projects; what one tenant does is not seen by another."""
    store = books.projects
    film = await store.create(Project("p1", "My film \N{CLAPPER BOARD}", "t1"))
    assert film.created_at > 0
    assert await store.create(Project("p1", "Another", "t9")) == film
    await store.create(Project("p1", "Theirs", "t1"), tenant_id="acme")
    await store.create(Project("p2", "Second", "t2"))
    assert [project.name for project in await store.list()] == [film.name, "Second"]
    assert [project.name for project in await store.list(tenant_id="acme")] == ["Theirs"]
    changed = await store.change("p1", name="Renamed")
    assert (changed.name, changed.thread_id) == ("Renamed", "t1")
    assert (await store.change("p1", thread_id="t3")).name == "Renamed"
    found = await store.get("p1", tenant_id="acme")
    assert found is not None
    assert found.name == "Theirs"
    await store.delete("p1")
    assert await store.get("p1") is None
    assert await store.get("p1", tenant_id="acme") == found
    for work in (store.change("p1", name="x"), store.delete("p1"), store.put_media("p1", "m1")):
        with pytest.raises(StoreError, match="no project with the id 'p1'") as caught:
            await work
        assert caught.value.code == "not_found"


async def test_media_are_in_projects_in_their_order_and_leave_with_them(books: Books) -> None:
    """Issue 7, 2: a file may be in several; one that is put in again stays in its place."""
    store = books.projects
    for id in ("p1", "p2"):
        await store.create(Project(id, id, id))
    for media in ("m1", "m2", "m1"):
        await store.put_media("p1", media)
    await store.put_media("p2", "m2")
    assert list(await store.media("p1")) == ["m1", "m2"]
    assert await store.placed() == {"m1", "m2"}
    assert await store.placed(tenant_id="acme") == frozenset()
    assert [await store.drop_media("p1", "m1") for _ in range(2)] == [True, False]
    assert await store.placed() == {"m2"}
    await store.delete("p2")
    assert list(await store.media("p2")) == []
    assert list(await store.media("p1")) == ["m2"]
    await store.forget_media("m2")
    assert await store.placed() == frozenset()


async def test_an_edit_is_kept_beside_what_was_said(books: Books) -> None:
    """Issue 7, 2: by line, the last one counts, and writing what was said takes it back."""
    store = books.edits
    first, second = LineEdit(0, 900, "helo", "hello"), LineEdit(900, 2_000, "wurld", "world")
    await store.put("m1", second)
    await store.put("m1", first)
    await store.put("m1", LineEdit(0, 900, "helo", "Hello!"))
    assert await store.edits("m1") == [LineEdit(0, 900, "helo", "Hello!"), second]
    assert list(await store.edits("m1", tenant_id="acme")) == []
    await store.put("m1", LineEdit(900, 2_000, "other words", "world"))
    assert len(await store.edits("m1")) == 3, "a line of another transcript is another line"
    await store.put("m1", LineEdit(0, 900, "helo", "helo"))
    assert [edit.start_ms for edit in await store.edits("m1")] == [900, 900]
    await store.forget("m1")
    assert list(await store.edits("m1")) == []
