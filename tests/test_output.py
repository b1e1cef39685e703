"""What a text has to hold: schemas, values, and what is said of a wrong one. Issue 4 item 5."""

import dataclasses
import datetime
import enum
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from playhead import ConfigError, Output, OutputError
from playhead.output import find_object


class Kind(enum.Enum):
    TOWN = "town"
    CITY = "city"


class Place(msgspec.Struct, rename="camel"):
    full_name: str
    people: Annotated[int, msgspec.Meta(ge=0)] = 0
    kind: Kind = Kind.TOWN
    founded: datetime.date | None = None


@dataclasses.dataclass
class Trip:
    start: Place
    stops: list[Place] = dataclasses.field(default_factory=list)
    note: str = "none"


class Row(TypedDict):
    id: int
    name: NotRequired[str]


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)
    nick: str | None = None
    tags: list[str] = []


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("the number has to be even")


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 18}, "who": {"$ref": "#/$defs/name"}},
    "required": ["age"],
    "$defs": {"name": {"type": "string"}},
}
Words = list[str]
Lengths = dict[str, int]
Answer = Literal["yes", "no"]

VALUES: Mapping[str, tuple[Any, str, Any]] = {
    "struct": (Place, '{"fullName": "Oslo", "kind": "city"}', Place("Oslo", 0, Kind.CITY)),
    "dataclass": (
        Trip,
        '{"start": {"fullName": "A"}, "stops": [{"fullName": "B", "founded": "1048-01-02"}]}',
        Trip(Place("A"), [Place("B", founded=datetime.date(1048, 1, 2))]),
    ),
    "typed dict": (Row, '{"id": 3}', {"id": 3}),
    "model": (Person, '{"name": "Ann", "age": 3, "nick": null}', Person(name="Ann", age=3)),
    "schema": (SCHEMA, '{"age": 18, "who": "Ann"}', {"age": 18, "who": "Ann"}),
    "recursive": (Tree, '{"value": 1, "children": [{"value": 2}]}', Tree(1, [Tree(2)])),
    "mapping": (Lengths, '{"a": 1}', {"a": 1}),
    "list": (Words, '{"result": ["a"]}', ["a"]),
    "literal": (Answer, '{"result": "yes"}', "yes"),
    "number": (float, '{"result": 2}', 2.0),
    "none": (int | None, '{"result": null}', None),
    "union": (Place | None, '{"result": {"fullName": "A"}}', Place("A")),
    "models": (list[Person], '{"result": [{"name": "A", "age": 1}]}', [Person(name="A", age=1)]),
    "root model": (pydantic.RootModel[list[int]], '{"result": [1]}', pydantic.RootModel[list[int]]([1])),
    "array schema": ({"type": "array", "items": {"type": "string"}}, '{"result": ["a"]}', ["a"]),
}


@pytest.mark.parametrize(("kind", "text", "value"), VALUES.values(), ids=list(VALUES))
def test_a_text_becomes_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    """R: a pydantic model, a dataclass, a Struct, whatever msgspec converts, or a JSON Schema."""
    output = Output(kind)
    assert output.read(text) == value
    Draft202012Validator.check_schema(output.schema)
    Draft202012Validator(output.schema).validate(json.loads(text))
    assert output.schema["type"] == "object"


def test_a_schema_that_is_an_object_is_not_wrapped() -> None:
    """The model is asked for what the application asked for."""
    assert "fullName" in Output(Place).schema["properties"]
    assert list(Output(Words).schema["properties"]) == ["result"]
    assert Output(Tree).schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


# ---------------------------------------------------------------- around the object

OBJECT = '{"fullName": "A {B} \\"C\\" ```"}'
AROUND = {
    "nothing": OBJECT,
    "white space": f"\n\n {OBJECT}\n",
    "a fence": f"```json\n{OBJECT}\n```",
    "a bare fence": f"```\n{OBJECT}```",
    "prose": f"Here you are:\n\n{OBJECT}\n\nAsk if you want more {{of it}}.",
    "prose and a fence": f"Sure! {{x}}\n```json\n{OBJECT}\n```\nDone.",
}


@pytest.mark.parametrize("text", AROUND.values(), ids=list(AROUND))
def test_text_around_one_object_is_passed_over(text: str) -> None:
    """R: tolerant of a code fence or prose around one JSON object."""
    assert Output(Place).read(text) == Place('A {B} "C" ```')


