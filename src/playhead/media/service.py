"""Speech for the rest of the house: a file in, a transcript out, however that is done."""

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import asdict, replace

from playhead.errors import MediaError
from playhead.ids import new_id
from playhead.media.cache import CacheKey, TranscriptCache, content_hash
from playhead.media.catalogue import ALIASES, CATALOGUE, KNOWN
from playhead.media.download import HUB, download_model
from playhead.media.extra import INSTALL
from playhead.media.messages import Job
from playhead.media.models import FoundModel, ensure_model, find_model
from playhead.media.transcribe import language_code, main_language
from playhead.media.types import EngineSpec, EngineStatus, OnProgress, Segment, Transcript
from playhead.media.worker import Transcriber

_PACKAGES = ("av", "numpy", "onnxruntime", "faster_whisper")
_DEFAULT = "base"


class HttpSpeech(Struct, frozen=True):
    """An OpenAI-compatible transcription endpoint; `base_url` ends before `/audio/transcriptions`."""

    base_url: str
    api_key: str | None = None
    model: str = "whisper-1"

    def __repr__(self) -> str:
        return f"HttpSpeech(base_url={self.base_url!r}, model={self.model!r})"


class SpeechSettings(Struct, frozen=True):
    """Where speech models and transcripts are kept, and what recognises.

    Attributes:
        models: the folder of models.
        cache: the folder of what can be made again: finished transcripts.
        model: a name such as `base` or `small`, or the path of a CTranslate2 folder; None for the best
            model on this machine.
        http: an endpoint to use in place of a model of this machine.
        hub: where `prepare` downloads from.
        threads: cores to use; None for all, four at most.
        idle: seconds without work after which the worker process is stopped.
    """

    models: Path
    cache: Path
    model: str | None = None
    http: HttpSpeech | None = None
    hub: str = HUB
    threads: int | None = None
    idle: float = 120.0


class ModelOffer(Struct, frozen=True, rename="camel"):
    """A model that could be fetched: its name, its size in bytes, and what it brings."""

    name: str
    size: int
    note: str


class SpeechStatus(Struct, frozen=True, rename="camel"):
    """What would recognise speech now. `message` says in words what is used, or missing and what to do.

    `model` is None when there is none. `better` lists what `prepare` could fetch, best first.
    """

    state: EngineStatus
    message: str
    engine: str
    model: str | None = None
    english_only: bool = False
    better: Sequence[ModelOffer] = ()


