"""`POST /api/agent/chat`: one model call, as JSON or as an event stream.

The body is judged before the configuration is looked at (R15). The model is resolved from the
configuration when it is first needed, so a server without one starts, and says what is missing (R44).
"""

import asyncio
from collections.abc import AsyncGenerator

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from playhead.deltas import EventQueue
from playhead.events import Attempt, EmitDelta, LLMDelta
from playhead.ids import new_id
from playhead.llm.base import AgentLLM
from playhead.prompt import build_system_prompt
from playhead.protocols.sse import frame
from playhead.server.body import read_json, tidy_messages
from playhead.server.errors import api_error
from playhead.server.parts import Parts, parts_of
from playhead.server.streams import EventStream, until_gone, wants_events
from playhead.server.wire import ChatBody, ChatReply, ErrorBody, dump, event_frame
from playhead.types import LLMRequest, LLMResult, ToolCall, Usage


async def chat(request: Request) -> Response:
    """One model call."""
    parts = parts_of(request)
    body = await read_json(request, ChatBody, parts.options.max_body, tidy_messages)
    model = parts.model.resolve()
    if wants_events(request):
        parts.check_open()
        return EventStream(_frames(parts, model, _llm_request(parts, body)), parts.options.heartbeat)
    # There is no session to come back to: when the client leaves, the call is cancelled (Q211).
    task = _call(parts, model, _llm_request(parts, body))
    if not await until_gone(request, task):
        return Response(status_code=499)
    return Response(dump(_reply(parts.outcome(task))), media_type="application/json")


def _llm_request(parts: Parts, body: ChatBody) -> LLMRequest:
    limits = parts.options.loop
    return LLMRequest(
        messages=body.messages,
        tools=parts.registry.to_tool_schemas(),
        system=build_system_prompt(body.context),
        context=body.context,
        tenant=parts.tenant,
        max_tokens=limits.max_tokens,
        temperature=limits.temperature,
        timeout=limits.call_timeout,
        total_timeout=limits.total_timeout,
        memo={},
    )


def _call(
    parts: Parts, model: AgentLLM, request: LLMRequest, emit: EmitDelta | None = None
) -> asyncio.Task[LLMResult]:
    async def call() -> LLMResult:
        return await model.generate(request, emit)

    return parts.begin(call())


async def _frames(parts: Parts, model: AgentLLM, request: LLMRequest) -> AsyncGenerator[bytes, None]:
    """Deltas as they come, then exactly one `message` or `error`."""
    queue = EventQueue()

    def put(delta: LLMDelta) -> None:
        if not (isinstance(delta, Attempt) and delta.number == 1):  # it voids nothing
            queue.put(delta)

    task = _call(parts, model, request, put)
    task.add_done_callback(queue.wake)
    try:
        while queue.items or not task.done():
            while queue.items:
                yield event_frame(queue.items.popleft())
            if not task.done():
                await queue.wait()
        try:
            reply = _reply(parts.outcome(task))
        except Exception as error:
            told = api_error(error)
            yield frame(dump(ErrorBody(str(told), told.code)), event="error")
        else:
            yield frame(dump(reply), event="message")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


def _reply(result: LLMResult) -> ChatReply:
    message = replace(result.message, stop_reason=result.message.stop_reason or result.stop_reason)
    if message.tool_calls:
        message = replace(message, tool_calls=[_with_id(call) for call in message.tool_calls])
    reply = ChatReply(content=message.content, message=message)
    if message.tool_calls:
        reply = replace(reply, tool_calls=message.tool_calls)
    return reply if result.usage == Usage() else replace(reply, usage=result.usage)


def _with_id(call: ToolCall) -> ToolCall:
    return call if call.id else replace(call, id=new_id())