NOT_ONE = {
    "prose": ("I do not know.", "no JSON object"),
    "braces": ("Use {name} here.", "no JSON object"),
    "an array": ('["a"]', "type array"),
    "text": ('"a"', "type string"),
    "null": ("null", "type null"),
    "an array of objects": ('Here: [{"fullName": "A"}]', "JSON array"),
    "two": (f"{OBJECT} or {OBJECT}", "2 JSON objects"),
    "cut": ('{"start": {"fullName": "A"}, "stops": [', "not complete"),
    "cut in prose": ('So: {"start": {"fullName": "A"}, "stops": [', "not complete"),
    "cut at once": ("Here: {", "not complete"),
    "single quotes": ("{\"fullName\": 'A'}", "broken"),
    "not a number": ('x {"people": NaN}', "NaN"),
    "half a character": ('{"fullName": "\\ud83d"}', "broken"),
    "a bomb": ('{"a":' * 100_000, "broken"),
    "an inner object": ('{"start": {"fullName": "A"} oops}', "broken"),
}


@pytest.mark.parametrize(("text", "why"), NOT_ONE.values(), ids=list(NOT_ONE))
def test_what_is_not_one_object_is_told_with_the_schema(text: str, why: str) -> None:
    """R: tolerant of nothing else: half an answer, or a part of one, is never taken for it."""
    with pytest.raises(OutputError) as caught:
        Output(Place).read(text)
    assert why in str(caught.value)
    assert '"fullName"' in str(caught.value), "a model that was not shown the schema is shown it now"
    assert caught.value.code == "output_mismatch"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet='{}[]":,ab1 \\\n`', max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Hostile input is normal: an object, or a reason."""
    found, why = find_object(text)
    assert isinstance(found, dict) != bool(why)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9)
    ),
    st.text(alphabet="abc ,.!\n`", max_size=20),
    st.booleans(),
)
def test_any_object_is_found_in_prose(value: dict[str, Any], prose: str, pretty: bool) -> None:
    """The object is read as it is, however it is set."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if pretty else None)
    assert find_object(f"{prose}{text}{prose}") == (value, "")


# ---------------------------------------------------------------- faults

FAULTS: Mapping[str, tuple[Any, str, list[str]]] = {
    "each field": (
        Place,
        '{"fullName": 3, "people": -1, "kind": "village", "founded": "soon"}',
        [
            "`fullName`: expected string, got 3 (integer)",
            "`people`: expected integer >= 0, got -1 (integer)",
            '`kind`: expected one of "city", "town", got "village" (string)',
            '`founded`: expected string in the format date or null, got "soon" (string)',
        ],
    ),
    "deep ones": (
        Trip,
        '{"stops": [{"people": "many"}, {"fullName": "B"}, 7]}',
        [
            "`start`: missing; expected object",
            "`stops[0].fullName`: missing; expected string",
            '`stops[0].people`: expected integer >= 0, got "many" (string)',
            "`stops[2]`: expected object, got 7 (integer)",
        ],
    ),
    "of a typed dict": (
        Row,
        '{"name": 1}',
        ["`id`: missing; expected integer", "`name`: expected string, got 1"],
    ),
    "of a mapping": (
        Lengths,
        '{"a": "x", "b": 1, "c": null}',
        ["`a`: expected integer", "`c`: expected integer"],
    ),
    "of items": (
        Words,
        '{"result": ["a", 1, {}]}',
        ["`result[1]`: expected string", "`result[2]`: expected string"],
    ),
    "of a wrong item": (
        Answer,
        '{"result": "maybe"}',
        ['`result`: expected one of "no", "yes", got "maybe"'],
    ),
    "no wrapper": (Words, '{"words": ["a"]}', ["`result`: missing"]),
    "of a model": (
        Person,
        '{"age": -1, "tags": ["a", 1]}',
        [
            "`name`: Field required",
            "`age`: Input should be greater than or equal to 0",
            "`tags[1]`: Input should",
        ],
    ),
    "of models": (
        list[Person],
        '{"result": [{"name": "A", "age": 1}, {"name": 2}]}',
        ["`result[1]`: `name`"],
    ),
    "of a root model": (
        pydantic.RootModel[list[int]],
        '{"result": [1, "x"]}',
        ["`result[1]`: Input should be"],
    ),
    "of a root": (
        pydantic.RootModel[list[int]],
        '{"result": 3}',
        ["`result`: Input should be a valid array"],
    ),
    "of a schema": (SCHEMA, '{"age": 3, "who": 1}', ["`age`: 3 is less", "`who`: 1 is not of type 'string'"]),
    "of a whole schema": (SCHEMA, "{}", ["the whole: 'age' is a required property"]),
    "of an array schema": (
        {"type": "array", "items": {"type": "string"}},
        '{"result": [1]}',
        ["`result[0]`: 1 is not of type"],
    ),
    "of the class itself": (Even, '{"number": 3}', ["the whole: expected object, got", "has to be even"]),
    "of a tree": (
        Tree,
        '{"value": 1, "children": [{"children": [{"value": "x"}]}]}',
        ["`children[0].value`: missing"],
    ),
}


