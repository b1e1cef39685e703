"""Media files made for the tests by PyAV, and the recordings of real speech."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np

import playhead

Samples = np.ndarray[tuple[int], np.dtype[np.float32]]

RATE = 48_000
PACKAGE = Path(playhead.__file__).parent / "media" / "samples"
SAMPLES = Path(__file__).parent / "samples"
JFK = PACKAGE / "jfk.mp4"
LIBRIVOX = SAMPLES / "librivox5.webm"
NO_AUDIO = SAMPLES / "espeak100_noaudio.mp4"
JFK_WORDS = (
    "And so my fellow Americans, ask not what your country can do for you, "
    "ask what you can do for your country."
)
LIBRIVOX_WORDS = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to "
    "do for them. He was not an ill-disposed young man, unless to be rather cold-hearted and rather "
    "selfish is to be ill-disposed. Had he married a more amiable woman, he might have been made still "
    "more respectable than he was. He might even have been made amiable himself."
)


def tone(seconds: float, pitch: float = 440.0) -> Samples:
    """A sine of 48 kHz."""
    at = np.arange(round(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * pitch * at)).astype(np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), dtype=np.float32)


def speech(path: Path = JFK) -> Samples:
    """The sound of a recording at 48 kHz mono."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    with av.open(str(path)) as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])


def write(
    path: Path,
    pieces: Sequence[tuple[float, Samples]],
    *,
    codec: str = "aac",
    video: float = 0.0,
    format: str | None = None,
) -> Path:
    """Write pieces of sound, each at its time in seconds, and a picture of `video` seconds beside it."""
    with av.open(str(path), "w", format=format) as container:
        picture: Any = (
            container.add_stream("mpeg4" if codec == "aac" else "libvpx", rate=10) if video else None
        )
        sound: Any = container.add_stream(codec, rate=RATE, layout="mono")
        if picture is not None:
            picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
            for number in range(round(video * 10)):
                image = np.full((48, 64, 3), number % 256, dtype=np.uint8)
                shot = av.VideoFrame.from_ndarray(image, format="rgb24")
                shot.pts = number
                container.mux(picture.encode(shot))
            container.mux(picture.encode(None))
        encoder = sound.codec_context
        layout = "fltp" if encoder.format.is_planar else encoder.format.name
        for start, samples in pieces:
            for offset in range(0, len(samples), 960):
                part = samples[offset : offset + 960].reshape(1, -1)
                frame = _frame(part, layout)
                frame.pts = round(start * RATE) + offset
                container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return path


def _frame(part: np.ndarray, layout: str) -> av.AudioFrame:
    if layout.startswith("s16"):
        part = (part * 32767).astype(np.int16)
    frame = av.AudioFrame.from_ndarray(part, format=layout, layout="mono")
    frame.sample_rate = RATE
    return frame


def wav(path: Path, samples: Samples) -> Path:
    """Write a sound as 16-bit WAV."""
    return write(path, [(0.0, samples)], codec="pcm_s16le")


def picture(path: Path, codec: str = "png") -> Path:
    """Write one picture, whatever the name says."""
    with av.open(str(path), "w", format="image2") as container:
        stream: Any = container.add_stream(codec, rate=1)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "rgb24" if codec == "png" else "yuvj420p"
        image = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), dtype=np.uint8), format="rgb24")
        container.mux(stream.encode(image))
        container.mux(stream.encode(None))
    return path


def without_length(path: Path) -> Path:
    """Take the length out of a Matroska file, as a browser's own recordings have none."""
    data = path.read_bytes()
    assert data.count(b"\x44\x89\x88") == 1  # the element Duration, of eight bytes
    path.write_bytes(data.replace(b"\x44\x89\x88", b"\x44\x88\x88"))  # an element that nobody knows
    return path
