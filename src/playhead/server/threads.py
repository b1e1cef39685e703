"""A thread as a page draws it."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from playhead.server.wire import ActiveRun, ThreadView, WaitingCall, WaitingRun
from playhead.session.sessions import Sessions
from playhead.session.shown import public_message
from playhead.types import AssistantMessage, ChatMessage, ToolCall


async def view_of(sessions: Sessions, thread_id: str) -> ThreadView:
    """Return what was said in a thread, and what goes on in it.

    The place to follow it from is read first: what is written meanwhile is told twice and not never,
    and a client knows messages by their ids.
    """
    seq = await sessions.last_seq(thread_id)
    runs = await sessions.open_runs(thread_id)
    messages = [public_message(message) for message in await sessions.history(thread_id)]
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
    view = ThreadView(messages, seq, pending=pending or UNSET)
    if not runs:
        return view
    active = runs[0]
    state: Literal["queued", "running"] = "running" if active.state == "running" else "queued"
    waiting = [WaitingRun(run.run_id, run.message) for run in runs[1:] if run.message is not None]
    return replace(view, active_run=ActiveRun(active.run_id, state, seq), waiting=waiting or UNSET)


def _calls(messages: Sequence[ChatMessage]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield from message.tool_calls