@pytest.mark.parametrize(("kind", "text", "faults"), FAULTS.values(), ids=list(FAULTS))
def test_each_fault_is_named(kind: Any, text: str, faults: list[str]) -> None:
    """R: a complaint fit for a model that names each fault: where, what is wanted, what came."""
    with pytest.raises(OutputError) as caught:
        Output(kind).read(text)
    said = str(caught.value)
    for fault in faults:
        assert fault in said
    assert "validation error" not in said


def test_many_faults_are_counted_and_long_values_are_cut() -> None:
    """A complaint is a message of the history: it must not fill the context."""
    with pytest.raises(OutputError) as caught:
        Output(list[int]).read(json.dumps({"result": ["x" * 10_000] * 100}))
    assert "and 70 more" in str(caught.value)
    assert len(str(caught.value)) < 10_000
    with pytest.raises(OutputError) as caught:
        Output(SCHEMA).read(json.dumps({"age": "x" * 100_000}))
    assert len(str(caught.value)) < 1_000


MEANT: Mapping[str, tuple[Any, str, Any]] = {
    "a whole float": (Place, '{"fullName": "A", "people": 5.0}', Place("A", 5)),
    "null for what may be left out": (Place, '{"fullName": "A", "people": null, "kind": null}', Place("A")),
    "null deep inside": (
        Trip,
        '{"start": {"fullName": "A", "people": null}, "note": null}',
        Trip(Place("A")),
    ),
    "null in a model": (Person, '{"name": "A", "age": 1.0, "tags": null}', Person(name="A", age=1)),
    "JSON in a string": (Trip, '{"start": "{\\"fullName\\": \\"A\\"}"}', Trip(Place("A"))),
    "null for a schema": (SCHEMA, '{"age": 20, "who": null}', {"age": 20}),
}


@pytest.mark.parametrize(("kind", "text", "value"), MEANT.values(), ids=list(MEANT))
def test_what_was_surely_meant_is_taken(kind: Any, text: str, value: Any) -> None:
    """Strict schemas make models write null where a member may be left out."""
    assert Output(kind).read(text) == value


@pytest.mark.parametrize(
    "text", ['{"fullName": "A", "people": "5"}', '{"fullName": "A", "people": true}', '{"fullName": null}']
)
def test_nothing_is_guessed_at(text: str) -> None:
    """Strict: a wrong type is an error."""
    with pytest.raises(OutputError):
        Output(Place).read(text)


def test_a_value_that_is_nested_too_deeply_is_a_mismatch() -> None:
    """No text of a model takes the run down."""
    depth = 300
    text = '{"value":1,"children":[' * depth + '{"value":"x"}' + "]}" * depth
    with pytest.raises(OutputError):
        Output(Tree).read(text)


# ---------------------------------------------------------------- declarations

WRONG: Mapping[str, tuple[Any, str]] = {
    "no type": (3, "3"),
    "nothing JSON has": (complex, "complex"),
    "no schema": ({"type": "thing"}, "no JSON Schema"),
    "another place": ({"$ref": "https://example.com/schema.json"}, "example.com"),
    "nowhere": ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "#/$defs/b"),
}


@pytest.mark.parametrize(("kind", "word"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_declaration_is_told_at_once(kind: Any, word: str) -> None:
    """Misuse raises, with what is wrong; no schema is fetched from anywhere."""
    with pytest.raises(ConfigError) as caught:
        Output(kind)
    assert word in str(caught.value)


def test_without_jsonschema_the_text_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optional package that is missing is named, with its extra."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ConfigError, match=r"playhead\[jsonschema\]"):
        Output(SCHEMA)
    assert Output(Place).read('{"fullName": "A"}') == Place("A")
