"""A run as columns, and back."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, bindparam, exists, or_, select, update

from playhead.encode import message_bytes, scrub, total_json
from playhead.errors import StoreError
from playhead.ids import now_ms
from playhead.storage.ledger import SPOKEN_SINCE, Entry, PendingCall, RunRow, answered, coded, conflict
from playhead.storage.rows import prepare, thread_columns
from playhead.storage.tables import agent_pending, agent_runs, agent_turns, key_of
from playhead.types import AgentContext, CallAnswer, ToolCall, UserMessage

logger = logging.getLogger("playhead.storage")

_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, RecursionError)
_DECODERS: dict[str, Callable[[str], Any]] = {
    "message": msgspec.json.Decoder(UserMessage).decode,
    "answers": msgspec.json.Decoder(list[CallAnswer]).decode,
    "context": msgspec.json.Decoder(AgentContext).decode,
}
_call = msgspec.json.Decoder(ToolCall).decode

_PLAIN = ("run_id", "turn_id", "thread_id", "tenant_id", "state", "policy")
_REST = ("owner", "absorbed_by", "first_seq", "finish_reason", "created_at")
_runs = agent_runs.c
_turns = agent_turns.c
_pending = agent_pending.c
RUN = select(*(agent_runs.c[name] for name in (*_PLAIN, "message", "answers", "context", *_REST)))

# A message that another run took in was said in that one; one that was taken back was not said.
SPEAKS = and_(
    _runs.state != "absorbed",
    or_(
        _runs.finish_reason.is_distinct_from("cancelled"),
        _runs.first_seq > 0,
        exists().where(_turns.thread_key == _runs.thread_key, _turns.message_key == _runs.message_key),
    ),
)
_ANSWER = (
    update(agent_pending)
    .where(
        _pending.turn_key == bindparam("of_turn"),
        _pending.call_key == bindparam("of_call"),
        _pending.answered_by.is_(None),
    )
    .values(answered_by=bindparam("by"))
)
# Nobody may have spoken since the last run of the turn: what came then said no to what waited.
_LATEST_OF_TURN = (
    select(_runs.row_id)
    .where(_runs.thread_key == bindparam("of_thread"), _runs.turn_id == bindparam("of_turn_id"))
    .order_by(_runs.row_id.desc())
    .limit(1)
    .scalar_subquery()
)
_SPOKEN_SINCE = (
    select(_runs.row_id)
    .where(
        _runs.thread_key == bindparam("of_thread"),
        _runs.row_id > _LATEST_OF_TURN,
        _runs.turn_id != bindparam("of_turn_id"),
        SPEAKS,
    )
    .limit(1)
)
PENDING = (
    select(_pending.call, _pending.kind, _pending.args_hash, _pending.expires_at, _pending.answered_by)
    .where(_pending.turn_key == bindparam("of_turn"))
    .order_by(_pending.place)
)


def run_columns(run: RunRow) -> dict[str, Any]:
    """Return the columns of a new run. A context that could not be read back is not kept.

    Raises `StoreError`, `invalid`, for a message or an answer that could not be read back.
    """
    message, tenant_id = run.message, run.tenant_id
    return {
        "run_key": key_of(tenant_id, run.run_id),
        "thread_key": key_of(tenant_id, run.thread_id),
        "message_key": None if message is None else key_of(message.id),
        "run_id": scrub(run.run_id),
        "turn_id": scrub(run.turn_id),
        "thread_id": scrub(run.thread_id),
        "tenant_id": None if tenant_id is None else scrub(tenant_id),
        "state": run.state,
        "policy": run.policy,
        "message": None if message is None else _readable("message", message_bytes(message).decode()),
        "answers": _readable("answers", total_json(run.answers).decode()) if run.answers else None,
        "context": None if run.context is None else _context(run.context),
        "owner": run.owner,
        "absorbed_by": run.absorbed_by,
        "first_seq": run.first_seq,
        "finish_reason": run.finish_reason,
        "created_at": run.created_at,
        "ended_at": None,
        "stopping": 0,
    }


def read_run(row: Any) -> RunRow:
    """Return a run as it was written; what of it this version cannot read is left out, and stays."""
    columns = row._asdict()
    for name, decode in _DECODERS.items():
        data = columns.pop(name)
        if data is None:
            continue
        try:
            columns[name] = decode(data)
        except _UNREADABLE:
            logger.warning("The %s of the run %s cannot be read.", name, columns["run_id"])
    return RunRow(**columns)


def pending_columns(run: RunRow, call: PendingCall, place: int) -> dict[str, Any]:
    """Return the columns of a call that a run leaves waiting, at its place among them."""
    return {
        "turn_key": key_of(run.tenant_id, run.turn_id),
        "call_key": key_of(call.call.id),
        "thread_key": key_of(run.tenant_id, run.thread_id),
        "call": total_json(call.call).decode(),
        "kind": call.kind,
        "args_hash": call.args_hash,
        "expires_at": call.expires_at,
        "place": place,
    }


def read_pending(row: Any) -> PendingCall:
    """Return a call that waits, as it was written."""
    columns = row._asdict()
    return PendingCall(**{**columns, "call": _call(columns["call"])})


def take_answers(connection: Connection, run: RunRow, thread_key: str) -> None:
    """Mark calls of a run's turn as answered by it, within a `Database.write`.

    Raises `StoreError`, `conflict`, where one does not wait, or somebody spoke since.
    """
    of_turn = key_of(run.tenant_id, run.turn_id)
    for answer in run.answers:
        call = {"of_turn": of_turn, "of_call": key_of(answer.call_id), "by": run.run_id}
        if not connection.execute(_ANSWER, call).rowcount:
            raise conflict(answered(answer.call_id))
    turn = {"of_thread": thread_key, "of_turn_id": scrub(run.turn_id)}
    if connection.execute(_SPOKEN_SINCE, turn).first() is not None:
        raise conflict(SPOKEN_SINCE)


def _readable(name: str, data: str) -> str:
    try:
        _DECODERS[name](data)
    except _UNREADABLE as error:
        raise coded("invalid", f"The {name} of the run does not have its form: {error}.") from None
    return data


def _context(context: AgentContext) -> str | None:
    data = total_json(context).decode()
    try:
        return _readable("context", data)
    except StoreError as error:
        logger.warning("The context is not kept: %s", error)
        return None


class Written:
    """An entry as rows that are ready to be written, but for their places."""

    def __init__(self, entry: Entry) -> None:
        run = entry.run
        self.thread = thread_columns(run.thread_id, run.tenant_id, now_ms())
        self.run_key = key_of(run.tenant_id, run.run_id)
        self.rows = [
            prepare(run.thread_id, m, turn_id=run.turn_id, step_index=step, tenant_id=run.tenant_id)
            for m, step in entry.messages
        ]
        self.counts = {"rows": 1 if self.rows else 0, "events": len(entry.events)}
        self.calls = {"of_tenant": self.thread["tenant_key"], "of_turn": key_of(run.turn_id)}
