"""Replies as Google's generateContent API gives them.

Source: https://ai.google.dev/api/generate-content.
"""

from collections.abc import Sequence
from typing import Any

from playhead.testing.replies import Call, Cut, Pause, Reply, reply_json, split, sse, stream


def gemini_text(text: str, *, finish_reason: str = "STOP", **extra: Any) -> Reply:
    """A generateContent answer that is plain text; `extra` replaces top-level fields."""
    return reply_json({**_gemini([{"text": text}], finish_reason), **extra})


def gemini_calls(
    calls: Sequence[Call], text: str | None = None, *, finish_reason: str = "STOP", **extra: Any
) -> Reply:
    """A generateContent answer that asks for calls; one without an id in `calls` has none on the wire."""
    parts = [] if text is None else [{"text": text}]
    return reply_json({**_gemini(parts + _gemini_calls(calls), finish_reason), **extra})


def gemini_sse(
    *deltas: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = "STOP",
    size: int | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
) -> Reply:
    """A streamed generateContent answer: text deltas, then each call whole; the last event ends it."""
    parts = [{"text": delta} for delta in deltas] + _gemini_calls(calls)
    reasons = [None] * (len(parts) - 1) + [finish_reason]
    chunks = sse(*(_gemini([part], reason) for part, reason in zip(parts, reasons, strict=True)))
    return stream(split(b"".join(chunks), size) if size else chunks, pause=pause, cut=cut)


def _gemini(parts: list[dict[str, Any]], finish_reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake-model"}


def _gemini_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"name": name, "args": args, **({"id": given[0]} if given else {})}}
        for name, args, *given in calls
    ]
