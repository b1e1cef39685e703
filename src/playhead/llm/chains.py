"""Chains as text: `openai-compatible:gpt-x, fast=gemini:gemini-y`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from playhead.errors import ConfigError
from playhead.llm.factory import KEYLESS, PROVIDERS


class ChainEntry(msgspec.Struct, frozen=True):
    """A model in a chain. `alias` names its endpoint: by default it is the provider."""

    alias: str
    provider: str
    model: str

    def variable(self, what: str) -> str:
        """Return the name of the setting that holds `what` of the endpoint, such as `API_KEY`."""
        return f"LLM_{re.sub('[^A-Z0-9]', '_', self.alias.upper())}_{what}"


def parse_chain(text: str, name: str) -> Sequence[ChainEntry]:
    """Read the entries of a chain, in order. `name` is the setting that it stands in.

    Raises `ConfigError` naming the entry that is none.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    return [_entry(piece, name) for piece in pieces if piece]


def _entry(text: str, name: str) -> ChainEntry:
    # A model's id may hold colons and equal signs; an alias stands before the first colon.
    head, _, model = (part.strip() for part in text.partition(":"))
    alias, given, provider = (part.strip() for part in head.rpartition("="))
    if provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise ConfigError(f"{name}: unknown provider {provider!r} in {text!r}. There are: {known}.")
    if (given and not alias) or not (model or provider in KEYLESS):
        raise ConfigError(f"{name}: {text!r} is no entry: give provider:model or alias=provider:model.")
    return ChainEntry(alias or provider, provider, model)


class Access(NamedTuple):
    """How an endpoint is reached."""

    api_key: str | None = None
    base_url: str | None = None
    profile: str | None = None


def find_access(
    entries: Iterable[ChainEntry], settings: Mapping[str, str], main_provider: str | None, main: Access
) -> dict[ChainEntry, Access]:
    """Return how each entry is reached: by settings of its own, or as the main endpoint is.

    `main` stands in for what an entry of its provider leaves out, but its key only where the entry
    has no address of its own: a key goes to the server that it belongs to.

    Raises `ConfigError` naming every key that is missing, and an alias that means two providers.
    """
    found: dict[ChainEntry, Access] = {}
    missing: list[str] = []
    providers: dict[str, str] = {}
    for entry in entries:
        name = entry.variable("API_KEY")
        if providers.setdefault(name, entry.provider) != entry.provider:
            raise ConfigError(
                f"{name} is for {providers[name]} and for {entry.provider}: give one of them another alias."
            )
        stand_in = main if entry.provider == main_provider else Access()
        found[entry] = access = _access(entry, settings, stand_in)
        if not access.api_key and entry.provider not in KEYLESS and name not in missing:
            missing.append(name)
    if missing:
        raise ConfigError(
            f"Missing configuration: {', '.join(missing)}. Set the key of each entry of a chain; any will "
            "do for a server that takes any."
        )
    return found


def _access(entry: ChainEntry, settings: Mapping[str, str], main: Access) -> Access:
    key, base, profile = (settings.get(entry.variable(w)) for w in ("API_KEY", "BASE_URL", "PROFILE"))
    if base is not None:
        return Access(key, base, profile)
    # As for `connect`: the address of the environment is none of gemini's.
    inherited = None if entry.provider == "gemini" else main.base_url
    return Access(key or main.api_key, inherited, profile or main.profile)
