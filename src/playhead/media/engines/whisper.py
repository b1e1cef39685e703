"""Whisper by faster-whisper (CTranslate2), int8 on the CPU, loaded by path and only if it is intact."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from playhead.errors import MediaError
from playhead.media.extra import require
from playhead.media.models import ensure_model, find_model
from playhead.media.types import EngineInfo, EngineStatus, OnProgress, Samples, Segment, Word

if TYPE_CHECKING:
    from faster_whisper import WhisperModel  # type: ignore[import-untyped]

# One repetition with some chance in it gets a stuck model loose; the seed makes it the same each time.
_TEMPERATURES = [0.0, 0.4]
_SEED = 1


class WhisperEngine:
    """A Whisper model on this machine.

    Args:
        models: the folder of models.
        model: a name of the catalogue or the path of a CTranslate2 folder; None for the best there is.
        threads: how many cores to use.
        beam_size: alternatives followed at once. More is slower and a little better.
    """

    def __init__(
        self, *, models: str, model: str | None = None, threads: int = 2, beam_size: int = 1
    ) -> None:
        self._found = find_model(model, Path(models))
        self._threads = threads
        self._beam_size = beam_size
        self._model: WhisperModel | None = None
        self.info = EngineInfo(
            id="whisper",
            model=self._found.name,
            languages=("en",) if self._found.english_only else None,
            weights_bytes=self._found.weights_bytes,
            sha256=self._found.sha256,
            licence="MIT",
        )

    def status(self) -> EngineStatus:
        from importlib.util import find_spec

        return "ready" if find_spec("faster_whisper") else "needs_package"

    def prepare(self, on_progress: OnProgress) -> None:
        """Check and load the weights, once. Raises `MediaError`."""
        if self._model is not None:
            return
        folder = ensure_model(self._found, on_progress)
        on_progress(None, f"loading the model {self.info.model}")
        self._model = _load(folder, self._threads, self.info.model)
        self.info = replace(self.info, languages=tuple(self._model.supported_languages))

    def transcribe(
        self, samples: Samples, *, language: str | None = None, prompt: str | None = None
    ) -> list[Segment]:
        """Recognise one window. Raises `MediaError` `engine_failed`."""
        if self._model is None:
            raise MediaError("The speech engine was not prepared.", code="engine_failed")
        import ctranslate2  # type: ignore[import-untyped]

        ctranslate2.set_random_seed(_SEED)
        try:
            found, info = self._model.transcribe(
                samples,
                language=language,
                initial_prompt=prompt,
                beam_size=self._beam_size,
                temperature=_TEMPERATURES,
                word_timestamps=True,
                vad_filter=False,
                condition_on_previous_text=False,
            )
            return [_segment(segment, info.language) for segment in found]
        except (RuntimeError, ValueError, MemoryError) as error:
            raise MediaError(
                f"The speech engine failed on this sound ({type(error).__name__}).", code="engine_failed"
            ) from error

    def close(self) -> None:
        """Let the weights go."""
        self._model = None


def _load(folder: Path, threads: int, name: str) -> "WhisperModel":
    require("faster_whisper")
    from faster_whisper import WhisperModel

    try:
        # Weights as published are fp16, which a CPU silently turns into fp32, five times slower.
        return WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
    except Exception as error:  # whatever three libraries raise for a file they cannot read
        raise MediaError(
            f"The speech model {name} cannot be loaded ({type(error).__name__}): its files are damaged, or "
            "not a CTranslate2 Whisper model.",
            code="weights_damaged",
        ) from error


def _segment(raw: Any, language: str) -> Segment:
    # The numbers are numpy's, which no encoder knows.
    words = [
        Word(float(w.start), float(w.end), w.word, round(float(w.probability), 3)) for w in raw.words or ()
    ]
    return Segment(
        start=float(raw.start),
        end=float(raw.end),
        text=raw.text,
        words=words or None,
        language=language,
        avg_logprob=round(float(raw.avg_logprob), 4),
        no_speech_prob=round(float(raw.no_speech_prob), 4),
    )
