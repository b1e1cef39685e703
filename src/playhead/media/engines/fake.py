"""An engine that says what it was told to: for tests and for trying things without a model."""

import time
from collections.abc import Sequence

from playhead.media.types import SAMPLE_RATE, EngineInfo, EngineStatus, OnProgress, Samples, Segment, Word


class FakeEngine:
    """Answers each window with the next of `texts`, from the first again for each file.

    Args:
        texts: what is said, window by window; windows beyond them stay silent.
        language: the language it claims to hear.
        word_times: also give words, spread evenly over the window.
        languages: the languages it claims to know, None for any.
        seconds: how long it takes for a window.
    """

    def __init__(
        self,
        texts: Sequence[str] = (),
        *,
        language: str = "en",
        word_times: bool = True,
        languages: Sequence[str] | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.info = EngineInfo(id="fake", model="fake", word_times=word_times, languages=languages)
        self._texts = list(texts)
        self._next = 0
        self._language = language
        self._seconds = seconds

    def status(self) -> EngineStatus:
        return "ready"

    def prepare(self, on_progress: OnProgress) -> None:
        """Begin with the first text again."""
        self._next = 0

    def transcribe(
        self, samples: Samples, *, language: str | None = None, prompt: str | None = None
    ) -> list[Segment]:
        if self._seconds:
            time.sleep(self._seconds)
        text = self._texts[self._next] if self._next < len(self._texts) else ""
        self._next += 1
        if not text:
            return []
        length = len(samples) / SAMPLE_RATE
        words = _spread(text, length) if self.info.word_times else None
        return [Segment(0.0, length, text, words, language=language or self._language)]

    def close(self) -> None:
        """Nothing is held."""


def _spread(text: str, length: float) -> list[Word]:
    words = text.split()
    step = length / len(words)
    return [Word(i * step, (i + 1) * step, f" {word}") for i, word in enumerate(words)]
