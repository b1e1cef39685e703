"""Whatever a tool returns reaches the model, the store and the browser."""

import asyncio
import dataclasses
import datetime
import enum
import fractions
import itertools
import math
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead import weigh
from playhead.encode import encode_result, error_text, scrub
from playhead.weigh import MAX_DEPTH, within

EVERY_CHARACTER = st.characters(exclude_categories=())


class Unprintable:
    """Every question that one may put to it raises."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise RuntimeError("no class")


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)
    THING = object()


class Mood(enum.StrEnum):
    GOOD = "good"


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = 3


class Row(msgspec.Struct, rename="camel", tag="row"):
    the_value: Any


class Model(pydantic.BaseModel):
    when: datetime.date = datetime.date(2026, 1, 2)
    ratio: float = math.nan
    secret: pydantic.SecretStr = pydantic.SecretStr("hush")


class Point(NamedTuple):
    x: int


class Text(str):
    """A string that says something else of itself."""

    def __str__(self) -> str:
        return "wrong"


class Plain:
    """An object that says nothing of itself."""


class ReadFails(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        if key == "b":
            raise OSError("gone: '/srv/data/b'")
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter("abc")

    def __len__(self) -> int:
        return 3


def breaks_off() -> Iterator[int]:
    yield 1
    raise ValueError("gone")


def itself() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


CASES = [
    # value, text, JSON-ready value
    ("as it is", "as it is", "as it is"),
    (Text("right"), "right", "right"),
    (Mood.GOOD, "good", "good"),
    (b"caf\xc3\xa9", "café", "café"),
    (b"\xff\x00", '"/wA="', "/wA="),
    ([b"abc", bytearray(b"abc"), memoryview(b"abc")], '["YWJj","YWJj","YWJj"]', ["YWJj"] * 3),
    ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}', {"a": [1, 2.5, None, True]}),
    (math.nan, "null", None),
    ([math.inf, -math.inf, math.nan], "[null,null,null]", [None, None, None]),
    (datetime.datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"', "2026-01-02T03:04:05"),
    (
        [datetime.date(2026, 1, 2), datetime.time(3, 4)],
        '["2026-01-02","03:04:00"]',
        ["2026-01-02", "03:04:00"],
    ),
    (datetime.timedelta(seconds=90), '"PT90S"', "PT90S"),
    (Decimal("1.50"), '"1.50"', "1.50"),
    (UUID(int=1), '"00000000-0000-0000-0000-000000000001"', "00000000-0000-0000-0000-000000000001"),
    ([Colour.RED, Colour.PAIR], '["red",[1,2]]', ["red", [1, 2]]),
    ([Colour.THING], '["<object object>"]', ["<object object>"]),
    ({1: "a", "1": "b"}, '{"1":"a","1 (2)":"b"}', {"1": "a", "1 (2)": "b"}),
    ({None: 1, (1, 2): 2, True: 3}, '{"null":1,"[1,2]":2,"true":3}', {"null": 1, "[1,2]": 2, "true": 3}),
    ({7}, "[7]", [7]),
    (frozenset([7]), "[7]", [7]),
    ((1, (2,)), "[1,[2]]", [1, [2]]),
    (deque([1]), "[1]", [1]),
    (range(3), "[0,1,2]", [0, 1, 2]),
    ((n * n for n in range(3)), "[0,1,4]", [0, 1, 4]),
    ({"a": 1}.items(), '[["a",1]]', [["a", 1]]),
    (MappingProxyType({"a": 1}), '{"a":1}', {"a": 1}),
    (OrderedDict(b=1, a=2), '{"b":1,"a":2}', {"b": 1, "a": 2}),
    (Counter("aab"), '{"a":2,"b":1}', {"a": 2, "b": 1}),
    (Point(1), "[1]", [1]),
    (Record(1), '{"x":1,"y":3}', {"x": 1, "y": 3}),
    (Record({1j}), '{"x":["1j"],"y":3}', {"x": ["1j"], "y": 3}),
    (Row(2), '{"type":"row","theValue":2}', {"type": "row", "theValue": 2}),
    (Row(1j), '{"type":"row","theValue":"1j"}', {"type": "row", "theValue": "1j"}),
    (
        Model(),
        '{"when":"2026-01-02","ratio":null,"secret":"**********"}',
        {"when": "2026-01-02", "ratio": None, "secret": "**********"},
    ),
    (2**70, str(2**70), 2**70),
    ([10**5000], '["(an integer of about 5,000 digits)"]', ["(an integer of about 5,000 digits)"]),
    (fractions.Fraction(1, 3), '"1/3"', "1/3"),
    (PurePosixPath("a/b"), '"a/b"', "a/b"),
    (ValueError("bad"), '"ValueError: bad"', "ValueError: bad"),
    (Plain(), '"<tests.test_encode.Plain object>"', "<tests.test_encode.Plain object>"),
    (msgspec.Raw(b"[1, 2]"), "[1,2]", [1, 2]),
]


@pytest.mark.parametrize(("value", "text", "plain"), CASES, ids=lambda case: None)
def test_a_result_is_text_verbatim_or_compact_json(value: Any, text: str, plain: Any) -> None:
    """S7: a string is used verbatim, anything else is encoded, into JSON types."""
    assert encode_result(value) == (text, plain)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), ("", "(no output)"), (" \n", "(no output)"), ([], "[]"), (b"", "(no output)")],
)
def test_no_result_is_blank(value: Any, text: str) -> None:
    """S7, Q182: some providers refuse blank content."""
    assert encode_result(value).text == text


def test_what_refuses_to_be_read_is_noted_in_its_place() -> None:
    """Q181: cycles, depth, raising objects; the rest of the value is there."""
    assert encode_result(itself()).value == [1, "(this value contains itself)"]
    assert encode_result(Unprintable()).value == "<Unprintable object that cannot be printed>"
    assert encode_result({"a": Unprintable(), "b": 1}).value["b"] == 1
    assert encode_result(breaks_off()).value == [1, "(reading stopped here: gone)"]
    assert encode_result(ReadFails()).value == {"a": 1, "(reading stopped here)": "gone: 'b'"}


def test_a_shared_part_is_no_cycle() -> None:
    """Q181: only a value within itself is one."""
    part = [1j]
    assert encode_result([part, part]).value == [["1j"], ["1j"]]


def doubled(wrap: Callable[[Any], Any]) -> Any:
    """A few kilobytes that are 2**60 values when each is written where it is met."""
    value: Any = ["x"]
    for _ in range(60):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: doubled(lambda x: [x, x]),
        lambda: doubled(lambda x: (x, x)),
        lambda: doubled(lambda x: {"a": x, "b": x}),
        lambda: doubled(lambda x: OrderedDict(a=x, b=x)),
        lambda: doubled(lambda x: Record(x, x)),
        lambda: doubled(lambda x: [Row(x), Row(x)]),
        lambda: doubled(lambda x: deque([x, x])),
        lambda: ["x" * 10_000_000] * 100_000,
        lambda: [b"x" * 10_000_000] * 100_000,
        lambda: [{"x" * 10_000_000: 1}] * 100_000,
        lambda: [10**4_000] * 1_000_000,
    ],
)
def test_what_is_small_and_would_be_huge_as_text_is_left_out_in_time(make: Callable[[], Any]) -> None:
    """Q179, rule 10: a result that shares its parts holds up nothing; what is left out is said."""
    value = make()
    started = time.process_time()
    text = encode_result(value).text
    assert time.process_time() - started < 5
    assert len(text) <= 200_000
    assert "left out" in text


def test_the_number_of_values_is_bounded_for_whoever_wants_the_whole_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store sets no limit on characters; it is held up no longer for that."""
    monkeypatch.setattr(weigh, "_MAX_NODES", 10_000)
    assert not within(doubled(lambda x: [x, x]), sys.maxsize)
    assert "left out" in encode_result(doubled(lambda x: [x, x]), sys.maxsize).text


