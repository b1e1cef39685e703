"""A home that the tests share whose promise is another one than recognition."""

import pytest


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The first test with it transcribes the sample, the others find the transcript in its cache."""
    return {"PLAYHEAD_HOME": str(tmp_path_factory.mktemp("home"))}
