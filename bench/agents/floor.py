"""The floor: a hand loop on aiohttp and msgspec that encodes the whole history at each step."""

from typing import Any

import aiohttp
import msgspec

from bench.task import PROMPT, SYSTEM, TOOL, chat_messages, get_weather


class Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class Call(msgspec.Struct):
    id: str = ""
    function: Function | None = None


class Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] | None = None


class Choice(msgspec.Struct):
    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None


class Response(msgspec.Struct):
    choices: list[Choice]
    usage: dict[str, Any] | None = None


class Arguments(msgspec.Struct):
    city: str
    days: int = 1


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Response).decode
decode_arguments = msgspec.json.Decoder(Arguments).decode


class Agent:
    def __init__(self, base_url: str) -> None:
        self.url = f"{base_url}/chat/completions"
        self.client: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self.client is None:
            headers = {"content-type": "application/json", "authorization": "Bearer sk-fake"}
            self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)
        return self.client

    def history(self, count: int) -> list[dict[str, Any]]:
        return chat_messages(count)

    async def run(self, model: str, history: Any = None) -> str:
        messages = [
            {"role": "system", "content": SYSTEM},
            *(history or ()),
            {"role": "user", "content": PROMPT},
        ]
        while True:
            body = encode({"model": model, "messages": messages, "tools": [TOOL]})
            async with self.session().post(self.url, data=body) as response:
                message = decode(await response.read()).choices[0].message
            assert message is not None
            if not message.tool_calls:
                return message.content or ""
            messages.append(
                {
                    "role": "assistant",
                    "content": message.content,
                    "tool_calls": [_wire(message.tool_calls[0])],
                }
            )
            for call in message.tool_calls:
                assert call.function is not None
                args = decode_arguments(call.function.arguments)
                content = await get_weather(args.city, args.days)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    async def stream(self, model: str) -> str:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = encode({"model": model, "messages": messages, "tools": [TOOL], **options})
        parts = []
        async with self.session().post(self.url, data=body) as response:
            rest = b""
            async for data in response.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event == b"data: [DONE]":
                        continue
                    choices = decode(event[6:]).choices
                    if choices and choices[0].delta and choices[0].delta.content:
                        parts.append(choices[0].delta.content)
        return "".join(parts)

    async def close(self) -> None:
        await self.session().close()


def _wire(call: Call) -> dict[str, Any]:
    assert call.function is not None
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}
