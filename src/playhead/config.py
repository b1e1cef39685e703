"""The only reader of the environment, and the composition root: settings in, parts out."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.http import where
from playhead.llm.base import AgentLLM
from playhead.llm.chains import Access, ChainEntry, find_access, parse_chain
from playhead.llm.factory import KEYLESS, PROFILED, create_llm
from playhead.llm.profiles import Profile, profile_file, read_profile
from playhead.llm.servers import DEFAULT_BASE_URL, chosen_profile, profile_for

if TYPE_CHECKING:
    from playhead.llm.attempts import Target
    from playhead.llm.router import AIRouter
    from playhead.media.library import MediaLibrary
    from playhead.media.previews import Previews
    from playhead.media.service import SpeechService
    from playhead.probe import Probe
    from playhead.tools.builtin import Transcriber
    from playhead.tools.registry import ToolRegistry


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says. Empty text is the same as nothing.

    Attributes:
        llm_provider, llm_model, llm_api_key, llm_base_url: `LLM_PROVIDER`, ... (see `connect`).
        llm_profile: `LLM_PROFILE`, the name of a built-in profile or a profile file.
        home: `PLAYHEAD_HOME`, the folder of database, media, models and cache; by default the user's
            data folder.
        database: `PLAYHEAD_DATABASE`, the URL of a database: `postgresql://USER:PASSWORD@HOST/NAME` or
            `sqlite:///FILE`; by default a file `playhead.db` in `home`.
        speech_model: `PLAYHEAD_SPEECH_MODEL`, a path, a size such as `base` or `small`, or nothing.
        speech_base_url, speech_api_key: `PLAYHEAD_SPEECH_BASE_URL`, `PLAYHEAD_SPEECH_API_KEY`, an
            OpenAI-compatible transcription endpoint used in place of the local engine; `speech_model`
            is then a model of that endpoint.
        hf_endpoint: `HF_ENDPOINT`, the mirror that `playhead speech prepare` downloads from.
        token: `PLAYHEAD_TOKEN`, the access token of the server.
        chains: `AI_CHAIN_<TASK>` by task, in lower case: see `create_router`.
        endpoints: `LLM_<ALIAS>_API_KEY`, `LLM_<ALIAS>_BASE_URL` and `LLM_<ALIAS>_PROFILE`, by name.
    """

    llm_provider: str | None = None
    llm_model: str | None = None
    llm_api_key: str | None = None
    llm_base_url: str | None = None
    llm_profile: str | None = None
    home: Path
    database: str | None = None
    speech_model: str | None = None
    speech_base_url: str | None = None
    speech_api_key: str | None = None
    hf_endpoint: str | None = None
    token: str | None = None
    chains: Mapping[str, str] = {}
    endpoints: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Settings(llm_provider={self.llm_provider!r}, llm_model={self.llm_model!r}, ...)"

    def with_speech_model(self, model: str) -> "Settings":
        """These settings with another speech model."""
        return replace(self, speech_model=model)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'playhead.db'}"

    @property
    def media_folder(self) -> Path:
        return self.home / "media"

    @property
    def models_folder(self) -> Path:
        return self.home / "models"

    @property
    def cache_folder(self) -> Path:
        return self.home / "cache"

    @property
    def chats_folder(self) -> Path:
        return self.home / "chats"

    @property
    def profiles_folder(self) -> Path:
        return self.home / "profiles"

    @property
    def names_llm(self) -> bool:
        """Whether any `LLM_*` is set, be it complete or not."""
        return any((self.llm_provider, self.llm_model, self.llm_api_key, self.llm_base_url))


