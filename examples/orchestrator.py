"""The client side: two stores that a front end watches, and a run through the chat route.

Here the server is in the same process and its model is the mock, so that nothing else is needed.
"""

import asyncio

from playhead import AgentContext, AgentStore, ChatStore, MediaAsset, Orchestrator, ToolRegistry
from playhead.config import connect
from playhead.server import create_app, serve
from playhead.tools.builtin import echo_context


async def main() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(create_app(llm=connect("mock")), port=0, on_ready=ready.set_result))
    chat, agent = ChatStore(), AgentStore()  # ChatStore(persist="chat.jsonl") is there after a restart too
    agent.subscribe(lambda state: print(f"[{state.status} {state.active_tool or ''}".rstrip() + "]"))
    orchestrator = Orchestrator(f"{await ready}/api/agent/chat", ToolRegistry([echo_context()]), chat, agent)

    chat.add_message(role="user", content="What is open?")
    context = AgentContext(project_id="p1", media_assets=[MediaAsset("a1", "talk.mp4")])
    await orchestrator.run(chat.messages, context)
    for message in chat.messages:
        print(f"{message.role}: {message.content}")
    server.cancel()
    await asyncio.wait([server])


asyncio.run(main())
