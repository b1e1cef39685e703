"""For every test: asyncio, no network beyond loopback, an environment without our variables."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from playhead.testing import no_network
from tests.support.postgres import postgres

OURS = ("LLM_", "AI_CHAIN_", "PLAYHEAD_")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real Postgres, started when the first test asks for it."""
    with postgres() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def network_attempts() -> Iterator[list[str]]:
    with no_network() as attempts:
        yield attempts


@pytest.fixture(autouse=True)
def no_hidden_network_attempt(network_attempts: list[str]) -> Iterator[None]:
    """Fail the test that reached for the network, even if the code under test swallowed the error."""
    network_attempts.clear()
    yield
    attempts = network_attempts.copy()
    network_attempts.clear()
    assert attempts == []


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PLAYHEAD_HOME", str(tmp_path / "playhead-home"))
    # The switch above is in-process; child processes must not reach a model hub either.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
