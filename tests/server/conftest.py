"""A server without any configuration."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.server.support import served, settings


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A server with an empty library and no model."""
    async with served(settings=settings(tmp_path)) as client:
        yield client
