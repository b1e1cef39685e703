"""What docs/testing.md shows, works."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import playhead.testing
from playhead.testing import FakeProvider, openai_text

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"^(?:async )?def (\w+)", re.MULTILINE)
TESTS = [(name, block) for block in BLOCKS for name in FUNCTION.findall(block) if name.startswith("test_")]


def run_block(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture
async def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page's own recording made, of a provider on this machine."""
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in BLOCKS if "record_hello" in block]
    async with FakeProvider(openai_text("Hello."), base_path="/v1") as provider:
        await run_block(block.replace("https://api.example.com/v1", provider.url))["record_hello"]("sk-x")


@pytest.mark.parametrize(("name", "block"), TESTS, ids=[name for name, _ in TESTS])
async def test_an_example_passes(name: str, block: str, recorded: None) -> None:
    """Issue 3 item 7."""
    await run_block(block)[name]()


def test_the_fixture_of_the_page_forbids_the_network(network_attempts: list[str]) -> None:
    (block,) = [block for block in BLOCKS if "loopback_only" in block]
    fixture = run_block(block)["loopback_only"]
    held = inspect.unwrap(getattr(fixture, "__wrapped__", None) or fixture._get_wrapped_function())()
    next(held)
    import socket

    with pytest.raises(playhead.testing.NetworkForbiddenError):
        socket.getaddrinfo("model.example", 443)
    with pytest.raises(playhead.testing.NetworkForbiddenError, match="model"):
        next(held)
    network_attempts.clear()


def test_every_public_name_is_explained() -> None:
    page = PAGE.read_text()
    types = {"Answer", "NetworkForbiddenError", "Recorder", "Reply", "Request"}
    shown = set(playhead.testing.__all__) - types
    assert [name for name in sorted(shown) if name not in page] == []


def test_there_are_examples() -> None:
    assert len(TESTS) >= 5
