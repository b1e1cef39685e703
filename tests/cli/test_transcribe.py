"""`playhead transcribe FILE` and `playhead speech prepare`, on real files with the small speech model."""

import json
import wave
from collections.abc import Callable
from pathlib import Path

import jiwer
import pytest
import srt  # type: ignore[import-untyped]
import webvtt

from tests.cli.support import ESCAPES, SAMPLE_TEXT, left_behind, playhead, terminal, word_errors

pytestmark = pytest.mark.anyio

SAMPLE = Path(__file__).parents[2] / "src" / "playhead" / "media" / "samples" / "jfk.mp4"
NO_AUDIO = Path(__file__).parents[1] / "media" / "samples" / "espeak100_noaudio.mp4"


def _srt_text(text: str) -> str:
    return " ".join(cue.content for cue in srt.parse(text))


def _vtt_text(text: str) -> str:
    return " ".join(caption.text for caption in webvtt.from_string(text).captions)


def _json_text(text: str) -> str:
    value = json.loads(text)
    times = [(segment["start"], segment["end"]) for segment in value["segments"]]
    assert times == sorted(times)
    assert 10 < value["duration"] < 12
    assert value["model"] == "tiny.en"
    return str(value["text"])


@pytest.mark.parametrize(
    ("form", "read"), [("txt", str), ("srt", _srt_text), ("vtt", _vtt_text), ("json", _json_text)]
)
@pytest.mark.parametrize("to", ["stdout", "file"])
async def test_every_format_is_read_back_by_a_parser_of_others(
    form: str, read: Callable[[str], str], to: str, warm: dict[str, str], tmp_path: Path
) -> None:
    """R32, issue 2 item 8: the words are those of the sample; stdout holds the result alone."""
    target = tmp_path / f"out.{form}"
    more = ["--output", str(target)] if to == "file" else []
    done = await playhead("transcribe", str(SAMPLE), "--format", form, "--language", "en", *more, env=warm)
    assert done.code == 0, done.err
    assert done.err == ""
    assert (done.out == "") == (to == "file")
    text = target.read_text("utf-8") if to == "file" else done.out
    assert not ESCAPES.search(text)
    assert word_errors(read(text)) < 0.15


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _silence(path: Path) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(b"\0\0" * 32_000)
    return path


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda tmp: tmp / "none.mp4", "There is no file 'none.mp4'"),
    "a folder": (lambda tmp: tmp, "file"),
    "empty": (lambda tmp: _write(tmp / "empty.mp4", b""), "is empty"),
    "text": (lambda tmp: _write(tmp / "notes.mp4", b"not a film\n" * 50), "cannot be read"),
    "a playlist": (lambda tmp: _write(tmp / "list.mp4", b"#EXTM3U\nhttp://192.0.2.1/a\n"), "cannot be read"),
    "cut off": (lambda tmp: _write(tmp / "cut.mp4", SAMPLE.read_bytes()[:3000]), "cannot be read"),
    "without sound": (lambda _: NO_AUDIO, "no sound track"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_file_is_two_lines_and_exit_code_1(case: str, tmp_path: Path) -> None:
    """R32, issue 2: each with an error of its own, and no path of the machine in it."""
    make, text = BAD[case]
    done = await playhead("transcribe", str(make(tmp_path)))
    assert (done.code, done.out) == (1, "")
    assert text in done.fault[0]
    assert done.fault[1].strip()
    assert str(tmp_path) not in done.err


async def test_silence_is_an_empty_transcript_and_a_note(tmp_path: Path) -> None:
    """R32: no words are invented."""
    done = await playhead("transcribe", str(_silence(tmp_path / "silence.wav")), "--format", "srt")
    assert (done.code, done.out.strip()) == (0, "")
    assert "Note: nothing is said in it." in done.err


@pytest.mark.parametrize(
    ("args", "text", "todo"),
    [
        (("--model", "medium"), "no speech model 'medium'", "playhead speech prepare"),
        (("--model", "small"), "no weights", "playhead speech prepare"),
        (("--language", "es"), "English only", ""),
        (("--output", "nowhere/out.vtt"), "no folder", "another"),
    ],
)
async def test_what_cannot_be_done_is_said(
    args: tuple[str, ...], text: str, todo: str, warm: dict[str, str]
) -> None:
    done = await playhead("transcribe", str(SAMPLE), *args, env=warm)
    assert (done.code, done.out) == (1, "")
    assert text in done.fault[0]
    assert todo in done.fault[1]


async def test_progress_is_for_a_terminal_and_ctrl_c_stops_the_work(tmp_path: Path) -> None:
    """Exit code 130, no traceback, and no process stays behind."""
    home = str(tmp_path / "home")
    async with terminal("transcribe", str(SAMPLE), env={"PLAYHEAD_HOME": home}) as shown:
        await shown.wait_for("loading the model")
        assert len(left_behind(home)) == 2
        shown.type("\x03")
        assert await shown.ended() == 130
        await shown.wait_for("Interrupted.")
        assert "Traceback" not in shown.everything
        assert left_behind(home) == []


async def test_prepare_says_which_model_is_used_and_what_a_better_one_costs() -> None:
    """Issue 2, item 9."""
    done = await playhead("speech", "prepare")
    assert done.code == 0, done.err
    assert "checking the model tiny.en" in done.err
    assert done.out.startswith("In use: Whisper tiny.en, English only, 75 MB\n")
    assert "Better: small, a download of 486 MB" in done.out
    assert "playhead speech prepare --model small" in done.out


@pytest.mark.parametrize(("model", "todo"), [("small", "HF_ENDPOINT"), ("medium", "--model")])
async def test_prepare_says_what_keeps_it_from_a_model(model: str, todo: str) -> None:
    done = await playhead("speech", "prepare", "--model", model, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert (done.code, done.out) == (1, "")
    assert todo in done.fault[1]


def test_the_measure_of_words_can_fail() -> None:
    """Otherwise the tests above would prove nothing."""
    assert jiwer.wer("a b", "a c") == 0.5
    assert word_errors(SAMPLE_TEXT.upper()) == 0
    assert word_errors("And so my fellow Americans") > 0.5
