"""An engine that can be watched from outside its process."""

import time
from pathlib import Path

from playhead.media.engines.fake import FakeEngine
from playhead.media.types import Samples, Segment


class MarkedEngine(FakeEngine):
    """Makes the file `mark` when it begins with a window, and then is busy for `seconds`."""

    def __init__(self, mark: str, busy: float) -> None:
        super().__init__(["a"] * 100)
        self._mark = Path(mark)
        self._busy = busy

    def transcribe(
        self, samples: Samples, *, language: str | None = None, prompt: str | None = None
    ) -> list[Segment]:
        self._mark.touch()
        time.sleep(self._busy)
        return super().transcribe(samples, language=language, prompt=prompt)
