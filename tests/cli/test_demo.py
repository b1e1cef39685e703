"""`playhead demo`: the whole path, with real sockets and real speech. Issue 2, item 9."""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead.media.library import MediaLibrary
from playhead.session.stores import ChatStore
from playhead.testing import (
    FakeProvider,
    Reply,
    gemini_sse,
    openai_sse,
    reply_json,
)
from playhead.types import AssistantMessage, ToolMessage
from tests.cli.support import (
    CANARY,
    ESCAPES,
    Finished,
    left_behind,
    line_with,
    playhead,
    started,
    terminal,
    word_errors,
)

pytestmark = pytest.mark.anyio

NO_AUDIO = Path(__file__).parents[1] / "media" / "samples" / "espeak100_noaudio.mp4"
CALL: tuple[str, Any] = ("transcribe_video", {})
ANSWER = "It asks what you can do."
# For gemini the environment cannot name another server (R42), so its own address is replaced.
GEMINI = (
    "import playhead.llm.gemini as g; g.DEFAULT_BASE_URL = {url!r}; from playhead.cli import main; main()"
)


def spoken(done: Finished) -> str:
    """The words of the timed lines."""
    return " ".join(re.findall(r"^  \d+:\d\d\.\d - \d+:\d\d\.\d  (.+)$", done.out, re.MULTILINE))


async def test_with_nothing_configured_it_transcribes_the_sample(tmp_path: Path) -> None:
    """R3, R18-R23, R27, R62-R64: call, progress, timed lines, answer; in the store in that order."""
    home = tmp_path / "home"
    done = await playhead("demo", "--once", env={"PLAYHEAD_HOME": str(home)})
    assert done.code == 0, done.err
    assert "mock" in done.out
    places = [
        re.search(pattern, done.out, re.MULTILINE)
        for pattern in (
            r"^transcribe_video \{\}$",
            r"^ +\d+% +\d+\.\d s ",
            r"^  0:\d\d\.\d - 0:\d\d\.\d ",
            r"^Here is the transcript of jfk\.mp4: And so my fellow",
        )
    ]
    starts = [place.start() for place in places if place is not None]
    assert len(starts) == 4
    assert starts == sorted(starts)
    assert word_errors(spoken(done)) < 0.15
    messages = ChatStore(persist=home / "chats" / "demo.jsonl").messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    call, result = messages[1], messages[2]
    assert isinstance(call, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert (call.tool_calls[0].name, call.tool_calls[0].id) == ("transcribe_video", result.tool_call_id)
    assert left_behind(str(home)) == []


async def test_on_a_pipe_there_are_no_control_codes(warm: dict[str, str]) -> None:
    done = await playhead("demo", "--once", env=warm)
    assert done.code == 0
    assert not ESCAPES.search(done.out + done.err)


async def test_the_same_video_is_found_again_and_not_added_twice(tmp_path: Path) -> None:
    """And the second transcript comes from the cache: the speech model is not even loaded."""
    home = tmp_path / "home"
    first, second = [await playhead("demo", "--once", env={"PLAYHEAD_HOME": str(home)}) for _ in range(2)]
    assert (first.code, second.code) == (0, 0)
    assert "loading the model" in first.out
    assert "loading the model" not in second.out
    assert spoken(first) == spoken(second)
    assert [record.name for record in MediaLibrary(home / "media").list()] == ["jfk.mp4"]


@pytest.mark.parametrize("dialect", ["openai-compatible", "gemini"])
async def test_with_a_provider_configured_it_is_the_one_that_is_asked(dialect: str) -> None:
    """R10-R14, R20, R39: tool schemas and the system prompt out, the transcript back, the answer shown."""
    make: Callable[..., Reply] = gemini_sse if dialect == "gemini" else openai_sse
    async with FakeProvider(make(calls=[CALL]), make(ANSWER)) as provider:
        env = {"LLM_PROVIDER": dialect, "LLM_MODEL": "some-model", "LLM_API_KEY": CANARY}
        command: tuple[str, ...] = (sys.executable, "-c", GEMINI.format(url=provider.url))
        if dialect != "gemini":
            env["LLM_BASE_URL"] = f"{provider.url}/v1"
            command = ()
        done = await playhead("demo", "--once", env=env, command=command)
    assert done.code == 0, done.err
    assert f"Model   {dialect} some-model\n" in done.out
    assert done.out.endswith(f"\n{ANSWER}\n")
    assert word_errors(spoken(done)) < 0.15
    first, second = (request.body.decode() for request in provider.requests)
    for part in ("transcribe_video", "assetId", "jfk.mp4"):
        assert part in first
    assert "ask not what your country can do" not in first.lower()
    assert "ask not what your country can do" in second.lower()
    assert CANARY not in done.out + done.err


@pytest.mark.parametrize("missing", ["LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY"])
async def test_a_configuration_in_part_is_never_silently_mocked(missing: str) -> None:
    """R44: it stops and names what is missing."""
    env = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "m", "LLM_API_KEY": CANARY}
    del env[missing]
    done = await playhead("demo", "--once", env=env)
    assert (done.code, done.out) == (2, "")
    assert missing in done.fault[0]
    assert CANARY not in done.err


