"""The sound of a file as a stream of samples that keeps the player's clock.

Naive readers count samples. A track that starts late, a hole, a damaged packet or overlapping pieces
then shift every later caption. Here the time stamps rule: what is missing becomes silence, what comes
twice is dropped, so sample n is heard at n / 16,000 seconds in any player, within 0.2 s.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playhead.errors import MediaError
from playhead.media.container import MediaFile, decode_errors
from playhead.media.extra import require
from playhead.media.probe import start_of
from playhead.media.types import SAMPLE_RATE, Samples, TranscriptWarning

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet

TOLERANCE = 0.2
# A stamp this far back is a new count, not a repetition; FFmpeg's own threshold.
_NEW_COUNT = 10.0
# Without a known length, a longer hole than this is a wild stamp.
_LONGEST_HOLE = 600.0
_MAX_BAD_READS = 100
_BLOCK = SAMPLE_RATE
_SILENCE = 10 * SAMPLE_RATE
# Formats whose length FFmpeg guesses from the bit rate.
_GUESSED = {"aac", "ac3", "amr", "mpeg", "mpegts"}


class AudioReader:
    """Reads the first sound track that can be decoded.

    Args:
        path: the file.
        start: where to begin, in seconds. What lies before is decoded and left out.

    Attributes:
        promised: the length that the container claims, in seconds, or None.
        position: how far `blocks` has come, in seconds from the start of the file.
        reached: after the last block, the end of what could be read, pictures included.
        warnings: what was found on the way.
    """

    def __init__(self, path: Path, start: float = 0.0) -> None:
        self._path = path
        self._skip = round(start * SAMPLE_RATE)
        self._clock = 0  # samples put out, the skipped ones included
        self._heard = 0  # of them, decoded ones
        self._offset = 0.0  # added to a stamp to give the time
        self._resampler: AudioResampler | None = None
        self.promised: float | None = None
        self.reached = 0.0
        self.warnings: list[TranscriptWarning] = []

    @property
    def position(self) -> float:
        return self._clock / SAMPLE_RATE

    def blocks(self) -> Iterator[Samples]:
        """Yield the samples from `start` on, in blocks of a second or more, without a gap.

        Raises `MediaError`: as `probe`, and `no_audio`, `no_decodable_audio`.
        """
        require("av", "numpy")
        import numpy as np

        waiting: list[Samples] = []
        size = 0
        for piece in self._pieces():
            before = self._clock
            self._clock += len(piece)
            kept = piece[max(0, self._skip - before) :]
            if len(kept):
                waiting.append(kept)
                size += len(kept)
            if size >= _BLOCK:
                yield np.concatenate(waiting)
                waiting, size = [], 0
        if waiting:
            yield np.concatenate(waiting)
        if not self._heard:
            raise MediaError(
                f"{self._path.name!r} has a sound track, but nothing in it can be decoded.",
                code="no_decodable_audio",
            )
        self.reached = max(self.reached, self.position)

    def _pieces(self) -> Iterator[Samples]:
        """Samples in order and in time, in pieces of any size."""
        with MediaFile(self._path) as container:
            stream = _sound_track(container, self._path.name)
            self.promised = container.duration / 1_000_000 if container.duration else None
            self._offset = -start_of(container)
            for frame in self._frames(container, stream):
                time = (
                    None if frame.pts is None or not frame.time_base else float(frame.pts * frame.time_base)
                )
                yield from self._placed(time, frame)
            yield from self._resampled(None)
            self._judge_end(container.format.name)

    def _placed(self, stamp: float | None, frame: "AudioFrame") -> Iterator[Samples]:
        """Put one frame where its stamp says."""
        if stamp is not None:
            ahead = stamp + self._offset - self.position
            if ahead < -_NEW_COUNT or ahead > self._longest_hole():
                self._offset -= ahead
            elif ahead < -TOLERANCE:
                return
            elif ahead > TOLERANCE:
                yield from self._silence(stamp)
        for samples in self._resampled(frame):
            self._heard += len(samples)
            yield samples

    def _silence(self, stamp: float) -> Iterator[Samples]:
        import numpy as np

        if self._clock:
            self._warn("gap")
        for tail in self._resampled(None):
            self._heard += len(tail)
            yield tail
        missing = round((stamp + self._offset) * SAMPLE_RATE) - self._clock
        while missing > 0:
            yield np.zeros(min(missing, _SILENCE), dtype=np.float32)
            missing -= _SILENCE

    def _longest_hole(self) -> float:
        return _LONGEST_HOLE if self.promised is None else max(0.0, self.promised - self.position) + 1.0

    def _resampled(self, frame: "AudioFrame | None") -> Iterable[Samples]:
        """16 kHz mono samples of one frame; None gives what the resampler still holds."""
        from av.audio.resampler import AudioResampler

        if frame is None:
            last, self._resampler = self._resampler, None
            return _converted(last, None) if last else []
        frame.pts = None
        if self._resampler is not None:
            try:
                return _converted(self._resampler, frame)
            except decode_errors():
                pass  # the sound changed its form in mid-file (a damaged mp3 does): begin anew
        try:
            if frame.sample_rate < 1000:
                raise ValueError("a second would become minutes of memory")
            self._resampler = AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
            return _converted(self._resampler, frame)
        except decode_errors():
            self._resampler = None
            self._warn("bad_packets")
            return []

    def _frames(self, container: "InputContainer", stream: "AudioStream") -> "Iterator[AudioFrame]":
        errors = decode_errors()
        for packet in self._packets(container):
            if packet.pts is not None and packet.time_base is not None:
                end = float((packet.pts + (packet.duration or 0)) * packet.time_base)
                self.reached = max(self.reached, end - start_of(container))
            if packet.stream is not stream:
                continue
            try:
                frames = packet.decode()
            except EOFError:
                continue  # the decoder was flushed before
            except errors:
                self._warn("bad_packets")
                continue
            yield from frames  # type: ignore[misc]  # an AudioStream's packets decode to AudioFrames

    def _packets(self, container: "InputContainer") -> "Iterator[Packet[Any]]":
        """The packets of all streams; after a bad read the next one is tried."""
        errors = decode_errors()
        for _ in range(_MAX_BAD_READS):
            try:
                yield from container.demux()
                return
            except errors:
                self._warn("bad_packets")

    def _judge_end(self, container: str) -> None:
        if self.promised is None or container in _GUESSED:
            return
        # The length of an mp3 without a header is a guess too, a fair one.
        slack = max(1.0, self.promised * (0.05 if container == "mp3" else 0.01))
        if max(self.reached, self.position) < self.promised - slack:
            self._warn("truncated")

    def _warn(self, warning: TranscriptWarning) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)


def check_sound(path: Path) -> None:
    """Raise the `MediaError` that `blocks` would raise for a file without a sound to read, at once."""
    with MediaFile(path) as container:
        _sound_track(container, path.name)


def _sound_track(container: "InputContainer", name: str) -> "AudioStream":
    tracks = container.streams.audio
    if not tracks:
        raise MediaError(f"{name!r} has no sound track, so there is nothing to transcribe.", code="no_audio")
    for track in tracks:
        if track.codec_context is not None:
            return track
    raise MediaError(
        f"The sound of {name!r} is coded in a way that FFmpeg does not know.", code="unsupported"
    )


def _converted(resampler: "AudioResampler", frame: "AudioFrame | None") -> list[Samples]:
    import numpy as np

    pieces = []
    for out in resampler.resample(frame):
        samples = out.to_ndarray().reshape(-1).astype(np.float32, copy=False)
        if not np.isfinite(samples).all():
            samples = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0)
        pieces.append(np.clip(samples, -1.0, 1.0))
    return pieces
