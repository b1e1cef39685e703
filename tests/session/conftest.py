"""The matrix: sessions in memory, on SQLite and on a real Postgres."""

from pathlib import Path

import pytest

from tests.support.databases import DATABASES, STORES, new_url


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """None is for the form in memory."""
    return None if request.param == "memory" else new_url(request, request.param, tmp_path)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, request.param, tmp_path)
