"""The shapes of media and speech. Times are seconds from the start of the file, on the player's clock."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from playhead.types import JsonObject

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

SAMPLE_RATE = 16_000  # of every block, window and engine: mono, 32-bit floats within -1 and 1

Samples: TypeAlias = "NDArray[float32]"
MediaKind = Literal["video", "audio", "image"]
TranscriptWarning = Literal["truncated", "bad_packets", "gap", "english_only", "no_speech"]
EngineStatus = Literal["ready", "needs_package", "needs_weights", "needs_key"]

# How far (0 to 1, None for unknown) and what is going on.
OnProgress: TypeAlias = Callable[[float | None, str], None]
IsCancelled: TypeAlias = Callable[[], bool]


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    """What a file is, by its content. `duration` is None for an image; `suffix` is like `.mp4`."""

    kind: MediaKind
    container: str
    suffix: str
    content_type: str
    duration: float | None = None
    has_audio: bool = False
    width: int | None = None
    height: int | None = None


class Word(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A word and its time. `text` keeps its leading space: words are joined as they are."""

    start: float
    end: float
    text: str
    prob: float | None = None


class Segment(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A piece of speech. `words` is None when the engine gives no word times.

    `avg_logprob` and `no_speech_prob` are Whisper's own, where the engine tells them. `said` is what
    the recogniser wrote, of a line that a person wrote anew.
    """

    start: float
    end: float
    text: str
    words: Sequence[Word] | None = None
    language: str | None = None
    speaker: str | None = None
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    said: str | None = None


class Transcript(msgspec.Struct, frozen=True, rename="camel"):
    """What was said in a file.

    `language` is a code such as `en`, None when nothing was said. `sha256` is that of the file.
    `duration` is the length of what could be read: with `truncated` the file promises more.
    Warnings: `truncated`, `bad_packets` (damaged pieces left out, the clock kept), `gap` (a hole in
    the sound), `english_only` (the model knows English only and the language was not said),
    `no_speech`.
    """

    duration: float
    language: str | None
    engine: str
    model: str
    segments: Sequence[Segment]
    warnings: Sequence[TranscriptWarning] = ()
    sha256: str = ""

    @property
    def text(self) -> str:
        """The whole text: the segments, joined by spaces."""
        return " ".join(text for segment in self.segments if (text := segment.text.strip()))


class EngineInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What an engine is. `languages` is None for any; `sha256` is that of its weights, if it has some."""

    id: str
    model: str
    languages: Sequence[str] | None = None
    word_times: bool = True
    offline: bool = True
    weights_bytes: int = 0
    sha256: str | None = None
    licence: str = ""
    max_window: float = 28.0


class EngineSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How to make an engine: the id it is registered by, and the options of its factory.

    It travels to the worker process, so it is data. `options` may hold a key: never print it.
    """

    id: str
    options: JsonObject = {}

    def __repr__(self) -> str:
        return f"EngineSpec(id={self.id!r}, ...)"


class Engine(Protocol):
    """A speech recogniser. It is used by one thread at a time.

    `status` is cheap and reaches for no network. `prepare` loads (and checks) what `transcribe` needs
    and is the only slow step before it. `transcribe` takes one window of samples, at most
    `info.max_window` seconds, and gives times relative to it. Both raise `MediaError`.
    """

    @property
    def info(self) -> EngineInfo: ...
    def status(self) -> EngineStatus: ...
    def prepare(self, on_progress: OnProgress) -> None: ...
    def transcribe(
        self, samples: "Samples", *, language: str | None = None, prompt: str | None = None
    ) -> list[Segment]: ...
    def close(self) -> None: ...
