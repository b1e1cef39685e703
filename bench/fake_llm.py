"""An OpenAI-compatible server that costs next to nothing. The model's name is the script:

    fk-k7-n20-d0-l0
       k  rounds of one tool call before the final text     n  pieces of that text
       d  microseconds between events, 0 for one burst      l  milliseconds before the first byte

The round is read from the request alone: the tool messages after its last user message. Answers are
made once and kept as bytes.

    python -m bench.fake_llm        prints the port it listens on, ends with its standard input
"""

import asyncio
import functools
import json
import re
import sys

WORDS = ["the ", "cat ", "sat ", "on a", " mat", " and", " it ", "was ", "good", ". Ok"]
USAGE = {"prompt_tokens": 120, "completion_tokens": 40, "total_tokens": 160}
MODEL = re.compile(rb'"model"\s*:\s*"(fk[-a-z0-9]*)"')
STREAM = re.compile(rb'"stream"\s*:\s*true')
USER = re.compile(rb'"role"\s*:\s*"user"')
TOOL = re.compile(rb'"role"\s*:\s*"tool"')
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SSE_END = b"0\r\n\r\n"


def script(model: str) -> dict[str, int]:
    """Read the numbers out of a model's name."""
    return {"k": 0, "n": 20, "d": 0, "l": 0} | {m[1]: int(m[2]) for m in re.finditer(r"-([a-z])(\d+)", model)}


def text_of(model: str) -> str:
    """The final text that a model of this name gives."""
    return "".join(WORDS[i % len(WORDS)] for i in range(script(model)["n"]))


@functools.cache
def whole_answer(model: str, step: int) -> bytes:
    """The answer of a step that is not streamed, head and all."""
    message: dict[str, object] = {"role": "assistant", "content": None, "refusal": None}
    reason = "stop"
    if step < script(model)["k"]:
        message["tool_calls"] = [_call(step, f'{{"city":"Paris","days":{step + 1}}}')]
        reason = "tool_calls"
    else:
        message["content"] = text_of(model)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    body = _json({**_envelope(model, step), "object": "chat.completion", "choices": [choice], "usage": USAGE})
    return JSON_HEAD % len(body) + body


@functools.cache
def events(model: str, step: int) -> list[bytes]:
    """The events of a streamed step, each framed as one HTTP chunk."""
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    if step < script(model)["k"]:
        arguments = f'{{"city":"Paris","days":{step + 1}}}'
        deltas.append({"tool_calls": [{"index": 0, **_call(step, "")}]})
        pieces = [arguments[i : i + 8] for i in range(0, len(arguments), 8)]
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
        reason = "tool_calls"
    else:
        deltas += [{"content": WORDS[i % len(WORDS)]} for i in range(script(model)["n"])]
        reason = "stop"
    envelope = {**_envelope(model, step), "object": "chat.completion.chunk", "usage": None}

    def chunk(delta: object, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _json({**envelope, "choices": [choice]})

    last = _json({**envelope, "choices": [], "usage": USAGE})
    bodies = [*map(chunk, deltas), chunk({}, reason), last, b"[DONE]"]
    lines = [b"data: " + body + b"\n\n" for body in bodies]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]


@functools.cache
def burst(model: str, step: int) -> bytes:
    """A streamed step in one piece."""
    return SSE_HEAD + b"".join(events(model, step)) + SSE_END


def _call(step: int, arguments: str) -> dict[str, object]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"call_{step}", "type": "function", "function": function}


def _envelope(model: str, step: int) -> dict[str, object]:
    return {"id": f"chatcmpl-{step}", "created": 1, "model": model, "system_fingerprint": "fp_fake"}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Connection(asyncio.Protocol):
    """One client. It sends a request, waits for the answer, and sends the next."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.received = bytearray()
        self.tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n") + 4
        if end < 4 or (length := LENGTH.search(self.received, 0, end)) is None:
            return
        if len(self.received) >= end + int(length[1]):
            body = bytes(self.received[end:])
            self.received.clear()
            self.answer(body)

    def answer(self, body: bytes) -> None:
        found = MODEL.search(body)
        model = found[1].decode() if found else "fk"
        numbers = script(model)
        last_user = max((m.start() for m in USER.finditer(body)), default=0) if numbers["k"] else len(body)
        step = len(TOOL.findall(body, last_user))
        if not STREAM.search(body):
            send = functools.partial(self.transport.write, whole_answer(model, step))
        elif numbers["d"]:
            send = functools.partial(self.start_paced, events(model, step), numbers["d"] / 1e6)
        else:
            send = functools.partial(self.transport.write, burst(model, step))
        self.loop.call_later(numbers["l"] / 1000, send) if numbers["l"] else send()

    def start_paced(self, pieces: list[bytes], pause: float) -> None:
        task = self.loop.create_task(self.paced(pieces, pause))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def paced(self, pieces: list[bytes], pause: float) -> None:
        self.transport.write(SSE_HEAD)
        due = self.loop.time()
        for piece in pieces:
            due += pause
            await asyncio.sleep(max(due - self.loop.time(), 0))
            self.transport.write(piece)
        self.transport.write(SSE_END)


async def main() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    done = asyncio.Event()
    loop.add_reader(sys.stdin, done.set)
    await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
