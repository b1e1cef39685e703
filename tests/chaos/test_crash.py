"""The crash test, short. `make chaos` is the long one."""

from pathlib import Path

import pytest

from tests.chaos.__main__ import crash
from tests.support.databases import DATABASES, new_url

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.mark.parametrize("kind", DATABASES)
async def test_whatever_is_killed_nothing_is_lost_or_doubled(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Issue 6: two servers, one or both killed at random, readers that come back."""
    run, verdict = await crash(new_url(request, kind, tmp_path), tmp_path, kills=4, seed=3)
    assert verdict.must_be_zero == dict.fromkeys(verdict.must_be_zero, 0), verdict.faults
    assert run.kills == 4
    assert verdict.counts["answered once"] > 20
    assert verdict.counts["steering seen once"] > 5
    assert verdict.counts["tools finished"] > 20
