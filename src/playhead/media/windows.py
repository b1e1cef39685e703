"""Where somebody speaks: windows of sound, cut in silence, for an engine that takes one at a time.

The detector is Silero VAD v6, the ONNX file that faster-whisper's wheel carries. It reads 32 ms at a
time and keeps its state, so a stream of any length needs the memory of one window. Silence brings no
window, and an engine that is given no silence invents no words.
"""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playhead.errors import MediaError
from playhead.media.extra import INSTALL, require
from playhead.media.types import SAMPLE_RATE, Samples

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession  # type: ignore[import-untyped]

CHUNK = 512  # samples that the detector judges at once
_CONTEXT = 64
_STATE = (1, 1, 128)
# Silero's own thresholds: speech begins at the first and lasts down to the second.
_SPEECH, _SILENCE = 0.5, 0.35
# A soft "And" before it is speech too: up to half a second of what is at least likely.
_LIKELY = 0.1
_ONSET = 16
# A pause this long ends a span of speech; one of `_JOIN` ends the window; a window of `_ENOUGH`
# ends at the next pause. Whisper works for 30 s whatever it is given, so a window for each utterance
# costs twice the time; with each word held to its span the times are as good.
_PAUSE = round(0.6 * SAMPLE_RATE / CHUNK)
_JOIN = round(2.0 * SAMPLE_RATE / CHUNK)
_ENOUGH = round(15.0 * SAMPLE_RATE / CHUNK)
_SHORTEST = 3  # chunks: a click is no word
_FORGET = round(2.0 * SAMPLE_RATE / CHUNK)
_PAD = round(0.2 * SAMPLE_RATE)
# A cut without a pause is looked for in this last part of a full window.
_CUT_FROM = 0.6


class Window:
    """A piece of sound with speech in it. Times are in seconds from the start of the file.

    `start` and `end` bound the samples; `spans` say from when to when somebody speaks in them.
    """

    __slots__ = ("end", "samples", "spans", "start")

    def __init__(self, samples: Samples, start: float, spans: Sequence[tuple[float, float]]) -> None:
        self.samples = samples
        self.start = start
        self.end = start + len(samples) / SAMPLE_RATE
        self.spans = spans


class VoiceDetector:
    """Silero VAD over a stream. Raises `MediaError` `needs_package`.

    After two seconds without speech it forgets what it heard: what it remembers would make it late
    for the next word, up to a second (measured on recordings with pauses of 3 to 30 s).
    """

    def __init__(self) -> None:
        require("numpy", "onnxruntime")
        import numpy as np

        self._session = _session()
        self._fresh = np.zeros(_STATE, dtype=np.float32)
        self._state = (self._fresh, self._fresh)
        self._context = np.zeros(_CONTEXT, dtype=np.float32)
        self._quiet = 0

    def __call__(self, samples: Samples) -> list[float]:
        """Return how surely each chunk of 512 samples is speech; `samples` is a whole number of chunks."""
        chunks = samples.reshape(-1, CHUNK)
        odds: list[float] = []
        while len(chunks):
            found = self._judged(chunks)
            used = self._used(found)
            if self._quiet == _FORGET:
                self._state, self._quiet = (self._fresh, self._fresh), 0
            self._context = chunks[used - 1, -_CONTEXT:].copy()
            odds += found[:used]
            chunks = chunks[used:]
        return odds

    def _judged(self, chunks: "NDArray[float32]") -> list[float]:
        import numpy as np

        before = np.vstack([self._context[None], chunks[:-1, -_CONTEXT:]])
        feed: dict[str, Any] = {"input": np.hstack([before, chunks])}
        feed["h"], feed["c"] = self._state
        found, *state = self._session.run(None, feed)
        self._state = (state[0], state[1])
        return [float(p) for p in found.reshape(-1)]

    def _used(self, odds: list[float]) -> int:
        """How many of these count before it is time to forget: all of them, if it is not."""
        for place, value in enumerate(odds, 1):
            self._quiet = self._quiet + 1 if value < _LIKELY else 0
            if self._quiet == _FORGET:
                return place
        return len(odds)


def cut_windows(
    blocks: Iterable[Samples], *, start: float = 0.0, longest: float = 28.0
) -> Iterator[Window | None]:
    """Yield the windows of a stream that begins at `start` seconds, none longer than `longest`.

    After each block without one it yields None, so that a caller can look up from a long silence.
    """
    import numpy as np

    detector = VoiceDetector()
    cutter = _Cutter(start, longest)
    rest: Samples = np.zeros(0, dtype=np.float32)
    for block in blocks:
        rest = np.concatenate([rest, block])
        whole = len(rest) // CHUNK * CHUNK
        ready, rest = rest[:whole], rest[whole:]
        windows = cutter.feed(ready, detector(ready)) if whole else []
        yield from windows
        if not windows:
            yield None
    if len(rest):
        last = np.pad(rest, (0, CHUNK - len(rest)))
        yield from cutter.feed(last, detector(last))
    yield from cutter.finish()


