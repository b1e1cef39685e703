"""`playhead worker`, `runs` and `show`: servers that take, workers that carry out, and what runs where."""

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import pytest

from playhead.session.durable.options import Durable
from playhead.session.sessions import Sessions
from tests.cli.support import ESCAPES, line_with, playhead, started
from tests.session.models import StrictLLM, loop_of

pytestmark = pytest.mark.anyio


async def waiting(home: Path) -> str:
    """Accept a run that nobody carries out, and return its id."""
    url, aside = f"sqlite:///{home / 'playhead.db'}", Durable(works=False)
    async with Sessions(loop_of(StrictLLM()), url, durable=aside) as sessions:
        return (await sessions.start("film", "hello")).run_id


async def test_a_worker_carries_out_what_a_server_takes(tmp_path: Path) -> None:
    """Issue 6: the server carries nothing out itself, and its readers follow the worker's run live."""
    env = {"PLAYHEAD_HOME": str(tmp_path / "home"), "LLM_PROVIDER": "mock"}
    async with (
        started("serve", "--port", "0", "--no-work", env=env) as server,
        aiohttp.ClientSession() as client,
    ):
        assert server.stdout
        url = (await line_with("Serving http", server.stdout)).split()[1]
        path = f"{url}/api/agent/threads/t"
        async with client.post(f"{path}/runs", json={"message": "hello"}) as answer:
            assert answer.status == 202
            run_id = (await answer.json())["runId"]
        listed = json.loads((await playhead("runs", "--json", env=env)).out)
        assert [(run["runId"], run["place"]) for run in listed] == [(run_id, "waiting")]
        async with started("worker", env=env) as worker:
            async with asyncio.timeout(30), client.get(f"{url}/api/agent/runs/{run_id}/events") as events:
                told = (await events.read()).decode()
            assert "event: run_end" in told
            worker.send_signal(signal.SIGTERM)
            _, err = await worker.communicate()
            assert (worker.returncode, err) == (0, b"Working; Ctrl-C ends it.\n")
    assert (await playhead("runs", env=env)).out == "Nothing runs, and nothing waits.\n"


async def test_what_waits_is_listed_and_shown(tmp_path: Path) -> None:
    """Issue 6: which run, of which thread, since when, and what it showed so far."""
    run_id = await waiting(tmp_path / "home")
    env = {"PLAYHEAD_HOME": str(tmp_path / "home")}
    listed = await playhead("runs", env=env)
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.startswith(f"{run_id}  waiting ")
    assert "thread film" in listed.out
    shown = await playhead("show", run_id, env=env)
    assert shown.code == 0
    assert "showed: nothing yet" in shown.out
    assert not ESCAPES.search(listed.out + shown.out)
    told = json.loads((await playhead("show", run_id, "--json", env=env)).out)
    assert told["run"]["threadId"] == "film"
    assert told["at"]["place"] == "waiting"
    doctor = json.loads((await playhead("doctor", "--json", env=env)).out)
    (runs,) = [check for check in doctor["checks"] if check["name"] == "runs"]
    assert (runs["status"], runs["text"]) == ("ok", "1 waiting")


async def test_a_run_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Issue 6: with the id that was asked for, and exit code 1."""
    done = await playhead("show", "no-such-run", env={"PLAYHEAD_HOME": str(tmp_path / "home")})
    assert done.code == 1
    assert "no run 'no-such-run'" in done.err
