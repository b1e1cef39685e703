"""Projects, the media in them, and the lines that people wrote anew."""

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from playhead.errors import StoreError
from playhead.session.opening import Books, open_books
from playhead.storage.edits import KEPT, LineEdit
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
    await store.write("m1", [second], change="1")
    await store.write("m1", [first], change="2")
    await store.write("m1", [LineEdit(0, 900, "helo", "Hello!")], change="3")
    assert await store.edits("m1") == [LineEdit(0, 900, "helo", "Hello!"), second]
    assert list(await store.edits("m1", tenant_id="acme")) == []
    await store.write("m1", [LineEdit(900, 2_000, "other words", "world")], change="4")
    assert len(await store.edits("m1")) == 3, "a line of another transcript is another line"
    await store.write("m1", [LineEdit(0, 900, "helo", "helo")], change="5")
    assert [edit.start_ms for edit in await store.edits("m1")] == [900, 900]
    await store.forget("m1")
    assert (list(await store.edits("m1")), list(await store.changes("m1"))) == ([], [])


A, B, C = (LineEdit(at, at + 900, said, said) for at, said in ((0, "a"), (1_000, "b"), (2_000, "c")))


def texts(edits: Sequence[LineEdit]) -> list[tuple[str, str]]:
    return [(edit.said, edit.text) for edit in edits]


async def test_what_was_written_in_one_go_is_taken_back_in_one(books: Books) -> None:
    """Check 21: a turn of the agent is one change, whatever it wrote in it, and the newest comes first."""
    store = books.edits
    await store.write("m1", [replace(A, text="by hand")], change="p")
    await store.write("m1", [replace(A, text="a1"), replace(B, text="b1")], change="turn", by="agent")
    await store.write("m1", [replace(B, text="b2"), replace(C, text="c2")], change="turn", by="agent")
    newest, first = await store.changes("m1")
    assert (newest.id, newest.by, first.id, first.by) == ("turn", "agent", "p", "person")
    assert newest.at > first.at > 0
    assert [(line.said, line.before, line.text) for line in newest.lines] == [
        ("a", "by hand", "a1"),
        ("b", "b", "b2"),
        ("c", "c", "c2"),
    ]
    assert await store.undo("m1", "turn", tenant_id="acme") is None, "it is another tenant's"
    back = await store.undo("m1", "turn")
    assert back is not None
    assert texts(back) == [("a", "by hand"), ("b", "b"), ("c", "c")]
    assert texts(await store.edits("m1")) == [("a", "by hand")]
    assert [change.id for change in await store.changes("m1")] == ["p"]
    assert await store.undo("m1", "turn") is None
    assert texts(await store.undo("m1", "p") or ()) == [("a", "a")]
    assert list(await store.edits("m1")) == []


async def test_taking_back_leaves_what_somebody_wrote_since(books: Books) -> None:
    """Check 21: the agent's change is undone, and not the person's over it."""
    store = books.edits
    await store.write("m1", [replace(A, text="a1"), replace(B, text="b1")], change="turn", by="agent")
    await store.write("m1", [replace(A, text="mine")], change="p")
    assert texts(await store.undo("m1", "turn") or ()) == [("b", "b")]
    assert texts(await store.edits("m1")) == [("a", "mine")]
    assert texts(await store.undo("m1", "p") or ()) == [("a", "a1")]


async def test_what_changes_nothing_is_no_change_and_the_oldest_are_given_up(books: Books) -> None:
    """Check 21: a list of changes does not grow for ever, and holds nothing that cannot be seen."""
    store = books.edits
    await store.write("m1", [A], change="nothing")
    await store.write("m1", [replace(A, text="x")], change="turn", by="agent")
    await store.write("m1", [A], change="turn", by="agent")
    assert list(await store.changes("m1")) == []
    for n in range(KEPT + 3):
        await store.write("m1", [replace(A, text=f"a{n}")], change=f"c{n}")
    assert [change.id for change in await store.changes("m1")] == [f"c{n}" for n in range(KEPT + 2, 2, -1)]