class _Cutter:
    """Turns chunks and their probabilities into windows. Positions are in chunks from the start."""

    def __init__(self, origin: float, longest: float) -> None:
        import numpy as np

        self._origin = origin
        self._longest = int((longest * SAMPLE_RATE - 2 * _PAD) // CHUNK)
        self._audio: Samples = np.zeros(0, dtype=np.float32)
        self._base = 0  # sample at which `_audio` begins
        self._taken = 0  # sample up to which windows were given out
        self._at = 0
        self._spans: list[tuple[int, int]] = []  # of the window that is being filled
        self._begin: int | None = None  # first chunk of the speech that is going on
        self._voice = 0  # chunk after the last voiced one
        self._odds: list[float] = []  # of the chunks since `_begin`
        self._onset = 0  # likely chunks just before, while nobody speaks

    def feed(self, samples: Samples, odds: list[float]) -> list[Window]:
        import numpy as np

        self._audio = np.concatenate([self._audio, samples])
        windows = [window for value in odds if (window := self._step(value))]
        self._forget()
        return windows

    def finish(self) -> list[Window]:
        """Give out what is still held."""
        self._end_span(self._voice)
        window = self._emit()
        return [window] if window else []

    def _step(self, odds: float) -> Window | None:
        here = self._at
        self._at += 1
        if self._begin is None:
            if odds < _SPEECH:
                self._onset = min(_ONSET, self._onset + 1) if odds >= _LIKELY else 0
                pause = self._at - self._spans[-1][1] if self._spans else 0
                return self._emit() if pause >= _JOIN else None
            self._begin = here - self._onset
            self._odds = [odds] * self._onset
            self._onset = 0
        self._odds.append(odds)
        if odds >= _SPEECH or (odds >= _SILENCE and self._voice == here):
            self._voice = here + 1
        if self._at - self._voice >= _PAUSE:
            self._end_span(self._voice)
            full = self._spans and self._spans[-1][1] - self._spans[0][0] >= _ENOUGH
            return self._emit() if full else None
        if self._spans and self._at - self._spans[0][0] >= self._longest:
            return self._emit()
        if self._at - self._begin >= self._longest:
            return self._split(self._begin)
        return None

    def _split(self, begin: int) -> Window | None:
        """Cut speech without a pause at its longest late breath, or where it is least like speech."""
        odds = self._odds
        cut = begin + _best_cut(odds)
        self._end_span(min(self._voice, cut))
        window = self._emit(cut)
        later = odds[cut - begin :]
        voiced = [i for i, value in enumerate(later) if value >= _SILENCE]
        if voiced:
            self._begin, self._odds = cut + voiced[0], later[voiced[0] :]
            self._voice = cut + voiced[-1] + 1
        return window

    def _end_span(self, end: int) -> None:
        begin, self._begin, self._odds = self._begin, None, []
        if begin is not None and end - begin >= _SHORTEST:
            self._spans.append((begin, end))

    def _emit(self, limit: int | None = None) -> Window | None:
        """Close the window of the spans so far; its samples end at chunk `limit` at the latest."""
        spans, self._spans = self._spans, []
        if not spans:
            return None
        first = max(spans[0][0] * CHUNK - _PAD, self._taken)
        last = spans[-1][1] * CHUNK + _PAD
        if limit is not None:
            last = min(last, limit * CHUNK)
        samples = self._audio[first - self._base : last - self._base].copy()
        self._taken = first + len(samples)
        return Window(
            samples, self._time(first), [(self._time(b * CHUNK), self._time(e * CHUNK)) for b, e in spans]
        )

    def _time(self, sample: int) -> float:
        return self._origin + sample / SAMPLE_RATE

    def _forget(self) -> None:
        """Keep the sound of the window that is being filled and the padding before it, and no more."""
        begin = self._spans[0][0] if self._spans else self._at if self._begin is None else self._begin
        keep = max(self._base, (begin - _ONSET) * CHUNK - _PAD)
        self._audio = self._audio[keep - self._base :].copy()
        self._base = keep


def _best_cut(odds: list[float]) -> int:
    """The middle of the longest pause in the late part, else the chunk least like speech."""
    first = int(len(odds) * _CUT_FROM)
    best, length, run = 0, 0, 0
    for i in range(first, len(odds)):
        run = run + 1 if odds[i] < _SILENCE else 0
        if run >= length and run >= _SHORTEST:
            best, length = i + 1 - run // 2, run
    return best or min(range(first, len(odds)), key=odds.__getitem__)


def _session() -> "InferenceSession":
    import onnxruntime

    package = importlib.util.find_spec("faster_whisper")  # for its file, not its code
    if package is None or not package.submodule_search_locations:
        raise MediaError(
            f"Finding speech needs the package 'faster-whisper'. {INSTALL}", code="needs_package"
        )
    model = Path(package.submodule_search_locations[0]) / "assets" / "silero_vad_v6.onnx"
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"], sess_options=options)
