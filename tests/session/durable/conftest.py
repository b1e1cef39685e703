"""The matrix: durable sessions on SQLite and on a real Postgres."""

from pathlib import Path

import pytest

from tests.support.databases import DATABASES, new_url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, request.param, tmp_path)
