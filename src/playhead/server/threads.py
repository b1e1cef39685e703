"""A thread as a page draws it."""

from typing import Literal

from msgspec import UNSET

from playhead.server.wire import ActiveRun, ThreadView, WaitingCall, WaitingRun
from playhead.session.sessions import Sessions
from playhead.session.shown import public_message


async def view_of(sessions: Sessions, thread_id: str) -> ThreadView:
    """Return what was said in a thread, and what goes on in it.

    The place to follow it from is read first: what is written meanwhile is told twice and not never,
    and a client knows messages by their ids.
    """
    seq = await sessions.last_seq(thread_id)
    runs = await sessions.open_runs(thread_id)
    messages = [public_message(message) for message in await sessions.history(thread_id)]
    if not runs:
        pending = [
            WaitingCall(run_id, call.call, call.kind, call.args_hash, call.expires_at)
            for run_id, call in await sessions.pending(thread_id)
        ]
        return ThreadView(messages, seq, pending=pending or UNSET)
    active = runs[0]
    if active.first_seq:
        seq = min(seq, active.first_seq - 1)
    state: Literal["queued", "running"] = "running" if active.state == "running" else "queued"
    waiting = [WaitingRun(run.run_id, run.message) for run in runs[1:] if run.message is not None]
    return ThreadView(
        messages, seq, active_run=ActiveRun(active.run_id, state, seq), waiting=waiting or UNSET
    )
