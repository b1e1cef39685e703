"""A thread as a page draws it."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from playhead.server.wire import ActiveRun, ThreadView, Version, WaitingCall, WaitingRun
from playhead.session.sessions import Sessions
from playhead.session.shown import public_message
from playhead.storage.base import TurnRow
from playhead.types import AssistantMessage, ChatMessage, ToolCall


async def view_of(sessions: Sessions, thread_id: str) -> ThreadView:
    """Return what was said in a thread, and what goes on in it.

    The place to follow it from is read first: what is written meanwhile is told twice and not never,
    and a client knows messages by their ids.
    """
    seq = await sessions.last_seq(thread_id)
    runs = await sessions.open_runs(thread_id)
    rows = await sessions.rows(thread_id)
    messages = [public_message(row.message) for row in rows]
    versions = versions_of(rows, await sessions.replaced(thread_id))
    pending = [
        WaitingCall(run_id, call.call, call.kind, call.args_hash, call.expires_at)
        for run_id, call in await sessions.pending(thread_id)
    ]
    places = {call.id: n for n, call in enumerate(_calls(messages))}
    pending.sort(key=lambda waiting: places.get(waiting.call.id, 0))
    shown = runs[0] if runs else await sessions.last_run(thread_id)
    # Why a run was stopped or failed is in no message, and of one that broke off, what it said last.
    if shown is not None and shown.first_seq and shown.finish_reason not in ("final", "stop", "paused"):
        seq = min(seq, shown.first_seq - 1)
    view = ThreadView(messages, seq, pending=pending or UNSET, versions=versions or UNSET)
    if not runs:
        return view
    active = runs[0]
    state: Literal["queued", "running"] = "running" if active.state == "running" else "queued"
    waiting = [WaitingRun(run.run_id, run.message) for run in runs[1:] if run.message is not None]
    return replace(view, active_run=ActiveRun(active.run_id, state, seq), waiting=waiting or UNSET)


def versions_of(rows: Sequence[TurnRow], left: Sequence[tuple[int, TurnRow]]) -> list[Version]:
    """Return what left a thread, as whole as it stood there when it left, in the order of leaving.

    Rows that left together bear the `seq` from which on they did. An earlier one stood before them unless
    it had left already, and whoever left later went with rows that were not there yet.
    """
    groups: dict[int, list[TurnRow]] = {}
    for mark, row in left:
        groups.setdefault(mark, []).append(row)
    newest = {mark: max(row.seq for row in group) for mark, group in groups.items()}
    versions = []
    for mark in sorted(groups, key=newest.__getitem__):
        stood = [row for other, row in left if row.seq < mark < newest[other]]
        after = next((row.id for row in rows if row.seq > mark), UNSET)
        said = [public_message(row.message) for row in (*stood, *groups[mark])]
        versions.append(Version(said, after))
    return versions


def _calls(messages: Sequence[ChatMessage]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield from message.tool_calls
