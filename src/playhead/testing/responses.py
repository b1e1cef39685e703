"""Replies as OpenAI's Responses API gives them.

Source: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from playhead.testing.replies import Call, Cut, Pause, Reply, reply_json, split, stream

Item = Mapping[str, Any]
"""An item of the output as the API has it; the text of a streamed message may be a list of deltas."""


def responses_text(text: str, *, status: str = "completed", **extra: Any) -> Reply:
    """A response that is plain text; `extra` replaces top-level fields."""
    return responses_message(_message(text), status=status, **extra)


def responses_calls(
    calls: Sequence[Call], text: str | None = None, *, status: str = "completed", **extra: Any
) -> Reply:
    """A response that asks for calls, behind a text if one is given."""
    items = [] if text is None else [_message(text)]
    return responses_message(*items, *_calls(calls), status=status, **extra)


def responses_message(*items: Item, status: str = "completed", **extra: Any) -> Reply:
    """A response of any items; `extra` replaces top-level fields."""
    return reply_json({**_response(status, [_opened(item)[0] for item in items]), **extra})


def responses_sse(
    *deltas: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = "completed",
    items: Sequence[Item] = (),
    size: int | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
) -> Reply:
    """A streamed response: the items given, text deltas, then each call, its arguments in two halves.

    `finish_reason` is the status at the end; with None, the stream ends inside its last item.
    """
    parts = [*items, *([_message(list(deltas))] if deltas else ()), *_calls(calls)]
    chunks = responses_frames(*responses_events(*parts, status=finish_reason))
    return stream(split(b"".join(chunks), size) if size else chunks, pause=pause, cut=cut)


def responses_frames(*events: Mapping[str, Any]) -> list[bytes]:
    """Events as bytes, each with its name and its number."""
    numbered = ({"sequence_number": number, **event} for number, event in enumerate(events))
    return [f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in numbered]


def responses_events(*items: Item, status: str | None = "completed", **extra: Any) -> list[dict[str, Any]]:
    """The events of a streamed response; `extra` replaces fields of the response at the end."""
    events: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": _response("in_progress", [])}
        for name in ("created", "in_progress")
    ]
    whole: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        done, deltas = _opened(item)
        whole.append({**done, "status": "completed"})
        empty: dict[str, dict[str, Any]] = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        added = {**done, "status": "in_progress", **empty.get(str(done["type"]), {})}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        events += [{"item_id": done.get("id"), "output_index": index, **delta} for delta in deltas]
        if status is not None or index < len(items) - 1:
            events.append({"type": "response.output_item.done", "output_index": index, "item": whole[-1]})
        elif deltas and deltas[-1]["type"].endswith(".done"):
            events.pop()
    if status is not None:
        response = {**_response(status, whole), **extra}
        events.append({"type": f"response.{status}", "response": response})
    return events


def _opened(item: Item) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An item as it is in the end, and the events that bring it."""
    done = dict(item)
    if item["type"] == "message":
        parts = [_part(index, part) for index, part in enumerate(item["content"])]
        done["content"] = [part for part, _ in parts]
        return done, [event for _, events in parts for event in events]
    if item["type"] == "function_call":
        text, name = item["arguments"], "response.function_call_arguments"
        halves = (text[: len(text) // 2], text[len(text) // 2 :])
        deltas = [{"type": f"{name}.delta", "delta": half} for half in halves]
        return done, [*deltas, {"type": f"{name}.done", "arguments": text}]
    name = "response.reasoning_summary_text"
    return done, [
        {"type": f"{name}.delta", "summary_index": index, "delta": part["text"]}
        for index, part in enumerate(item.get("summary") or ())
    ]


def _part(index: int, part: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A part of a message as it is in the end, and the events that bring it."""
    field, name = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
    texts = [part[field]] if isinstance(part[field], str) else part[field]
    whole = "".join(texts)
    events = [{"type": f"response.{name}.delta", "content_index": index, "delta": text} for text in texts]
    events.append({"type": f"response.{name}.done", "content_index": index, field: whole})
    return {**part, field: whole}, events


def _response(status: str, output: list[Any]) -> dict[str, Any]:
    body = {"id": "resp_1", "object": "response", "model": "fake-model", "status": status, "output": output}
    reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18} if status != "in_progress" else None
    return {**body, "error": None, "incomplete_details": reason, "usage": usage}


def _message(text: str | Sequence[str]) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def _calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    out = []
    for number, (name, args, *given) in enumerate(calls, 1):
        text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        call_id = given[0] if given else f"call_{number}"
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": call_id}
        out.append({**call, "name": name, "arguments": text})
    return out
