"""What a file is comes from its content, and what is wrong with it is said."""

import os
import random
from pathlib import Path

import pytest

from playhead.errors import MediaError
from playhead.media.probe import probe
from playhead.media.types import Probe
from tests.media import build
from tests.media.build import tone

HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"
CONCAT = "ffconcat version 1.0\nfile 'secret.mp4'\n"
SDP = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 96\n"


def test_a_video_is_known_by_its_content() -> None:
    """R32: kind, length and size of a real recording."""
    assert probe(build.JFK) == Probe(
        kind="video",
        container="mov",
        suffix=".mp4",
        content_type="video/mp4",
        duration=11.1,
        has_audio=True,
        width=320,
        height=180,
    )
    assert probe(build.LIBRIVOX).content_type == "video/webm"
    assert not probe(build.NO_AUDIO).has_audio


@pytest.mark.parametrize(
    ("name", "codec", "content_type"),
    [
        ("a.wav", "pcm_s16le", "audio/wav"),
        ("a.mp3", "libmp3lame", "audio/mpeg"),
        ("a.mp4", "aac", "audio/mp4"),
        ("a.webm", "libopus", "audio/webm"),
        ("a.ogg", "libopus", "audio/ogg"),
        ("a.flac", "flac", "audio/flac"),
    ],
)
def test_a_sound_is_known_by_its_content(tmp_path: Path, name: str, codec: str, content_type: str) -> None:
    """R32: a sound is not a video, whatever its container."""
    path = build.write(tmp_path / name, [(0.0, tone(2.0))], codec=codec)
    found = probe(path.rename(tmp_path / "no-name"))
    assert (found.kind, found.content_type, found.has_audio) == ("audio", content_type, True)
    assert found.duration == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(("codec", "content_type"), [("png", "image/png"), ("mjpeg", "image/jpeg")])
def test_a_picture_is_an_image_also_when_it_is_called_mp4(
    tmp_path: Path, codec: str, content_type: str
) -> None:
    """R32: an image has no length and nothing to hear."""
    path = build.picture(tmp_path / ("a.png" if codec == "png" else "a.jpg"), codec)
    for name in (path, path.rename(tmp_path / "holiday.mp4")):
        found = probe(name) if name.exists() else probe(tmp_path / "holiday.mp4")
        assert (found.kind, found.content_type, found.duration) == ("image", content_type, None)
        assert (found.width, found.height) == (64, 48)


def test_the_length_is_counted_where_it_is_not_written(tmp_path: Path) -> None:
    """R32: a browser's own recording says nothing of its length."""
    path = build.write(tmp_path / "a.webm", [(0.0, tone(3.0))], codec="libopus", format="webm")
    assert probe(build.without_length(path)).duration == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (b"\0" * 5000, "unreadable"),
        (b"This is a letter to my bank.\n" * 200, "unreadable"),
        (b"%PDF-1.7\n" + b"stream " * 500, "unreadable"),
        (random.Random(1).randbytes(6000), "unreadable"),
        (HLS.encode(), "unreadable"),
        (CONCAT.encode(), "unsupported"),
        (SDP.encode(), "unsupported"),
    ],
    ids=["empty", "zeros", "text", "pdf", "noise", "playlist", "concat", "sdp"],
)
def test_what_is_no_media_is_refused_by_code(tmp_path: Path, content: bytes, code: str) -> None:
    """R32: each fault of a file has its own clear error; no other file and no network is touched."""
    build.wav(tmp_path / "secret.mp4", tone(0.5))
    path = tmp_path / "holiday.mp4"
    path.write_bytes(content)
    with pytest.raises(MediaError) as caught:
        probe(path)
    assert caught.value.code == code
    assert "holiday.mp4" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_an_mp4_whose_index_was_cut_off_is_unreadable(tmp_path: Path) -> None:
    """R32: truncated: an mp4 keeps its index at the end."""
    path = build.write(tmp_path / "a.mp4", [(0.0, tone(5.0))])
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(MediaError) as caught:
        probe(path)
    assert caught.value.code == "unreadable"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    """R32: a missing file, a folder and a device are no media."""
    for path in (tmp_path / "nothing.mp4", tmp_path, Path(os.devnull), tmp_path / "a" / "b.mp4"):
        with pytest.raises(MediaError) as caught:
            probe(path)
        assert caught.value.code == "not_found"
