"""Issue 7: what `/openapi.json` says, tried on a real server by somebody who has only read it."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import tool
from playhead.config import create_library, create_speech
from playhead.server import ServerOptions, create_app
from playhead.server.app import endpoints
from playhead.testing import Answer, ScriptedLLM
from playhead.tools.builtin import default_registry
from tests.server.support import SAMPLE, address, all_frames, ask, served, settings, speech_endpoint
from tests.server.test_access import BEARER, TOKEN

pytestmark = pytest.mark.anyio

# Streams end, as they do for who has to be asked again, and nothing is at its limit.
OPTIONS = ServerOptions(
    token=TOKEN,
    stream_seconds=0.02,
    requests_per_minute=None,
    refusals_per_minute=None,
    max_runs=None,
    max_streams=None,
)
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)


@tool(approval=True)
async def wipe() -> str:
    """Wipe it."""
    return "wiped"


async def _filled(client: aiohttp.ClientSession) -> dict[str, list[str]]:
    """Put something there to be found, deleted and answered; return the ids, by their parameters."""
    ids: dict[str, list[str]] = {"thread_id": [], "run_id": [], "media_id": []}
    for n in range(6):
        name, data = f"/api/media?name={n}.mp4", SAMPLE.read_bytes()
        async with client.post(name, data=data, headers=BEARER) as response:
            ids["media_id"].append((await response.json())["id"])
    for n in range(4):
        path = f"/api/agent/threads/t{n}"
        body: dict[str, Any] = {"message": "Transcribe" if n == 0 else "Wipe", "context": {"mediaAssets": []}}
        _, started = await ask(client, "POST", f"{path}/runs", json=body, headers=BEARER)
        while (await ask(client, "GET", path, headers=BEARER))[1].get("activeRun"):
            await all_frames(client, "GET", f"/api/agent/runs/{started['runId']}/events", headers=BEARER)
        ids["thread_id"].append(f"t{n}")
        ids["run_id"].append(started["runId"])
    return ids


async def test_no_answer_is_a_bug_or_one_that_is_not_described(tmp_path: Path) -> None:
    """Examples that fit the document and ones that do not, always the same; half of the ids are known."""
    script: list[Answer] = [("transcribe_video", {"assetId": "0.mp4"}), "It is said."]
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(speech_endpoint())
        held = settings(tmp_path, speech_base_url=f"{endpoint.url}/v1")
        library, speech = create_library(held), create_speech(held)
        registry = default_registry(library, speech)
        registry.register(wipe)
        llm = ScriptedLLM(*script, default=("wipe", {}))
        app = create_app(
            llm=llm, registry=registry, library=library, speech=speech, settings=held, options=OPTIONS
        )
        client = await stack.enter_async_context(served(app))
        config = [
            f"[dictionaries.{name}]\nvalues = {json.dumps(ids)}"
            for name, ids in (await _filled(client)).items()
        ]
        names = ("thread_id", "run_id", "media_id")
        config += [
            '[phases.coverage]\nunexpected-methods = ["PUT", "OPTIONS"]',
            "[parameters]",
            *(f'"path.{n}" = {{ dictionary = "{n}", probability = 0.5 }}' for n in names),
        ]
        (tmp_path / "st.toml").write_text("\n".join(config))
        code, told = await _tried(f"{address(client)}/openapi.json", tmp_path)
    assert code == 0, told
    # All but the document itself, which it has read.
    assert f"Tested: {len(endpoints()) - 1}\n" in told


async def _tried(document: str, folder: Path) -> tuple[int | None, str]:
    arguments = ["--checks", ",".join(CHECKS), "-H", f"Authorization: Bearer {TOKEN}", "--no-color"]
    arguments += [
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        "3",
        "--no-shrink",
        "--continue-on-failure",
    ]
    arguments += ["--seed", "1", "--generation-deterministic", "--request-timeout", "10", "--warnings", "off"]
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(folder / "st.toml"),
        "run",
        document,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()
