"""A peer: a hand loop on the vendor's SDK. Needs the package `openai`."""

import json
from typing import Any

from openai import AsyncOpenAI

from bench.task import PROMPT, SYSTEM, TOOL, chat_messages, get_weather


class Agent:
    def __init__(self, base_url: str) -> None:
        self.client = AsyncOpenAI(base_url=base_url, api_key="sk-fake")

    def history(self, count: int) -> list[dict[str, Any]]:
        return chat_messages(count)

    async def run(self, model: str, history: Any = None) -> str:
        messages = [
            {"role": "system", "content": SYSTEM},
            *(history or ()),
            {"role": "user", "content": PROMPT},
        ]
        create: Any = self.client.chat.completions.create
        while True:
            message = (await create(model=model, messages=messages, tools=[TOOL])).choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
            for call in message.tool_calls:
                content = await get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    async def stream(self, model: str) -> str:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        create: Any = self.client.chat.completions.create
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = await create(model=model, messages=messages, tools=[TOOL], **options)
        texts = [c.choices[0].delta.content async for c in chunks if c.choices]
        return "".join(text for text in texts if text)

    async def close(self) -> None:
        await self.client.close()
