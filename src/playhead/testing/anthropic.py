"""Replies as Anthropic's Messages API gives them.

Source: https://docs.anthropic.com/en/api/messages-streaming.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from playhead.testing.replies import Call, Cut, Pause, Reply, reply_json, split, stream

Block = Mapping[str, Any]
"""A block of content as the API has it; a thinking block has `thinking` and `signature`."""


def anthropic_text(text: str, *, stop_reason: str = "end_turn", **extra: Any) -> Reply:
    """A message that is plain text; `extra` replaces top-level fields."""
    return anthropic_message({"type": "text", "text": text}, stop_reason=stop_reason, **extra)


def anthropic_calls(
    calls: Sequence[Call], text: str | None = None, *, stop_reason: str = "tool_use", **extra: Any
) -> Reply:
    """A message that asks for calls, behind a text if one is given."""
    blocks = [] if text is None else [{"type": "text", "text": text}]
    return anthropic_message(*blocks, *_calls(calls), stop_reason=stop_reason, **extra)


def anthropic_message(*blocks: Block, stop_reason: str | None = "end_turn", **extra: Any) -> Reply:
    """A message of any blocks; `extra` replaces top-level fields."""
    usage = {"input_tokens": 11, "output_tokens": 7}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "usage": usage}
    reasons = {"stop_reason": stop_reason, "stop_sequence": None}
    return reply_json({**body, "content": blocks, **reasons, **extra})


def anthropic_sse(
    *deltas: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = "",
    blocks: Sequence[Block] = (),
    size: int | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
) -> Reply:
    """A streamed message: the blocks given, text deltas, then each call, its arguments in two halves.

    `finish_reason` is derived when empty; with None, the stream ends inside its last block.
    """
    parts = [*blocks, *([{"type": "text", "text": list(deltas)}] if deltas else ()), *_calls(calls)]
    reason = None if finish_reason is None else finish_reason or ("tool_use" if calls else "end_turn")
    chunks = anthropic_frames(*anthropic_events(*parts, stop_reason=reason))
    return stream(split(b"".join(chunks), size) if size else chunks, pause=pause, cut=cut)


def anthropic_frames(*events: Mapping[str, Any]) -> list[bytes]:
    """Events as bytes, each with its name."""
    return [f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in events]


def anthropic_events(*blocks: Block, stop_reason: str | None = "end_turn") -> list[dict[str, Any]]:
    """The events of a streamed message."""
    usage = {"input_tokens": 11, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "content": []}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**start, "usage": usage}}]
    for index, block in enumerate(blocks):
        opening, pieces = _opened(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opening})
        events += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        if stop_reason is not None or index < len(blocks) - 1:
            events.append({"type": "content_block_stop", "index": index})
    if stop_reason is not None:
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
        events.append({"type": "message_stop"})
    return events


def _opened(block: Block) -> tuple[Block, list[dict[str, Any]]]:
    """How a block is opened, and its deltas."""
    if block["type"] == "text":
        texts = [block["text"]] if isinstance(block["text"], str) else block["text"]
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
    if block["type"] == "thinking":
        pieces = [{"type": "thinking_delta", "thinking": text} for text in _halves(block["thinking"])]
        pieces.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, pieces
    if block["type"] == "tool_use":
        raw = block["input"]
        halves = _halves(raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False))
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *halves)]
        return {**block, "input": {}}, pieces
    return block, []


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": given[0] if given else f"toolu_{number}", "name": name, "input": args}
        for number, (name, args, *given) in enumerate(calls, 1)
    ]
