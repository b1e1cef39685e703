"""What a measurement found, in words and as a profile."""

from collections.abc import Sequence

import msgspec

from playhead.llm.profiles import Profile


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that was tried.

    Attributes:
        name: the field of the profile, or what was looked at where there is no field for it.
        said: what was tried and what the server did.
        follows: what follows from it.
        value: what the field is now; None where there is no field.
        measured: whether `value` was found out; otherwise it is what it was before.
    """

    name: str
    said: str
    follows: str
    value: bool | int | str | None = None
    measured: bool = False

    @property
    def text(self) -> str:
        """The finding in one line."""
        return f"{self.said}. {self.follows}."


class ProbeReport(msgspec.Struct, frozen=True, rename="camel"):
    """All that was found of one server.

    Attributes:
        server: its host and port.
        model: the model that was asked.
        findings: in the order in which they were made.
        profile: how to speak to it; None for a dialect that has no profiles.
        requests: how many requests it took.
    """

    server: str
    model: str
    findings: Sequence[Finding]
    profile: Profile | None
    requests: int