@pytest.mark.parametrize(
    "value",
    [[1, "a", 2.5, None], {"a": (1, {2})}, Record([1]), Row("x"), [Mood.GOOD, Colour.PAIR], 2**70, b"\xff"],
)
def test_a_plain_value_is_within_reach_of_the_c_encoder(value: Any) -> None:
    """The usual result is never walked."""
    assert within(value, 1_000)


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_a_result_cannot_end_the_process_by_being_read(leaving: type[BaseException]) -> None:
    """Rule 10: an exit that a result's own method raises is a note like any other failure."""

    class Leaves:
        def __str__(self) -> str:
            raise leaving("bye")

        __repr__ = __str__

    class Said(Exception):
        __str__ = Leaves.__str__

    class Read(Mapping[str, int]):
        def __getitem__(self, key: str) -> int:
            raise leaving("bye")

        def __iter__(self) -> Iterator[str]:
            return iter("a")

        def __len__(self) -> int:
            return 1

    def broken() -> Iterator[int]:
        yield 1
        raise leaving("bye")

    assert encode_result(Leaves()).value == "<Leaves object that cannot be printed>"
    assert encode_result([1, Leaves()]).value[0] == 1
    assert encode_result(broken()).value == [1, "(reading stopped here: bye)"]
    assert encode_result(Read()).value == {"(reading stopped here)": "bye"}
    assert error_text(Said()) == "Said"


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 500, 100_000])
def test_depth_is_bounded_wherever_the_c_encoder_would_stop(levels: int) -> None:
    """Q181: what one process could encode another must be able to read."""
    value = nested(levels)
    try:
        text = encode_result(value).text
    finally:
        # Freed from the outside in: the interpreter's own clean-up of such a thing is recursive.
        while value:
            value = value.pop()
    assert text.count("[") <= MAX_DEPTH
    assert ("nested more than" in text) is (levels > MAX_DEPTH)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\0b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("fine 😀", "fine 😀"),
    ],
)
def test_nul_and_half_pairs_are_replaced_everywhere(raw: str, clean: str) -> None:
    """Q202: in the text itself, in a value, in a key."""
    assert scrub(raw) == clean
    assert encode_result(raw) == (clean, clean)
    assert encode_result([raw, {raw: raw}]).value == [clean, {clean: clean}]


