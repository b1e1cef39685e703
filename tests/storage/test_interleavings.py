"""Whatever is written in whatever order: a database holds what the memory store does."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.storage.base import TurnRow, TurnStore
from playhead.storage.engine import open_database
from playhead.storage.memory import MemoryTurnStore
from playhead.storage.turns import SQLTurnStore
from playhead.types import AssistantMessage, ChatMessage, ToolCall, UserMessage
from tests.support.databases import DATABASES, new_url

Plan: TypeAlias = list[tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]]

THREADS = ("t", "u", "v")
TENANTS = (None, "acme")

# Without NUL, which only databases replace.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
# An append: thread, tenant, message id, turn, and what is said.
appends = st.tuples(
    st.sampled_from(THREADS),
    st.sampled_from(TENANTS),
    st.integers(0, 12),
    st.integers(0, 2),
    st.one_of(words, st.dictionaries(words, st.integers(), max_size=3)),
)
deletions = st.one_of(
    st.tuples(st.just("thread"), st.sampled_from(THREADS), st.sampled_from(TENANTS)),
    st.tuples(st.just("tenant"), st.sampled_from(TENANTS)),
)
# Appends of one group are under way at the same time; then, perhaps, something is deleted.
plans = st.lists(st.tuples(st.lists(appends, max_size=12), st.none() | deletions), min_size=1, max_size=6)


def message(number: int, said: Any) -> ChatMessage:
    """The same each time, whoever writes it: what a retry sends may still say something else."""
    if isinstance(said, str):
        return UserMessage(said, id=f"m{number}", timestamp=number)
    return AssistantMessage("", (ToolCall("c", "f", said),), id=f"m{number}", timestamp=number)


async def write(store: TurnStore, thread: str, tenant: str | None, number: int, turn: int, said: Any) -> int:
    turn_id = f"{thread}/{turn}"
    row = await store.append(
        thread, message(number, said), turn_id=turn_id, step_index=turn, tenant_id=tenant
    )
    return row.seq


async def delete(store: TurnStore, what: str, *which: Any) -> int:
    if what == "thread":
        return await store.delete_thread(which[0], tenant_id=which[1])
    return await store.delete_tenant(which[0])


def shown(rows: Sequence[TurnRow]) -> list[bytes]:
    return [msgspec.json.encode(msgspec.structs.replace(row, created_at=0)) for row in rows]


async def everything(store: TurnStore) -> list[list[bytes]]:
    found = []
    for thread, tenant in itertools.product(THREADS, TENANTS):
        for turns, before in ((None, None), (2, None), (1, 4), (None, 3)):
            window = await store.window(thread, turns=turns, before_seq=before, tenant_id=tenant)
            found.append(shown(window))
        found += [shown(await store.turn(f"{thread}/{turn}", tenant_id=tenant)) for turn in range(3)]
    return found


async def compare(store: TurnStore, plan: Plan) -> None:
    memory = MemoryTurnStore()
    for group, deletion in plan:
        seqs = await asyncio.gather(*(write(store, *append) for append in group))
        assert seqs == [await write(memory, *append) for append in group]
        if deletion is not None:
            assert await delete(store, *deletion) == await delete(memory, *deletion)
    assert await everything(store) == await everything(memory)


@pytest.mark.parametrize("kind", DATABASES)
def test_any_interleaving_leaves_what_the_memory_store_holds(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """S18, S19: order, idempotency, windows and deletion are the same in every form of store."""
    with asyncio.Runner() as runner:
        database = runner.run(open_database(new_url(request, kind, tmp_path)))
        store = SQLTurnStore(database)

        @settings(max_examples=30, deadline=None, derandomize=True, database=None)
        @given(plans)
        def hold(plan: Plan) -> None:
            for tenant in TENANTS:
                runner.run(store.delete_tenant(tenant))
            runner.run(compare(store, plan))

        try:
            hold()
        finally:
            runner.run(database.aclose())
