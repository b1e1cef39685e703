"""How runs are carried out, as `Sessions` was told."""

from dataclasses import dataclass

from playhead.session.compaction import Compaction


@dataclass(frozen=True)
class Limits:
    """How runs are carried out; see `Sessions`."""

    window: int
    stop_timeout: float
    flush_seconds: float
    approval_seconds: float
    window_tokens: int | None = None
    compaction: Compaction | None = None
    keep_aside_above: int | None = None
