"""Waiting for what a test cannot be told of."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], within: float = 10.0) -> None:
    """Look every moment: another process tells nobody when it changes."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
