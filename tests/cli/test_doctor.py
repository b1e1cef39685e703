"""`playhead doctor` says what is configured, what is missing, what to do."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from playhead.cli.commands import run
from tests.cli.support import CANARY, ESCAPES, playhead

FULL = {
    "LLM_PROVIDER": "openai-compatible",
    "LLM_MODEL": "some-model",
    "LLM_API_KEY": CANARY,
    "LLM_BASE_URL": f"http://user:{CANARY}@127.0.0.1:9/v1",
}


@pytest.fixture(autouse=True)
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYHEAD_SPEECH_MODEL", "tiny.en")


def look(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any], str]:
    code = run(["doctor", "--json", *args])
    shown = capsys.readouterr().out
    report = json.loads(shown)
    assert report["ok"] == (code == 0)
    return code, {check["name"]: check for check in report["checks"]}, shown


def test_with_nothing_configured_the_demo_would_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 2, item 9: and it says that the model is the mock, and how to set another."""
    code, checks, _ = look(capsys)
    assert code == 0
    assert checks["model"]["status"] == "note"
    assert "mock" in checks["model"]["text"]
    assert "LLM_PROVIDER" in checks["model"]["todo"]
    assert "tiny.en" in checks["speech model"]["text"]
    assert {"python", "server", "speech", "PLAYHEAD_HOME", "disk", "port"} <= set(checks)


def test_it_changes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    look(capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_configuration_is_told_without_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: neither the key nor a password in the base URL."""
    for name, value in FULL.items():
        monkeypatch.setenv(name, value)
    code, checks, shown = look(capsys)
    assert code == 0
    assert checks["model"]["status"] == "ok"
    for part in ("openai-compatible", "some-model", "LLM_API_KEY is set", "127.0.0.1:9"):
        assert part in checks["model"]["text"]
    assert CANARY not in shown


@pytest.mark.parametrize("missing", ["LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY"])
def test_a_configuration_in_part_is_a_problem_that_names_the_rest(
    missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R44."""
    for name, value in FULL.items():
        if name != missing:
            monkeypatch.setenv(name, value)
    code, checks, shown = look(capsys)
    assert code == 1
    assert checks["model"]["status"] == "problem"
    assert missing in checks["model"]["text"]
    assert CANARY not in shown


def test_an_unknown_provider_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R45."""
    monkeypatch.setenv("LLM_PROVIDER", "unknown-provider")
    code, checks, _ = look(capsys)
    assert code == 1
    assert "Unknown LLM provider: unknown-provider" in checks["model"]["text"]
    assert "openai-compatible, " in checks["model"]["todo"], "what there is instead"


def test_a_speech_model_that_is_not_there_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYHEAD_SPEECH_MODEL", "small")
    code, checks, _ = look(capsys)
    assert code == 1
    assert checks["speech model"]["status"] == "problem"
    assert "playhead speech prepare" in checks["speech model"]["todo"]


def test_a_speech_service_needs_no_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYHEAD_SPEECH_MODEL", "small")
    monkeypatch.setenv("PLAYHEAD_SPEECH_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PLAYHEAD_SPEECH_API_KEY", CANARY)
    code, checks, shown = look(capsys)
    assert code == 0
    assert "127.0.0.1:9" in checks["speech model"]["text"]
    assert CANARY not in shown


def test_a_home_that_cannot_be_written_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLAYHEAD_HOME", str(tmp_path / "file" / "home"))
    code, checks, _ = look(capsys)
    assert code == 1
    assert checks["PLAYHEAD_HOME"]["status"] == "problem"
    assert "PLAYHEAD_HOME" in checks["PLAYHEAD_HOME"]["todo"]


def test_a_port_in_use_is_only_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, checks, _ = look(capsys, "--port", str(taken.getsockname()[1]))
    assert code == 0
    assert checks["port"]["status"] == "note"


def test_deep_compares_every_file_of_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that has the right size and another content is found by --deep alone."""
    from playhead.media.catalogue import KNOWN
    from playhead.media.models import find_model

    good = find_model("tiny.en", tmp_path / "none").folder
    monkeypatch.setenv("PLAYHEAD_HOME", str(tmp_path))
    folder = tmp_path / "models" / "tiny.en"
    folder.mkdir(parents=True)
    for file in KNOWN["tiny.en"].files:
        (folder / file.name).symlink_to(good / file.name)
    assert look(capsys, "--deep")[1]["speech model"]["text"].endswith("as published")
    vocabulary = folder / "vocabulary.txt"
    changed = b"x" * vocabulary.stat().st_size
    vocabulary.unlink()
    vocabulary.write_bytes(changed)
    assert look(capsys)[0] == 0
    code, checks, _ = look(capsys, "--deep")
    assert code == 1
    assert "vocabulary.txt" in checks["speech model"]["text"]


@pytest.mark.anyio
async def test_on_a_pipe_it_is_plain_lines() -> None:
    done = await playhead("doctor")
    assert (done.code, done.err) == (0, "")
    assert not ESCAPES.search(done.out)
    assert done.out.splitlines()[-1] == "The demo will work: playhead demo"
