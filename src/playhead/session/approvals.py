"""Calls that wait for a person or a client: what is kept of them, and which answers are taken."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from playhead.encode import total_json
from playhead.ids import now_ms
from playhead.storage.ledger import PendingCall, coded, conflict
from playhead.tools.registry import ToolRegistry
from playhead.types import CallAnswer, ToolCall

_FIELDS = set(CallAnswer.__struct_fields__) - {"call_id"}
_encode = msgspec.json.Encoder(order="sorted").encode


def args_hash(call: ToolCall) -> str:
    """Return what an answer must name, so that it is about these arguments and no others."""
    named = [call.id, call.name, call.args]
    return hashlib.sha256(total_json(named, _encode)).hexdigest()[:32]


def pending_calls(calls: Sequence[ToolCall], tools: ToolRegistry, seconds: float) -> list[PendingCall]:
    """Return what is kept of the calls that a run leaves waiting, for so many seconds."""
    until = now_ms() + round(seconds * 1_000)
    by_client = [(tool := tools.named(call.name)) is not None and tool.client for call in calls]
    return [
        PendingCall(call, "client" if client else "approval", args_hash(call), until)
        for call, client in zip(calls, by_client, strict=True)
    ]


def check_answer(pending: Sequence[PendingCall], answer: CallAnswer, named_hash: str | None) -> None:
    """See to it that an answer fits a call that waits.

    Raises `StoreError`: `not_found` for a call that never waited, `invalid` for an answer of the wrong
    kind, `conflict` for one that is late, or about other arguments.
    """
    waiting = next((one for one in pending if one.call.id == answer.call_id), None)
    if waiting is None:
        raise coded("not_found", f"No call {answer.call_id!r} of this run waits for an answer.")
    if named_hash is not None and named_hash != waiting.args_hash:
        raise conflict("The answer is about other arguments than the call has: show them anew and ask again.")
    if waiting.answered_by is not None:
        raise conflict(f"The call {answer.call_id!r} was answered already.")
    if waiting.expires_at < now_ms():
        raise conflict(f"The call {answer.call_id!r} waited too long: its answer is not taken any more.")
    if waiting.kind == "approval":
        _check_approval(answer)
    elif answer.approved is not None or answer.args is not None:
        raise coded("invalid", "This call is executed by the client: answer with its result, or an error.")


def _check_approval(answer: CallAnswer) -> None:
    if answer.approved is None or answer.result is not None or answer.error is not None:
        text = "This call waits for an approval: answer with approved true or false, not with a result."
        raise coded("invalid", text)
    if answer.args is not None and not answer.approved:
        raise coded("invalid", "Arguments go with an approval, not with a denial.")


def plain_answer(call_id: str, given: dict[str, Any]) -> CallAnswer:
    """Return an answer of its fields. Raises `StoreError`, `invalid`, naming one of the wrong type."""
    unknown = sorted(set(given) - _FIELDS)
    if unknown:
        raise coded("invalid", f"An answer to a call has no {', '.join(unknown)}.")
    try:
        return msgspec.convert({"callId": call_id, **given}, CallAnswer, strict=True)
    except msgspec.ValidationError as error:
        raise coded("invalid", f"This is no answer to a call: {error}.") from None