class SpeechService:
    """Transcribes files in a worker process and remembers the results.

    Nothing is started, loaded or written before the first use.
    """

    def __init__(self, settings: SpeechSettings) -> None:
        self._settings = settings
        self._cache = TranscriptCache(settings.cache / "transcripts")
        self._transcriber = Transcriber(idle=settings.idle)
        self._hashes: dict[tuple[object, ...], str] = {}
        # One at a time for each transcript and event loop; a lock goes with the last who waits for it.
        self._turns: WeakValueDictionary[tuple[CacheKey, int], asyncio.Lock] = WeakValueDictionary()

    async def transcribe(
        self,
        path: Path,
        *,
        language: str | None = None,
        model_id: str | None = None,
        on_progress: Callable[[float | None, str], None] | None = None,
    ) -> Transcript:
        """Return the transcript of a file: from the cache, or made now.

        Args:
            path: a video or sound file.
            language: a code such as `en`; None has it heard.
            model_id: one of the known models or the endpoint's; None for the one of the settings.
            on_progress: called in this event loop with a fraction (None for unknown) and a text.

        Cancelling the await stops the work within a second; what was done is kept, and the next call
        goes on from there.
        Raises `MediaError`: `not_found`, `empty`, `unreadable`, `unsupported`, `no_audio`,
        `no_decodable_audio`, `weights_missing`, `weights_damaged`, `needs_package`, `engine_failed`,
        `cancelled` when the service is closed.
        """
        sha256 = await asyncio.to_thread(self._hash, path)
        spec, identity = await asyncio.to_thread(self._engine, model_id)
        key = CacheKey(sha256, spec.id, identity, language_code(language))
        async with self._turn(key):
            known = await asyncio.to_thread(self._cache.get, key)
            if known is None:
                job = Job(new_id(), os.fsencode(path), spec, language)
                known = replace(await self._made(job, key, on_progress), sha256=sha256)
                await asyncio.to_thread(self._cache.put, key, known)
        if on_progress:
            on_progress(1.0, "transcribed")
        return known

    @property
    def worker_pid(self) -> int | None:
        """The id of the worker process, None while there is none."""
        return self._transcriber.pid

    async def known(self, path: Path) -> Transcript | None:
        """Return the transcript of a file that was made last, or None; nothing is started.

        Raises `MediaError`: `not_found`, `unreadable`.
        """
        sha256 = await asyncio.to_thread(self._hash, path)
        return await asyncio.to_thread(self._cache.newest, sha256)

    def status(self) -> SpeechStatus:
        """Say what would be used, or what is missing. Cheap: no weights are read, no network is reached."""
        http = self._settings.http
        absent = [name for name in _PACKAGES if find_spec(name) is None]
        if absent:
            text = f"Speech needs the packages {', '.join(absent)}. {INSTALL}"
            return SpeechStatus("needs_package", text, "http" if http else "whisper")
        if http:
            return SpeechStatus("ready", f"{http.model} at the configured endpoint", "http", http.model)
        try:
            found = find_model(self._settings.model, self._settings.models)
        except MediaError as error:
            return SpeechStatus("needs_weights", str(error), "whisper", better=self._offers(None))
        languages = "English only" if found.english_only else "many languages"
        return SpeechStatus(
            state="ready",
            message=f"Whisper {found.name}, {languages}, {found.weights_bytes // 1_000_000} MB",
            engine="whisper",
            model=found.name,
            english_only=bool(found.english_only),
            better=self._offers(found.name),
        )

    async def prepare(self, on_progress: OnProgress, model: str | None = None) -> SpeechStatus:
        """Make a model ready: join or check it, or download it if it is not on this machine.

        Args:
            on_progress: called with a fraction (None for unknown) and a text.
            model: a known name; None for the model of the settings, or else `base`.

        A broken download is taken up where it broke. Raises `MediaError`.
        """
        loop = asyncio.get_running_loop()

        def told(fraction: float | None, text: str) -> None:
            loop.call_soon_threadsafe(on_progress, fraction, text)

        wanted = model or self._settings.model
        try:
            found = await asyncio.to_thread(find_model, wanted, self._settings.models)
            await asyncio.to_thread(ensure_model, found, told)
        except MediaError as error:
            name = ALIASES.get(wanted or _DEFAULT, wanted or _DEFAULT)
            if error.code not in ("weights_missing", "weights_damaged") or name not in KNOWN:
                raise
            await download_model(KNOWN[name], self._settings.models, on_progress, hub=self._settings.hub)
        return self.status()

    async def aclose(self) -> None:
        """Stop the worker process. What is being transcribed fails with `cancelled`."""
        await self._transcriber.aclose()

    def _turn(self, key: CacheKey) -> asyncio.Lock:
        place = (key, id(asyncio.get_running_loop()))
        lock = self._turns.get(place)
        if lock is None:
            lock = self._turns[place] = asyncio.Lock()
        return lock

    async def _made(self, job: Job, key: CacheKey, on_progress: OnProgress | None) -> Transcript:
        """Run a job from where an earlier one stopped, and put both halves together."""
        until, before = await asyncio.to_thread(self._cache.begun, key)

        def keep(end: float, segments: Sequence[Segment]) -> None:
            self._cache.append(key, end, segments)

        made = await self._transcriber.transcribe(
            replace(job, resume_from=until), on_progress=on_progress, on_window=keep
        )
        if not before:
            return made
        segments = [*before, *made.segments]
        warnings = [warning for warning in made.warnings if warning != "no_speech"]
        return replace(made, segments=segments, warnings=warnings, language=main_language(segments))

    def _engine(self, model_id: str | None) -> tuple[EngineSpec, str]:
        """Choose the engine, and what tells its transcripts from those of others."""
        http = self._settings.http
        if http and model_id in (None, http.model):
            return EngineSpec("http", asdict(http)), f"{http.base_url} {http.model}"
        found = self._local(model_id)
        model = str(found.folder) if found.source == "path" else found.name
        threads = self._settings.threads or min(4, os.cpu_count() or 1)
        options = {"models": str(self._settings.models), "model": model, "threads": threads}
        return EngineSpec("whisper", options), found.identity

    def _local(self, model_id: str | None) -> FoundModel:
        # A model id comes from a language model or a client: a name of the catalogue, never a path.
        if model_id and ALIASES.get(model_id, model_id) not in KNOWN:
            raise MediaError(
                f"Unknown speech model {model_id!r}: use one of {', '.join(KNOWN)}, or leave it out.",
                code="unsupported",
            )
        return find_model(model_id or self._settings.model, self._settings.models)

    def _offers(self, current: str | None) -> list[ModelOffer]:
        names = [model.name for model in CATALOGUE]
        better = CATALOGUE[: names.index(current)] if current in names else CATALOGUE
        return [ModelOffer(model.name, model.size, model.note) for model in better]

    def _hash(self, path: Path) -> str:
        """The hash of a file, taken anew only when the file changed."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            raise MediaError(f"There is no file {path.name!r}.", code="not_found") from None
        seen = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if seen not in self._hashes:
            if len(self._hashes) > 1000:
                self._hashes.clear()
            self._hashes[seen] = content_hash(path)
        return self._hashes[seen]
