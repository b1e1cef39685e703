"""Issue 2, item 9: commands, help, exit codes, and what is said when something is wrong."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from playhead import __version__
from playhead.cli.commands import run
from playhead.cli.faults import CommandError, fault_of
from playhead.cli.screen import clean, plain_clock
from playhead.errors import AuthError, ConfigError, MediaError
from tests.cli.support import CANARY, environment, playhead

SAMPLE = Path(__file__).parents[2] / "src" / "playhead" / "media" / "samples" / "jfk.mp4"

COMMANDS = [
    "demo",
    "serve",
    "link",
    "worker",
    "runs",
    "show",
    "chat",
    "transcribe",
    "speech",
    "speech prepare",
    "doctor",
    "probe",
]


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_explains_itself_with_an_example_first(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), flag]) == 0
    shown = capsys.readouterr().out
    options = shown.index("Options:")
    assert 0 < shown.index(f"playhead {command}".strip()) < shown.index("Example:") < options
    assert f"playhead {command}" in shown[shown.index("Example:") : options]


def test_what_is_not_finished_is_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    shown = capsys.readouterr().out
    listed = [line.split()[0] for line in shown.partition("Commands:\n")[2].splitlines()]
    assert listed == [name for name in COMMANDS if " " not in name]


def test_help_loads_neither_the_parts_nor_what_they_stand_on() -> None:
    """Help is shown in a fraction of a second because nothing else is loaded."""
    script = (
        "import sys; from playhead.cli.commands import run; run(['demo', '--help']); run(['--help']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"aiohttp", "av", "numpy", "rich", "starlette", "uvicorn", "pydantic", "asyncio", "msgspec"}
    assert heavy & set(done.stderr.split()) == set()


@pytest.mark.anyio
async def test_the_version_is_that_of_the_package() -> None:
    done = await playhead("--version")
    assert (done.code, done.out) == (0, f"playhead, version {__version__}\n")


def test_the_installed_command_is_the_same_one() -> None:
    script = Path(sysconfig.get_path("scripts")) / "playhead"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"playhead, version {__version__}\n"


@pytest.mark.parametrize(
    "args", [["nonsense"], ["demo", "--nonsense"], ["transcribe"], ["transcribe", "f", "--format", "pdf"], []]
)
def test_wrong_usage_is_exit_code_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    assert "Usage: playhead" in capsys.readouterr().err


def test_without_click_it_says_what_to_install(tmp_path: Path) -> None:
    """Issue 2, item 9: the console script must not end in a traceback."""
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')")
    done = subprocess.run(
        [sys.executable, "-m", "playhead", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "Error: the command line is not installed.",
        "Install it with: pip install 'playhead[cli]'",
    ]


@pytest.mark.parametrize(
    ("package", "extra"), [("rich", "cli"), ("starlette", "server"), ("faster_whisper", "speech")]
)
def test_a_missing_package_is_told_by_its_extra(package: str, extra: str) -> None:
    outer = ImportError("playhead.server needs more")
    outer.__cause__ = ModuleNotFoundError(f"No module named '{package}.x'", name=f"{package}.x")
    for error in (outer, outer.__cause__):
        fault = fault_of(error)
        assert package in fault.what
        assert (fault.todo, fault.exit_code) == (f"Run: pip install 'playhead[{extra}]'", 2)


@pytest.mark.parametrize(
    ("error", "todo", "code"),
    [
        (MediaError("'a.mp4' has no audio track.", code="no_audio"), "sound track", 1),
        (MediaError("There are no weights.", code="weights_missing"), "playhead speech prepare", 1),
        (AuthError("401 from api.example."), "LLM_API_KEY", 1),
        (ConfigError("Missing configuration: LLM_MODEL."), "playhead doctor", 2),
        (CommandError("There is no message.", "Say something.", 2), "Say something.", 2),
        (RuntimeError(f"broken\nby {CANARY} in /home/ada/secret.txt"), "--debug", 1),
    ],
)
def test_an_error_is_one_line_what_and_one_line_what_to_do(error: Exception, todo: str, code: int) -> None:
    """Design 7.12: no key and no path of the machine is in it."""
    fault = fault_of(error)
    assert todo in fault.todo
    assert fault.exit_code == code
    assert fault.what.split(".")[0].split("\n")[0] in str(error) or "RuntimeError" in fault.what
    for line in (fault.what, fault.todo):
        assert line.strip()
        assert "\n" not in line
        assert CANARY not in line
        assert "/home/" not in line


@pytest.mark.anyio
async def test_debug_shows_where_it_came_from_without_the_key() -> None:
    """R43: a base URL that holds a password shows up in neither."""
    env = {
        "LLM_PROVIDER": "openai-compatible",
        "LLM_MODEL": "m",
        "LLM_API_KEY": CANARY,
        "LLM_BASE_URL": f"ftp://user:{CANARY}@host",
    }
    for args in (["chat", "--debug", "hi"], ["--debug", "chat", "hi"], ["chat", "hi"]):
        done = await playhead(*args, env=env)
        assert done.code == 2
        assert ("Traceback" in done.err) == ("--debug" in args)
        assert "Error: The base URL" in done.err
        assert CANARY not in done.err


def _shell(line: str, env: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        env={**environment(env), "PLAYHEAD": f"{sys.executable} -m playhead"},
        timeout=60,
    )


@pytest.mark.parametrize("command", ["doctor", "demo --once", "chat hi", "demo --once 2>&1"])
def test_a_reader_that_leaves_early_changes_nothing(command: str, warm: dict[str, str]) -> None:
    """`| head -1`: the work ends as it would have, without a word."""
    done = _shell(f"$PLAYHEAD {command} </dev/null | head -1", {**warm, "LLM_PROVIDER": "mock"})
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


def test_a_word_that_the_terminal_cannot_show_does_not_end_the_run(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    video = tmp_path / "gr\u00fc\u00dfe.mp4"
    video.write_bytes(SAMPLE.read_bytes())
    done = _shell(f"$PLAYHEAD demo --once '{video}'", {**warm, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert b"gr??e.mp4" in done.stdout


def test_text_of_others_cannot_drive_the_terminal() -> None:
    """A title, a colour or a cleared screen in a model's text stays text."""
    assert clean("a\x1b[2J\x1b]0;title\x07b\r\nc\td\x9be\x7f") == "a[2J]0;titleb\nc\tde"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00.0"), (5.24, "0:05.2"), (59.96, "1:00.0"), (3725.5, "62:05.5")]
)
def test_times_are_minutes_and_seconds(seconds: float, shown: str) -> None:
    assert plain_clock(seconds) == shown
