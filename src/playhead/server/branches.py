"""Another way for a thread: a message edited, an answer asked for again, a copy. And what it all took."""

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from playhead.server.body import read_json
from playhead.server.errors import ApiError
from playhead.server.parts import parts_of
from playhead.server.runs import MAX_ID, said_in, started, thread_id_of
from playhead.server.wire import EditBody, ForkBody, Forked, RetryBody, StepUsage, ThreadUsage, dump
from playhead.types import Usage


async def edit_message(request: Request) -> Response:
    """Say something else in place of a message of the user.

    The message and all after it leave the conversation and are kept as a version of it. A run begins,
    and is answered, as when something is said in the thread. 409 while another one is at work.
    """
    parts = parts_of(request)
    body = await read_json(request, EditBody, parts.options.max_body)
    said = said_in(body.message)
    parts.check_model()
    handle = await parts.sessions.edit(
        thread_id_of(request),
        body.message_id,
        said.content,
        context=body.context,
        new_message_id=said.id or None,
    )
    return await started(request, parts, handle.run_id)


async def retry_answer(request: Request) -> Response:
    """Ask the last message of the user again. Its answer leaves the conversation, as with an edit."""
    parts = parts_of(request)
    body = await read_json(request, RetryBody, parts.options.max_body)
    parts.check_model()
    handle = await parts.sessions.retry(thread_id_of(request), context=body.context)
    return await started(request, parts, handle.run_id)


async def fork_thread(request: Request) -> Response:
    """Copy a thread, up to and with a message, and go on in the copy. The thread stays as it is."""
    parts = parts_of(request)
    body = await read_json(request, ForkBody, parts.options.max_body)
    if body.to is not None and not (0 < len(body.to) <= MAX_ID and body.to.isprintable()):
        text = f"to: It must be 1 to {MAX_ID} printable characters."
        raise ApiError(400, "invalid", text, path="to")
    copy = await parts.sessions.fork(thread_id_of(request), body.at, to=body.to)
    return Response(dump(Forked(copy)), 201, media_type="application/json")


async def thread_usage(request: Request) -> Response:
    """What each model call of a thread took: tokens, cost and time, as far as they are known."""
    steps = [
        StepUsage(
            step.assistant_message.id,
            step.usage or Usage(step.tokens_in, step.tokens_out),
            step.model or UNSET,
            UNSET if step.latency_ms is None else step.latency_ms,
        )
        for step in await parts_of(request).sessions.steps(thread_id_of(request))
    ]
    return Response(dump(ThreadUsage(steps)), media_type="application/json")
