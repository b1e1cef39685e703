"""A server without any configuration."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.server.support import served, settings


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[aiohttp.ClientSession]:
    """A server with an empty library and no model. Its tests change nothing in it."""
    async with served(settings=settings(tmp_path_factory.mktemp("home"))) as client:
        yield client
