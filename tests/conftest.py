"""For every test: asyncio, no network beyond loopback, an environment without our variables."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import network

OURS = ("LLM_", "AI_CHAIN_", "PLAYHEAD_")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        network.forbid(patch)
        yield


@pytest.fixture(autouse=True)
def no_hidden_network_attempt() -> Iterator[None]:
    """Fail the test that reached for the network, even if the code under test swallowed the error."""
    network.attempts.clear()
    yield
    assert network.attempts == []


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PLAYHEAD_HOME", str(tmp_path / "playhead-home"))
    # The switch above is in-process; child processes must not reach a model hub either.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
