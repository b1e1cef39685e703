"""The matrix: each test of a turn store runs on every store in `STORES`."""

from collections.abc import Callable

import pytest

from playhead.storage.base import TurnStore
from playhead.storage.memory import MemoryTurnStore

STORES: dict[str, Callable[[], TurnStore]] = {"memory": MemoryTurnStore}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> TurnStore:
    return STORES[request.param]()
