"""Threads and runs. The server owns the history; a closed connection is never a stop."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from playhead.server.body import read_json
from playhead.server.errors import ApiError
from playhead.server.parts import Parts, parts_of
from playhead.server.streams import EventStream, wants_events
from playhead.server.wire import (
    ActiveRun,
    NewMessage,
    RunBody,
    RunStarted,
    ThreadView,
    dump,
    event_frame,
    public_message,
)
from playhead.types import ContentPart, TextPart

_MAX_ID = 200


async def start_run(request: Request) -> Response:
    """Say something in a thread.

    Answers at once with the run's id; with `Accept: text/event-stream` the answer is the events of
    the run, and the header `Run-Id` names it. Runs of one thread come in the order of their messages.
    """
    parts = parts_of(request)
    thread_id = _thread_id(request)
    body = await read_json(request, RunBody, parts.options.max_body)
    said = body.message if isinstance(body.message, NewMessage) else NewMessage(body.message)
    if _says_nothing(said.content):
        raise ApiError(400, "invalid", "message: It is empty; write what the user said.", path="message")
    if len(said.id or "") > _MAX_ID:
        text = f"message.id: It has more than {_MAX_ID} characters."
        raise ApiError(400, "invalid", text, path="message.id")
    parts.check_model()
    handle = await parts.sessions.start(
        thread_id, said.content, context=body.context, message_id=said.id or None
    )
    if wants_events(request):
        return _stream(parts, handle.run_id)
    return Response(dump(RunStarted(handle.run_id)), 202, media_type="application/json")


async def read_thread(request: Request) -> Response:
    """What was said in a thread, and the run that is at work in it.

    The messages of that run so far are among them; its events tell them again, from the first.
    """
    parts = parts_of(request)
    thread_id = _thread_id(request)
    messages = [public_message(message) for message in await parts.sessions.history(thread_id)]
    view = ThreadView(messages)
    active = parts.sessions.active_run(thread_id)
    if active is not None:
        view = ThreadView(messages, ActiveRun(active.run_id))
    return Response(dump(view), media_type="application/json")


async def run_events(request: Request) -> Response:
    """The events of a run, from its first, then live.

    The last one is `run_end` or `run_paused`. Leaving the stream does not stop the run.
    """
    return _stream(parts_of(request), request.path_params["run_id"])


async def cancel_run(request: Request) -> Response:
    """Stop a run, and answer when it has ended.

    A run that has ended already stays as it is.
    """
    parts = parts_of(request)
    run_id = request.path_params["run_id"]
    await parts.sessions.cancel(run_id)
    return Response(dump(RunStarted(run_id)), media_type="application/json")


def _stream(parts: Parts, run_id: str) -> EventStream:
    # Asked for here, so that an unknown run is a 404 and not a broken stream.
    events = parts.sessions.events(run_id)

    async def frames() -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            async for event in events:
                yield event_frame(event)

    return EventStream(frames(), parts.options.heartbeat, {"Run-Id": run_id})


def _says_nothing(content: str | Sequence[ContentPart]) -> bool:
    parts = [TextPart(content)] if isinstance(content, str) else content
    return all(isinstance(part, TextPart) and not part.text.strip() for part in parts)


def _thread_id(request: Request) -> str:
    thread_id: str = request.path_params["thread_id"]
    if len(thread_id) > _MAX_ID or not thread_id.isprintable():
        raise ApiError(
            400,
            "invalid",
            f"thread_id: It must be at most {_MAX_ID} printable characters.",
            path="thread_id",
        )
    return thread_id