@pytest.mark.parametrize(
    ("reply", "what", "todo"),
    [
        (reply_json({"error": {"message": CANARY}}, 401), "", "LLM_API_KEY"),
        (openai_sse("I see no video."), "without calling transcribe_video", "model"),
    ],
    ids=["refused key", "no call"],
)
async def test_a_run_that_did_not_work_is_exit_code_1(reply: Reply, what: str, todo: str) -> None:
    """R16, R25: two lines, no key, no body of the provider."""
    async with FakeProvider(reply) as provider:
        env = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "m", "LLM_API_KEY": CANARY}
        done = await playhead("demo", "--once", env={**env, "LLM_BASE_URL": f"{provider.url}/v1"})
    assert done.code == 1
    assert what in done.fault[0]
    assert todo in done.fault[1]
    assert CANARY not in done.out + done.err


async def test_a_video_of_ones_own_is_taken_and_a_bad_one_is_told(tmp_path: Path) -> None:
    """R32: a video without a sound track is added, and the tool says what is wrong with it."""
    done = await playhead("demo", "--once", str(NO_AUDIO))
    assert done.code == 1
    assert f"Video   {NO_AUDIO.name}" in done.out
    assert "sound track" in done.fault[0]
    missing = await playhead("demo", "--once", str(tmp_path / "none.mp4"))
    assert (missing.code, missing.out) == (1, "")
    assert "There is no file 'none.mp4'" in missing.fault[0]


async def test_without_a_speech_model_it_says_so_before_it_begins() -> None:
    done = await playhead("demo", "--once", env={"PLAYHEAD_SPEECH_MODEL": "small"})
    assert (done.code, done.out) == (1, "")
    assert "no weights" in done.fault[0]
    assert done.fault[1] == "Run: playhead speech prepare"


async def test_a_port_that_is_taken_is_replaced_unless_it_was_asked_for(warm: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        usual = f"import playhead.cli.demo as d; d.PORT = {port}; from playhead.cli import main; main()"
        done = await playhead("demo", "--once", env=warm, command=(sys.executable, "-c", usual))
        asked = await playhead("demo", "--once", "--port", str(port), env=warm)
    assert done.code == 0
    assert f"Port {port} is in use" in done.err
    assert asked.code == 2
    assert str(port) in asked.fault[0]


async def test_without_once_it_serves_the_page_until_a_signal(warm: dict[str, str]) -> None:
    """The page and the video are there; SIGINT ends it within five seconds, exit code 0."""
    async with started("demo", env=warm) as process:
        assert process.stdout
        url = (await line_with("The page: ", process.stdout)).split()[2]
        async with aiohttp.ClientSession(url) as client:
            async with client.get("/") as page, client.get("/api/media") as media:
                assert page.status == 200
                items = (await media.json())["items"]
                (item,) = (item for item in items if item["name"] == "jfk.mp4")
            headers = {"Range": "bytes=0-3"}
            async with client.get(f"/api/media/{item['id']}/content", headers=headers) as video:
                assert video.status == 206
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(5):
            _, err = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert left_behind(warm["PLAYHEAD_HOME"]) == []


async def test_on_a_terminal_progress_moves_and_ctrl_c_ends_the_run(tmp_path: Path) -> None:
    """Exit code 130; nothing is left behind, and the cursor is there again."""
    home = str(tmp_path / "home")
    async with terminal("demo", "--once", env={"PLAYHEAD_HOME": home}) as shown:
        await shown.wait_for("loading the model")
        shown.type("\x03")
        assert await shown.ended() == 130
        await shown.wait_for("Interrupted.")
        assert shown.everything.rindex("\x1b[?25h") > shown.everything.rindex("\x1b[?25l")
        assert "Traceback" not in shown.everything
        assert left_behind(home) == []


@pytest.mark.parametrize("no_color", ["", "1"])
async def test_no_color_is_respected(no_color: str, warm: dict[str, str]) -> None:
    async with terminal("demo", "--once", env={**warm, "NO_COLOR": no_color}) as shown:
        assert await shown.ended(30) == 0
        await shown.wait_for("Here is the transcript")
    coloured = re.search(r"\x1b\[[0-9;]*3[0-7]m", shown.everything)
    assert bool(coloured) == (not no_color)
