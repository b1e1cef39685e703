"""The crash test, short. `make chaos` is the long one."""

from pathlib import Path

import pytest

from tests.chaos.crash import crash
from tests.chaos.report import report
from tests.support.databases import DATABASES, new_url

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("database", DATABASES)
async def test_killed_processes_lose_and_double_nothing(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Issue 6: two processes on one database, one or both killed at random, readers that come back."""
    crashes = await crash(new_url(request, database, tmp_path), tmp_path, kills=5, seed=11, many=4)
    assert crashes.kills == 5
    assert not crashes.faults, report({database: crashes})
    verdict = crashes.verdict
    assert verdict.answered_once + verdict.steered_once == verdict.sent > 0
