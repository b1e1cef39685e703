"""Waveforms and thumbnails: what they show, that they are kept, and what bad files do."""

import asyncio
from pathlib import Path

import av
import numpy as np
import pytest

from playhead.errors import MediaError
from playhead.media import previews
from playhead.media.previews import Previews, Waveform
from playhead.media.sheet import draw_sheet
from playhead.media.types import IsCancelled
from tests.media.build import JFK, NO_AUDIO, picture, silence, tone, write

pytestmark = pytest.mark.anyio


async def test_a_waveform_is_loud_where_the_sound_is(tmp_path: Path) -> None:
    """Issue 7, 2: parts of equal length, on the player's clock."""
    path = write(tmp_path / "a.mp4", [(0.0, silence(2)), (2.0, tone(2)), (4.0, silence(2))])
    wave = await Previews(tmp_path / "cache").waveform(path, "x")
    assert wave.duration == pytest.approx(6, abs=0.2)
    third = len(wave.peaks) // 3
    quiet, loud = wave.peaks[: third - 5] + wave.peaks[-third + 10 :], wave.peaks[third + 5 : 2 * third - 5]
    assert max(quiet) < 5
    assert min(loud) > 60
    assert 0 <= min(wave.peaks) <= max(wave.peaks) <= 255


async def test_a_file_without_sound_has_no_peaks_and_a_sound_no_pictures(tmp_path: Path) -> None:
    made = Previews(tmp_path / "cache")
    assert (await made.waveform(NO_AUDIO, "x")).peaks == []
    sound = write(tmp_path / "a.mp4", [(0.0, tone(1))])
    assert (await made.thumbnails(sound, "y")).count == 0


async def test_thumbnails_are_of_their_time(tmp_path: Path) -> None:
    """Issue 7, 2: a picture each second, brighter as the video of the test goes on."""
    path = write(tmp_path / "a.mp4", [(0.0, tone(8))], video=8.0)
    made = await Previews(tmp_path / "cache").thumbnails(path, "x")
    assert (made.count, made.width) == (8, 160)
    assert made.every == pytest.approx(1, abs=0.1)
    sheet = tmp_path / "sheet.jpg"
    sheet.write_bytes(made.jpeg)
    with av.open(str(sheet)) as container:
        pixels = next(container.decode(video=0)).to_ndarray(format="gray")
    assert pixels.shape == (made.height, made.width * made.count)
    shades = [float(np.mean(pixels[:, i * 160 + 20 : i * 160 + 140])) for i in range(8)]
    assert shades == sorted(shades)
    assert shades[-1] - shades[0] > 50


async def test_a_picture_and_a_long_video_have_thumbnails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = draw_sheet(picture(tmp_path / "still.png"), lambda: False)
    assert (still.count, still.jpeg[:2]) == (1, b"\xff\xd8")
    monkeypatch.setattr("playhead.media.sheet._SHORT", 1.0)
    assert draw_sheet(JFK, lambda: False).count == 11


async def test_what_was_made_once_is_kept_and_made_anew_when_it_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 7, 2: computed once, though several ask at once; kept over a restart."""
    calls: list[Path] = []
    draw = previews.draw_waveform

    def counted(path: Path, left: IsCancelled) -> Waveform:
        calls.append(path)
        return draw(path, left)

    monkeypatch.setattr(previews, "draw_waveform", counted)
    made = Previews(tmp_path)
    waves = await asyncio.gather(*(made.waveform(JFK, "x") for _ in range(3)))
    assert waves[0] == waves[1] == waves[2] == await Previews(tmp_path).waveform(JFK, "x")
    assert len(calls) == 1
    (place,) = (tmp_path / "x").iterdir()
    place.write_bytes(place.read_bytes()[:50])
    assert await made.waveform(JFK, "x") == waves[0]
    assert len(calls) == 2
    await made.forget("x")
    assert not (tmp_path / "x").exists()


async def test_a_file_that_is_none_and_a_caller_who_left_are_told_apart(tmp_path: Path) -> None:
    bad = tmp_path / "bad.mp4"
    bad.write_text("no media")
    for work in (Previews(tmp_path).waveform(bad, "x"), Previews(tmp_path).thumbnails(bad, "x")):
        with pytest.raises(MediaError, match=r"bad\.mp4") as caught:
            await work
        assert caught.value.code == "unreadable"
    for draw in (previews.draw_waveform, draw_sheet):
        with pytest.raises(MediaError, match="nobody waits") as caught:
            draw(JFK, lambda: True)
        assert caught.value.code == "cancelled"
