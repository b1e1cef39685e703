"""Who uses the workers of the crash test: senders that do not let go, and readers that come back."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec

from playhead.events import Event
from playhead.session.shown import Shown
from tests.chaos.fleet import Fleet
from tests.session.clients import Client

# What a request may take before it is made again, in seconds.
_PATIENCE = 10.0
# Messages of one sender that may wait for their answers.
_WAITING = 3

_decode = msgspec.json.Decoder(Event).decode


class Reader:
    """A page: follows a thread over any number of connections, and notices what is missing or twice.

    Args:
        breaks: how many events it reads before it leaves by itself, at most; None: as many as there are.
    """

    def __init__(
        self, thread: str, http: aiohttp.ClientSession, fleet: Fleet, seed: str, breaks: int | None = None
    ) -> None:
        self.thread = thread
        self.client = Client()
        self.connections = 0
        self.events = 0
        self.fault = ""
        self.answered: set[str] = set()
        self.moved = asyncio.Condition()
        self._http = http
        self._fleet = fleet
        self._chance = random.Random(seed)
        self._breaks = breaks
        self._asked: dict[str, set[str]] = {}

    async def read(self) -> None:
        """Read until it is cancelled, or has found a fault."""
        try:
            while True:
                url = await self._fleet.any_url(self._chance)
                try:
                    await self._follow(url)
                except (aiohttp.ClientError, TimeoutError):
                    # The one that was asked may be dead, and not be missed yet.
                    await asyncio.sleep(0.02)
        except AssertionError as error:
            self.fault = str(error) or "an assertion"
            async with self.moved:
                self.moved.notify_all()

    async def _follow(self, url: str) -> None:
        self.connections += 1
        left = None if self._breaks is None else self._chance.randint(1, self._breaks)
        async for shown in self._shown(f"{url}/api/agent/threads/{self.thread}/events"):
            self.client.take(shown)
            self.events += 1
            self._note(shown.event)
            async with self.moved:
                self.moved.notify_all()
            if left is not None:
                left -= 1
                if left <= 0:
                    return

    async def _shown(self, url: str) -> AsyncIterator[Shown]:
        headers = {"Accept": "text/event-stream"}
        if self.client.id is not None:
            headers["Last-Event-ID"] = self.client.id
        patience = aiohttp.ClientTimeout(total=None, sock_connect=_PATIENCE)
        async with self._http.get(url, headers=headers, timeout=patience) as response:
            response.raise_for_status()
            fields: dict[str, str] = {}
            async for raw in response.content:
                line = raw.decode()
                if not line.endswith("\n"):
                    return  # its process died while it wrote
                if line != "\n":
                    name, _, value = line[:-1].partition(": ")
                    fields[name] = value
                    continue
                if "data" in fields:
                    event = _decode(fields["data"])
                    yield Shown(event.type, event=event, seq=event.seq, id=fields.get("id"))
                fields = {}

    def _note(self, event: Any) -> None:
        if event.type == "user_message":
            self._asked.setdefault(event.run_id, set()).add(event.message.id)
        elif event.type == "run_end":
            self.answered |= self._asked.get(event.run_id, set())

    async def wait_for(self, condition: Any, within: float) -> None:
        """Wait until something holds that only an event of the thread can change, or for so many seconds."""
        try:
            async with asyncio.timeout(within), self.moved:
                await self.moved.wait_for(lambda: condition() or bool(self.fault))
        except TimeoutError:
            pass


class Sender:
    """Says one thing after the other in a thread, and each again until somebody says that it has it.

    `acknowledged` and `policies` are of the messages, by id, in the order in which they were sent.
    """

    def __init__(
        self, thread: str, http: aiohttp.ClientSession, fleet: Fleet, seed: str, reader: Reader
    ) -> None:
        self.thread = thread
        self.policies: dict[str, str] = {}
        self.acknowledged: dict[str, str] = {}
        self.again = 0
        self.faults: list[str] = []
        self._http = http
        self._fleet = fleet
        self._chance = random.Random(seed)
        self._reader = reader
        self._enough = False

    def stop(self) -> None:
        """Begin no further message."""
        self._enough = True

    async def send(self) -> None:
        """Send until `stop`. What was begun is sent until it is acknowledged."""
        while await self._goes_on():
            name = f"{self.thread}-{len(self.policies)}"
            self.policies[name] = self._chance.choice(("queue", "steer"))
            await self._say(name)

    async def _goes_on(self) -> bool:
        """Wait for the moment of the next message; False if there is to be none, as nobody sees answers."""
        reader, sent = self._reader, len(self.policies)
        enough = reader.events + self._chance.randint(0, 40)

        def free() -> bool:
            waiting = sent - len(reader.answered)
            return (
                self._enough
                or bool(reader.fault)
                or waiting == 0
                or (waiting < _WAITING and reader.events >= enough)
            )

        while not free():
            await reader.wait_for(free, within=1.0)
        return not (self._enough or reader.fault)

    async def _say(self, name: str) -> None:
        body = {"message": {"content": name, "id": name}, "policy": self.policies[name]}
        while True:
            url = f"{await self._fleet.any_url(self._chance)}/api/agent/threads/{self.thread}/runs"
            try:
                patience = aiohttp.ClientTimeout(total=_PATIENCE)
                async with self._http.post(url, json=body, timeout=patience) as response:
                    if response.status == 202:
                        self.acknowledged[name] = (await response.json())["runId"]
                        return
                    if response.status != 503:  # it is about to end
                        self.faults.append(f"{name}: {response.status} {(await response.text())[:200]}")
            except (aiohttp.ClientError, TimeoutError):
                pass
            self.again += 1
            await asyncio.sleep(0.05)


def threads(many: int) -> Sequence[str]:
    """The names of the threads."""
    return [f"t{n}" for n in range(many)]