@pytest.mark.parametrize("make", [lambda n: "x" * n, lambda n: ["x" * n], lambda n: ["\0" + "x" * n]])
def test_a_huge_result_keeps_both_ends_and_says_its_length(make: Any) -> None:
    """Q179, rule 11: never cut in silence, and the same text for everyone."""
    value = make(3_000_000)
    text, plain = encode_result(value)
    assert plain == text
    assert len(text) == 200_000
    assert "the middle was left out: the whole is 3,000,0" in text
    assert text.rstrip('"]').endswith("xxx")


def test_an_endless_result_ends() -> None:
    """Q179: what could not be counted is not given as a number."""
    for endless in (itertools.count(), itertools.repeat("x" * 1000)):
        text = encode_result(endless).text
        assert len(text) <= 200_000
        assert "the whole is more than " in text or "left out" in text


def test_a_value_is_a_copy() -> None:
    """Rule 10: what a tool does to its object afterwards changes nothing that was recorded."""
    live = {"items": [1]}
    _, plain = encode_result(live)
    live["items"].append(2)
    assert plain == {"items": [1]}


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**300, max_value=10**305),
    st.floats(),
    st.text(EVERY_CHARACTER, max_size=8),
    st.binary(max_size=8),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.fractions(),
    st.complex_numbers(),
    st.sampled_from([*Colour, Mood.GOOD, Path("a"), msgspec.UNSET, msgspec.Raw(b"{bad"), print, int, ...]),
    st.builds(Unprintable),
    st.builds(Plain),
)
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(EVERY_CHARACTER, max_size=4),
    st.dates(),
    st.tuples(st.integers()),
    st.sampled_from(Colour),
)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(iter),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.builds(Record, inner),
        st.builds(Row, inner),
    )


@settings(max_examples=300, deadline=None)
@given(value=st.recursive(LEAVES, _grow, max_leaves=12), limit=st.sampled_from([0, 10, 300, 200_000]))
def test_the_encoder_is_total_and_its_value_survives_json(value: Any, limit: int) -> None:
    """Rule 10: no value raises; the text is UTF-8 and not blank; the value is what JSON gives back."""
    text, plain = encode_result(value, limit)
    assert text.encode()
    assert not text.isspace()
    assert "\0" not in text
    wire = msgspec.json.encode(plain)
    assert msgspec.json.decode(wire) == plain
    assert b"\\u0000" not in wire
    if not isinstance(plain, str):
        assert text.encode() == wire
