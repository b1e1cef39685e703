"""Threads and runs. The server owns the history; a closed connection is never a stop."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from playhead.errors import StoreError
from playhead.server.body import read_json
from playhead.server.errors import ApiError
from playhead.server.parts import Parts, parts_of
from playhead.server.streams import EventStream, wants_events
from playhead.server.threads import view_of
from playhead.server.wire import (
    ContextBody,
    ContextTaken,
    NewMessage,
    RunBody,
    RunStarted,
    ToolAnswer,
    dump,
    shown_frame,
)
from playhead.session.feed import parse_cursor
from playhead.session.shown import Shown
from playhead.types import ContentPart, TextPart

MAX_ID = 200


async def start_run(request: Request) -> Response:
    """Say something in a thread.

    Answers at once with the run's id; with `Accept: text/event-stream` the answer is the events of
    the run, and the header `Run-Id` names it. Runs of one thread come in the order of their messages.
    """
    parts = parts_of(request)
    thread_id = thread_id_of(request)
    body = await read_json(request, RunBody, parts.options.max_body)
    said = said_in(body.message)
    parts.check_model()
    handle = await parts.sessions.start(
        thread_id, said.content, context=body.context, message_id=said.id or None, policy=body.policy
    )
    return await started(request, parts, handle.run_id)


async def read_thread(request: Request) -> Response:
    """What was said in a thread, the run that is at work in it, and what waits.

    The messages of that run so far are among them; its events tell them again, from the first.
    """
    view = await view_of(parts_of(request).sessions, thread_id_of(request))
    return Response(dump(view), media_type="application/json")


async def delete_thread(request: Request) -> Response:
    """Stop what runs in a thread, and forget it whole."""
    await parts_of(request).sessions.delete(thread_id_of(request))
    return Response(status_code=204)


async def thread_events(request: Request) -> Response:
    """The events of all runs of a thread, one after the other, then live, without end.

    `Last-Event-ID`, or `after`, is the id of the last event that the client has.
    """
    parts = parts_of(request)
    parts.check_open()
    return _stream(parts, parts.sessions.shown_in(thread_id_of(request), after=_after(request)))


async def run_events(request: Request) -> Response:
    """The events of a run, from its first or past the one that the client has, then live.

    The last one is `run_end` or `run_paused`. Leaving the stream does not stop the run.
    `Last-Event-ID`, or `after`, is the id of the last event that the client has.
    """
    parts = parts_of(request)
    run_id = request.path_params["run_id"]
    # Asked for here, so that an unknown run is a 404 and not a broken stream.
    await parts.sessions.find(run_id)
    return _stream(parts, parts.sessions.shown(run_id, after=_after(request)), run_id)


async def cancel_run(request: Request) -> Response:
    """Stop a run, and answer when it has ended.

    A run that has ended already stays as it is.
    """
    parts = parts_of(request)
    run_id = request.path_params["run_id"]
    await parts.sessions.cancel(run_id)
    return Response(dump(RunStarted(run_id)), media_type="application/json")


async def answer_call(request: Request) -> Response:
    """Answer a call that a paused run left waiting, once.

    A new run of the same turn goes on with it; its id is the answer, or its events are, as when a run
    is started.
    """
    parts = parts_of(request)
    body = await read_json(request, ToolAnswer, parts.options.max_body)
    given = {
        name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET
    }
    call_id, args_hash = given.pop("call_id"), given.pop("args_hash")
    parts.check_model()
    run_id = request.path_params["run_id"]
    handle = await parts.sessions.answer(run_id, call_id, args_hash=args_hash, **given)
    return await started(request, parts, handle.run_id)


async def update_context(request: Request) -> Response:
    """Show a run that is at work what is open now: its next step and its next tool calls have it.

    Each message brings its own, and so does an answer to a call. Nothing of it is kept, and a run of
    another process is not told.
    """
    parts = parts_of(request)
    body = await read_json(request, ContextBody, parts.options.max_body)
    taken = await parts.sessions.update_context(thread_id_of(request), body.context)
    return Response(dump(ContextTaken(taken)), media_type="application/json")


def said_in(message: str | NewMessage) -> NewMessage:
    """What the user says. Raises `ApiError` for nothing, or for an id that is none."""
    said = message if isinstance(message, NewMessage) else NewMessage(message)
    if _says_nothing(said.content):
        raise ApiError(400, "invalid", "message: It is empty; write what the user said.", path="message")
    if len(said.id or "") > MAX_ID:
        text = f"message.id: It has more than {MAX_ID} characters."
        raise ApiError(400, "invalid", text, path="message.id")
    return said


async def started(request: Request, parts: Parts, run_id: str) -> Response:
    """The answer to what began a run: its id, or its events."""
    if wants_events(request):
        return _stream(parts, parts.sessions.shown(run_id), run_id)
    return Response(dump(RunStarted(run_id)), 202, media_type="application/json")


def _stream(parts: Parts, events: AsyncGenerator[Shown, None], run_id: str | None = None) -> EventStream:
    async def frames() -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(events):
                async for shown in events:
                    yield shown_frame(shown)
        except StoreError as error:
            if error.code != "stopping":  # that came between the answer's first line and its events
                raise

    headers = {} if run_id is None else {"Run-Id": run_id}
    return EventStream(frames(), parts.options.heartbeat, headers, parts.stream_seconds)


def _after(request: Request) -> str | None:
    """Where the client is. A browser that comes back by itself says so in the header (WHATWG HTML 9.2)."""
    after = request.headers.get("last-event-id") or request.query_params.get("after") or None
    try:
        parse_cursor(after)
    except StoreError as error:
        raise ApiError(400, "invalid", str(error), path="after") from None
    return after


def _says_nothing(content: str | Sequence[ContentPart]) -> bool:
    parts = [TextPart(content)] if isinstance(content, str) else content
    return all(isinstance(part, TextPart) and not part.text.strip() for part in parts)


def thread_id_of(request: Request) -> str:
    """The thread that is asked for. Raises `ApiError` for what cannot name one."""
    thread_id: str = request.path_params["thread_id"]
    if len(thread_id) > MAX_ID or not thread_id.isprintable():
        raise ApiError(
            400,
            "invalid",
            f"thread_id: It must be at most {MAX_ID} printable characters.",
            path="thread_id",
        )
    return thread_id
