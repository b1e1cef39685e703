"""Where measurements are made: the profile as far as it is known, and the asking."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from playhead.errors import LLMError
from playhead.llm.profiles import Profile
from playhead.probe.asking import Asker, Outcome
from playhead.probe.report import Finding
from playhead.types import LLMRequest, LLMResult, ToolMessage

NOT_ASKED = "not asked, since no tools are taken"

Effect = Callable[[LLMResult], bool]


class Rung(NamedTuple):
    """A value of a field, the form that it makes, and how to see in the answer that it had an effect."""

    value: Any
    form: str
    request: Callable[[], LLMRequest]
    effect: Effect | None = None


class Ladder(NamedTuple):
    """A field, and its values from the one that permits most down."""

    flag: str
    rungs: Sequence[Rung]
    stream: bool = False


class Bench:
    """One endpoint while it is measured.

    Attributes:
        profile: what is known so far; None for a dialect without profiles.
        takes_tools: whether a request with tools is taken at all.
        error: the first refusal.
    """

    def __init__(self, asker: Asker, profile: Profile | None) -> None:
        self.profile = profile
        self.takes_tools = True
        self.error: LLMError | None = None
        self._asker = asker

    async def ask(self, request: LLMRequest, *, stream: bool = False, **fields: Any) -> Outcome:
        """Ask with some fields of the profile changed. Raises as `Asker.ask` does."""
        profile = self.profile and replace(self.profile, **fields)
        return await self._asker.ask(request, profile, stream=stream)

    async def climb(self, ladder: Ladder) -> Finding:
        """Try one value after the other until one is taken and has its effect; that one stays.

        Without profiles only the first form is tried, since nothing could be changed.
        """
        said: list[str] = []
        for rung in ladder.rungs if self.profile else ladder.rungs[:1]:
            request = rung.request()
            if self.lacks_tools(request):
                return self.unknown(ladder.flag, f"{rung.form}: {NOT_ASKED}")
            outcome = await self.ask(request, stream=ladder.stream, **{ladder.flag: rung.value})
            self.error = self.error or outcome.error
            words = outcome.words
            if outcome.result is not None:
                if rung.effect is None or rung.effect(outcome.result):
                    return self.found(ladder.flag, "; ".join([*said, f"{rung.form}: taken"]), rung.value)
                words = "taken, without effect"
            said.append(f"{rung.form}: {words}")
            if outcome.kind == "no answer":
                break
        return self.unknown(ladder.flag, "; ".join(said))

    def lacks_tools(self, request: LLMRequest) -> bool:
        """Whether a request is about tools, and the server takes none."""
        about_tools = request.tools or any(isinstance(m, ToolMessage) for m in request.messages)
        return bool(about_tools) and not self.takes_tools

    def found(self, flag: str, said: str, value: Any) -> Finding:
        """Note the value of a field."""
        if self.profile is None:
            return Finding(flag, upper_first(said), "Nothing is to be set in this dialect")
        self.profile = replace(self.profile, **{flag: value})
        return Finding(flag, upper_first(said), f"So {flag} is {show(value)}", value, True)

    def unknown(self, flag: str, said: str) -> Finding:
        """Note that a field could not be measured, and stays as it was."""
        if self.profile is None:
            return Finding(flag, upper_first(said), "Nothing can be set in this dialect")
        value = getattr(self.profile, flag)
        follows = f"That tells nothing, so {flag} stays {show(value)}, not measured"
        return Finding(flag, upper_first(said), follows, value)


def upper_first(text: str) -> str:
    """Return the text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def show(value: Any) -> str:
    """Return a value as a profile file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
