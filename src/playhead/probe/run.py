"""The measurement of an endpoint from its first question to its profile."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from playhead.errors import LLMTimeoutError
from playhead.llm.profiles import Profile
from playhead.media.files import write_atomically
from playhead.probe import cases, ladders
from playhead.probe.asking import Asker, Make
from playhead.probe.bench import Bench
from playhead.probe.report import Finding, ProbeReport

TIME_LIMIT = 600.0

Tell = Callable[[Finding], None]


class Probe:
    """Measures one endpoint.

    Args:
        make: makes the adapter that speaks as a profile says.
        server: what the endpoint is called in words.
        model: the model that is asked.
        start: what is known of the server; None for a dialect without profiles.
        file: where the profile of this server belongs.
    """

    def __init__(
        self, make: Make, *, server: str, model: str, start: Profile | None = None, file: Path | None = None
    ) -> None:
        self.server = server
        self.model = model
        self.start = start
        self.file = file
        self._make = make

    async def run(self, tell: Tell | None = None, *, time_limit: float = TIME_LIMIT) -> ProbeReport:
        """Measure, with about thirty small requests. Writes nothing.

        `tell` gets each finding as it is made. Raises an `LLMError` when the endpoint cannot be
        reached, refuses the key or the simplest request, is lost on the way, or takes longer than
        `time_limit` seconds in all.
        """
        asker = Asker(self._make)
        bench = Bench(asker, self.start)
        findings: list[Finding] = []

        def note(finding: Finding) -> None:
            findings.append(finding)
            if tell is not None:
                tell(finding)

        try:
            async with asyncio.timeout(time_limit):
                await (_measure(bench, self.start, note) if self.start else _look(bench, note))
        except TimeoutError:
            raise LLMTimeoutError(
                f"The measurement of {self.server} was not complete after {time_limit:g} s and "
                f"{asker.requests} requests. Allow it more time (--time-limit)."
            ) from None
        profile = bench.profile and replace(bench.profile, name=self.server, evidence="measured")
        return ProbeReport(self.server, self.model, findings, profile, asker.requests)


async def _measure(bench: Bench, start: Profile, note: Tell) -> None:
    """Everything that a profile holds. Each question needs no more than what was found before it."""
    first = await bench.climb(ladders.max_tokens_field(start))
    if not first.measured and bench.error is not None:
        raise bench.error
    note(first)
    note(await cases.tools(bench))
    note(await bench.climb(ladders.tool_choice()))
    note(await bench.climb(ladders.schema_dialect()))
    note(await bench.climb(ladders.max_tool_name(start)))
    note(await cases.streamed_calls(bench))
    note(await bench.climb(ladders.usage_in_stream()))
    note(await cases.cut_answer(bench))
    note(await bench.climb(ladders.replay_reasoning(start)))
    for ladder in ladders.of_histories(start):
        note(await bench.climb(ladder))
    note(await cases.demanded_then_free(bench))
    note(await cases.odd_text(bench))
    note(await cases.pictures(bench))
    note(await cases.together(bench))


async def _look(bench: Bench, note: Tell) -> None:
    """What can be looked at where nothing can be set."""
    note(await cases.answers(bench))
    note(await cases.tools(bench))
    note(await bench.climb(ladders.tool_choice()))
    note(await bench.climb(ladders.max_tool_name(None)))
    note(await cases.streamed_calls(bench))
    note(await bench.climb(ladders.usage_in_stream()))
    note(await cases.cut_answer(bench))
    note(await cases.foreign_history(bench))
    note(await cases.demanded_then_free(bench))
    note(await cases.odd_text(bench))
    note(await cases.pictures(bench))
    note(await cases.together(bench))


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile so that a reader sees the old file or the new one. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
