"""The report of the crash test: a table of what was counted, and in words what must not be."""

from collections.abc import Mapping, Sequence

from tests.chaos.crash import Crashes

# What must be zero is one column each.
ZERO = (
    "lost",
    "answers doubled",
    "answers missing",
    "steering doubled",
    "steering missing",
    "`never` run twice",
    "keys that differ",
    "gaps",
    "interleaved",
    "out of order",
    "readers that differ",
    "texts that differ from what was said",
    "histories refused",
    "results of nothing",
    "results that are wrong",
    "runs that do not end",
    "refused",
    "workers that failed",
)


def report(found: Mapping[str, Crashes]) -> str:
    """Return the report as Markdown."""
    databases = list(found)
    rows: list[tuple[str, Sequence[object]]] = [
        ("kills (both at once)", [f"{one.kills} ({one.both})" for one in found.values()]),
        ("stopped for a while and woken", [one.pauses for one in found.values()]),
        ("messages acknowledged", [one.verdict.sent for one in found.values()]),
        (
            "answered once / twice / never",
            [
                _three(
                    one.verdict.answered_once,
                    one.verdict.count("answers doubled"),
                    one.verdict.count("answers missing"),
                )
                for one in found.values()
            ],
        ),
        (
            "steering taken in once / twice / never",
            [
                _three(
                    one.verdict.steered_once,
                    one.verdict.count("steering doubled"),
                    one.verdict.count("steering missing"),
                )
                for one in found.values()
            ],
        ),
        (
            "tools finished / `never` run twice",
            [
                f"{one.verdict.tools_finished} / {one.verdict.count('`never` run twice')}"
                for one in found.values()
            ],
        ),
        ("tools run again, that may be", [one.verdict.tools_again for one in found.values()]),
        ('told "outcome unknown"', [one.verdict.unknown for one in found.values()]),
        ("model calls made again", [one.verdict.attempts for one in found.values()]),
        ("takeover, median / p95 / worst", [_times(one.takeovers) for one in found.values()]),
        ("readers that came back", [one.verdict.reconnects for one in found.values()]),
        ("messages sent again", [one.verdict.sent_again for one in found.values()]),
        *((kind, [one.verdict.count(kind) for one in found.values()]) for kind in ZERO),
    ]
    lines = [_row("", databases), _row("---", ["---"] * len(databases))]
    lines += [_row(name, values) for name, values in rows]
    for database, one in found.items():
        lines += [f"\n{database}, seed {one.seed}:", *(f"- {fault}" for fault in one.faults)] * bool(
            one.faults
        )
    return "\n".join(lines)


def _row(name: str, values: Sequence[object]) -> str:
    return f"| {name} | {' | '.join(map(str, values))} |"


def _three(once: int, twice: int, never: int) -> str:
    return f"{once} / {twice} / {never}"


def _times(times: Sequence[int]) -> str:
    if not times:
        return "-"
    sorted_times = sorted(times)
    chosen = [sorted_times[min(int(len(times) * part), len(times) - 1)] for part in (0.5, 0.95, 1.0)]
    return f"{' / '.join(f'{at / 1_000:.2f}' for at in chosen)} s ({len(times)})"