_NAMES = {
    "llm_provider": "LLM_PROVIDER",
    "llm_model": "LLM_MODEL",
    "llm_api_key": "LLM_API_KEY",
    "llm_base_url": "LLM_BASE_URL",
    "llm_profile": "LLM_PROFILE",
    "database": "PLAYHEAD_DATABASE",
    "speech_model": "PLAYHEAD_SPEECH_MODEL",
    "speech_base_url": "PLAYHEAD_SPEECH_BASE_URL",
    "speech_api_key": "PLAYHEAD_SPEECH_API_KEY",
    "hf_endpoint": "HF_ENDPOINT",
    "token": "PLAYHEAD_TOKEN",
}
_CHAIN = "AI_CHAIN_"
_OF_ENDPOINT = ("_API_KEY", "_BASE_URL", "_PROFILE")


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment, or from the mapping given."""
    source = os.environ if environ is None else environ
    said = {name: value.strip() for name, value in source.items() if value.strip()}
    home = said.get("PLAYHEAD_HOME")
    named = [name for name in said if name.startswith("LLM_") and name.endswith(_OF_ENDPOINT)]
    chains = {name.removeprefix(_CHAIN).lower(): said[name] for name in said if name.startswith(_CHAIN)}
    return Settings(
        home=Path(home).expanduser() if home else _data_folder(source),
        chains=chains,
        endpoints={name: said[name] for name in named if name not in _NAMES.values()},
        **{field: said.get(name) for field, name in _NAMES.items()},
    )


def connect(
    provider: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    *,
    profile: Profile | str | None = None,
) -> AgentLLM:
    """Return a model. What is not given comes from `LLM_PROVIDER`, `LLM_MODEL`, `LLM_API_KEY` and
    `LLM_BASE_URL`; the base URL of the environment does not apply to gemini.

    The provider is `openai-compatible`, `openai-responses`, `gemini`, `anthropic`, or `mock`, which
    needs nothing else.

    `profile` says how to speak to an OpenAI-compatible server: a `Profile`, the name of a built-in
    one, or a file. Without it, it is that of `LLM_PROFILE`, else the one that `playhead probe`
    measured of the host, else the built-in one of the host, else the default.

    Nothing is opened until the first call. Raises `ConfigError` naming what is missing or unknown.
    """
    return connect_with(load_settings(), provider, model, api_key, base_url, profile=profile)


def connect_with(
    settings: Settings,
    provider: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    *,
    profile: Profile | str | None = None,
) -> AgentLLM:
    """As `connect`, with the settings given."""
    asked = _endpoint(settings, provider, model, api_key, base_url)
    if profile is None and asked.provider in PROFILED:
        profile = settings.llm_profile or _measured(settings, asked.base_url)
    if isinstance(profile, str):
        profile = chosen_profile(profile)
    return create_llm(asked.provider, asked.model, asked.api_key, asked.base_url, profile=profile)


def router_from_environment(environ: Mapping[str, str] | None = None, **more: Any) -> "AIRouter":
    """Return a router over the chains of `AI_CHAIN_<TASK>`; `more` goes to `AIRouter`.

    See `create_router` for what a chain looks like and where keys come from.
    """
    return create_router(load_settings(environ), **more)


def create_router(settings: Settings, **more: Any) -> "AIRouter":
    """Return a router over the chains of the settings; `more` goes to `AIRouter`.

    A chain is a list of `provider:model` or `alias=provider:model`. Key, address and profile of an
    entry are `LLM_<ALIAS>_API_KEY`, `LLM_<ALIAS>_BASE_URL` and `LLM_<ALIAS>_PROFILE`, where the
    alias is the provider's name unless given, in upper case, with `_` for what is no letter or
    digit. An entry of the provider of `LLM_PROVIDER` that has no address of its own may leave them
    to `LLM_API_KEY`, `LLM_BASE_URL` and `LLM_PROFILE`. Without `AI_CHAIN_CHAT`, the model of
    `LLM_MODEL` is the chain of the task `chat`.

    Raises `ConfigError` for an entry that is none, and naming all that is missing at once.
    """
    from playhead.llm.router import DEFAULT_TASK, AIRouter, Chain

    chains = {task: parse_chain(text, f"{_CHAIN}{task.upper()}") for task, text in settings.chains.items()}
    main = Access(settings.llm_api_key, settings.llm_base_url, settings.llm_profile)
    entries = dict.fromkeys(entry for chain in chains.values() for entry in chain)
    access = find_access(entries, settings.endpoints, settings.llm_provider, main)
    targets = {entry: _target(settings, entry, access[entry]) for entry in entries}
    made: dict[str, Chain] = {task: [targets[entry] for entry in chain] for task, chain in chains.items()}
    if DEFAULT_TASK not in made and settings.names_llm:
        made[DEFAULT_TASK] = [connect_with(settings)]
    if not made:
        raise ConfigError("No chain is set. Set AI_CHAIN_CHAT, such as openai-compatible:gpt-x, mock.")
    return AIRouter(made, **more)


def _target(settings: Settings, entry: ChainEntry, access: Access) -> "Target":
    from playhead.llm.attempts import Target

    profile = None
    if entry.provider in PROFILED:
        named, base = access.profile, access.base_url
        profile = chosen_profile(named) if named else _measured(settings, base)
    try:
        llm = create_llm(entry.provider, entry.model, access.api_key or "", access.base_url, profile=profile)
    except ConfigError as error:
        error.add_note(f"This is the entry {entry.alias}={entry.provider}:{entry.model} of a chain.")
        raise
    return Target(llm, entry.alias, entry.model)


def create_probe(
    settings: Settings, provider: str | None = None, model: str | None = None, base_url: str | None = None
) -> "Probe":
    """Return what measures the endpoint of the settings, or the one given.

    It starts from what is known of the server without any measurement. Raises `ConfigError` as
    `connect` does, and for a provider that has no endpoint.
    """
    from playhead.probe import Probe

    asked = _endpoint(settings, provider, model, None, base_url)
    if asked.provider in KEYLESS:
        raise ConfigError(f"The provider {asked.provider} has no endpoint: there is nothing to measure.")

    def make(profile: Profile | None) -> AgentLLM:
        return create_llm(asked.provider, asked.model, asked.api_key, asked.base_url, profile=profile)

    make(None)  # what is wrong with the settings is said at once
    if asked.provider not in PROFILED:
        server = where(asked.base_url) if asked.base_url else asked.provider
        return Probe(make, server=server, model=asked.model)
    base = asked.base_url or DEFAULT_BASE_URL
    start = chosen_profile(settings.llm_profile) if settings.llm_profile else profile_for(base)
    file = profile_file(settings.profiles_folder, base)
    return Probe(make, server=where(base), model=asked.model, start=start, file=file)


class _Endpoint(NamedTuple):
    provider: str
    model: str = ""
    api_key: str = ""
    base_url: str | None = None


def _endpoint(
    settings: Settings, provider: str | None, model: str | None, api_key: str | None, base_url: str | None
) -> _Endpoint:
    """Complete what was given from the settings. Raises `ConfigError` naming what is missing."""
    provider = provider or settings.llm_provider
    model = model or settings.llm_model
    api_key = api_key or settings.llm_api_key
    if base_url is None and provider != "gemini":
        base_url = settings.llm_base_url
    if provider in KEYLESS:
        return _Endpoint(provider)
    needed = {"LLM_PROVIDER": provider, "LLM_MODEL": model, "LLM_API_KEY": api_key}
    missing = [name for name, value in needed.items() if not value]
    if provider and missing:
        create_llm(provider)  # an unknown provider is the first thing to say
    if missing:
        raise ConfigError(
            f"Missing configuration: {', '.join(missing)}. Set them in the environment, or set "
            "LLM_PROVIDER=mock to try without a model."
        )
    return _Endpoint(provider or "", model or "", api_key or "", base_url)


def _measured(settings: Settings, base_url: str | None) -> Profile | None:
    """Return what `playhead probe` wrote of the server, if it did."""
    path = profile_file(settings.profiles_folder, base_url or DEFAULT_BASE_URL)
    if not os.path.isfile(path):
        return None
    try:
        return read_profile(path)
    except ConfigError as error:
        error.add_note(
            "Run playhead probe again, or delete the file from the folder profiles of PLAYHEAD_HOME."
        )
        raise


def create_library(settings: Settings, *, max_bytes: int | None = None) -> "MediaLibrary":
    """Return the library over the media folder; `max_bytes` is the largest file taken."""
    from playhead.media.library import MAX_BYTES, MediaLibrary

    return MediaLibrary(settings.media_folder, max_bytes=max_bytes or MAX_BYTES)


def create_previews(settings: Settings) -> "Previews":
    """Return what draws waveforms and thumbnails, and keeps them in the cache folder."""
    from playhead.media.previews import Previews

    return Previews(settings.cache_folder / "previews")


def create_speech(settings: Settings) -> "SpeechService":
    """Return what transcribes: the endpoint of `PLAYHEAD_SPEECH_BASE_URL`, or a model of this machine.

    Nothing is started or loaded. Raises `ConfigError` for a base URL that is none.
    """
    from playhead.http import checked_base
    from playhead.media.service import HttpSpeech, SpeechService, SpeechSettings

    speech = SpeechSettings(
        models=settings.models_folder, cache=settings.cache_folder, model=settings.speech_model
    )
    if settings.hf_endpoint:
        speech = replace(speech, hub=settings.hf_endpoint)
    if settings.speech_base_url:
        http = HttpSpeech(checked_base(settings.speech_base_url), settings.speech_api_key)
        if settings.speech_model:
            http = replace(http, model=settings.speech_model)
        speech = replace(speech, http=http, model=None)
    return SpeechService(speech)


def create_registry(
    settings: Settings, library: "MediaLibrary", speech: "Transcriber", *, llm: AgentLLM | None = None
) -> "ToolRegistry":
    """Return the default tools over a library and a speech service.

    The mock model, whether of the settings or given as `llm`, gets `echo_context` beside them.
    """
    from playhead.tools.builtin import default_registry

    provider = settings.llm_provider if llm is None else getattr(llm, "provider", None)
    return default_registry(library, speech, mock=provider == "mock")


def _data_folder(environ: Mapping[str, str]) -> Path:
    """The user's data folder, by the conventions of the platform."""
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Application Support")
    else:
        base = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "playhead"
