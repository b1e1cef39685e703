"""A run as columns, and back."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import select

from playhead.encode import encode_result, message_bytes, scrub
from playhead.errors import StoreError
from playhead.storage.ledger import PendingCall, RunRow, coded
from playhead.storage.tables import agent_runs, key_of
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
RUN = select(*(agent_runs.c[name] for name in (*_PLAIN, "message", "answers", "context", *_REST)))


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
        "answers": _readable("answers", as_json(run.answers)) if run.answers else None,
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
        "call": as_json(call.call),
        "kind": call.kind,
        "args_hash": call.args_hash,
        "expires_at": call.expires_at,
        "place": place,
    }


def read_pending(row: Any) -> PendingCall:
    """Return a call that waits, as it was written."""
    columns = row._asdict()
    return PendingCall(**{**columns, "call": _call(columns["call"])})


def as_json(value: Any) -> str:
    """Return any value of ours as JSON; what JSON cannot hold is replaced, as in the result of a tool."""
    try:
        return _encode(value).decode()
    except (UnicodeEncodeError, RecursionError, msgspec.MsgspecError):
        return encode_result(value, sys.maxsize).text


def _readable(name: str, data: str) -> str:
    try:
        _DECODERS[name](data)
    except _UNREADABLE as error:
        raise coded("invalid", f"The {name} of the run does not have its form: {error}.") from None
    return data


def _context(context: AgentContext) -> str | None:
    data = as_json(context)
    try:
        return _readable("context", data)
    except StoreError as error:
        logger.warning("The context is not kept: %s", error)
        return None
