"""The value that a final text stands for: its schema, how it is read, and what is said of a wrong one.

A type whose schema is no object is asked for as `{"result": ...}`, since that is what providers take.
"""

import inspect
import json
import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import ConfigError, OutputError
from playhead.options import Check
from playhead.port import ModelReply
from playhead.tools.faults import faults
from playhead.tools.schema import flatten, json_type, object_schema, type_schemas
from playhead.tools.validate import model_hook, model_problems, repair, strict_model, without_nulls
from playhead.types import JsonObject

logger = logging.getLogger("playhead")

WRAPPER = "result"
_MAX_FAULTS = 30
_CUT = "Your answer was cut off at the output limit: make it shorter."
_AGAIN = "Answer again with the whole JSON object and nothing else."
_NO_OBJECT = "There is no JSON object in your answer"
# What a conversion may raise: pydantic's error is a ValueError, msgspec's is not.
_WRONG = (ValueError, msgspec.ValidationError)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Output:
    """What a final text is to hold, made from an `output_type`.

    Args:
        output_type: a pydantic model, a dataclass, a msgspec Struct, any other type that msgspec
            converts (`list[str]`, `Literal["yes", "no"]`, a `TypedDict`), or a JSON Schema as a
            dict. The last needs the extra `jsonschema`, and its values stay as JSON has them;
            `format` is told to the model and not checked.

    Attributes:
        schema: the JSON Schema of the answer; always that of an object.

    Raises `ConfigError` for what has no schema.
    """

    def __init__(self, output_type: Any) -> None:
        self._kind = _kind(output_type)
        plain = self._kind.schema
        choice = {"anyOf", "oneOf", "allOf", "$ref"} & plain.keys()
        self._wrapped = plain.get("type") != "object" or bool(choice)
        self.schema: JsonObject = plain
        if self._wrapped:
            self.schema = object_schema({WRAPPER: plain}, [WRAPPER], plain.get("$defs", {}))

    def read(self, text: str) -> Any:
        """Return the value that a text holds.

        The text is a JSON object; a code fence or other text around it is passed over.

        Raises:
            OutputError: it holds no such value; the text names each fault, for the model to read.
        """
        answer, why = find_object(text)
        if answer is None:
            schema = _encode(self.schema).decode()
            raise OutputError(f"{why}. Answer with one JSON object that fits this JSON Schema:\n{schema}")
        if self._wrapped and WRAPPER not in answer:
            raise _mismatch([f"`{WRAPPER}`: missing"])
        try:
            return self._convert(answer[WRAPPER], WRAPPER) if self._wrapped else self._convert(answer, "")
        except RecursionError:
            raise _mismatch(["it is nested too deeply"]) from None

    def _convert(self, value: Any, path: str) -> Any:
        kind, schema = self._kind, self._kind.schema
        defs = schema.get("$defs", {})
        try:
            return kind.convert(value)
        except _WRONG:
            pass
        try:
            value = repair(without_nulls(value, schema, defs), schema, defs)
            return kind.convert(value)
        except _WRONG as error:
            raise _mismatch(kind.faults(value, error, path)) from None


class Judge:
    """What a final text has to pass: the output type, then the application's check.

    `schema` is that of the output type, or None.
    """

    def __init__(self, output: Output | None, check: Check | None) -> None:
        self._output = output
        self._check = check
        self.idle = output is None and check is None
        self.schema = output.schema if output is not None else None

    def value(self, text: str) -> Any:
        """Return the value of a text that has passed; None without an output type."""
        return self._output.read(text) if self._output is not None else None

    async def judged(self, reply: ModelReply) -> ModelReply:
        """Return the record of a model step with the complaint about its text, if it is final and wrong.

        A check that raises is a fault of the application: it ends the run.
        """
        result = reply.result
        if result is None or not result.message.content.strip():
            return reply
        if result.message.tool_calls and result.stop_reason != "content_filter":
            return reply
        try:
            complaint = await self._complaint(result.message.content)
        except Exception as error:
            logger.error("The check of an answer raised:\n%s", masked_traceback(error))
            text = f"The check of the answer failed: {type(error).__name__}."
            return replace(reply, error=text, error_code="check_failed")
        if complaint and result.stop_reason == "length":
            complaint = f"{_CUT} {complaint}"
        return replace(reply, complaint=complaint) if complaint else reply

    async def _complaint(self, text: str) -> str | None:
        try:
            self.value(text)
        except OutputError as error:
            return str(error)
        said = self._check(text) if self._check is not None else None
        complaint = await said if inspect.isawaitable(said) else said
        if not isinstance(complaint, str | None):
            raise TypeError("LoopOptions.check has to return None or a text.")
        return complaint


def find_object(text: str) -> tuple[JsonObject | None, str]:
    """Return the one JSON object in a text, or None and why there is not one."""
    text = text.strip()
    try:
        whole = _decode(text)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return _around(text)
    if isinstance(whole, dict):
        return whole, ""
    return None, f"Your answer is JSON of the type {json_type(whole)}, not an object"


def _around(text: str) -> tuple[JsonObject | None, str]:
    """Look for the object among other text. One that is cut or broken is not looked into for another."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    found: list[JsonObject] = []
    start = text.find("{")
    while start >= 0:
        end = start + 1
        if text[end : end + 200].lstrip()[:1] in ('"', "}", ""):  # other braces are prose
            if text[:start].rstrip()[-1:] == "[":
                return None, "Your answer is a JSON array, not an object"
            try:
                end = decoder.raw_decode(text, start)[1]
                found.append(_decode(text[start:end]))
            except (ValueError, msgspec.DecodeError, RecursionError) as error:
                return None, f"The JSON of your answer is broken or not complete: {_short(str(error))}"
        start = text.find("{", end)
    if len(found) == 1:
        return found[0], ""
    return None, f"There are {len(found)} JSON objects in your answer" if found else _NO_OBJECT


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _mismatch(found: Iterable[str]) -> OutputError:
    listed = [f"- {_short(fault)}" for fault in found]
    if len(listed) > _MAX_FAULTS:
        listed[_MAX_FAULTS:] = [f"- and {len(listed) - _MAX_FAULTS} more"]
    return OutputError("\n".join(["Your answer does not fit what was asked for:", *listed, _AGAIN]))


# ---------------------------------------------------------------- kinds of types


class _Kind(Protocol):
    """A way to declare a type. `convert` raises one of `_WRONG`, of which `faults` tells all."""

    schema: JsonObject

    def convert(self, value: Any) -> Any: ...
    def faults(self, value: Any, error: Exception, path: str) -> Iterable[str]: ...


def _kind(output_type: Any) -> _Kind:
    if isinstance(output_type, Mapping):
        return _SchemaKind(dict(output_type))
    if hasattr(output_type, "model_validate_json"):
        return _ModelKind(output_type)
    return _TypeKind(output_type)


class _TypeKind:
    """What msgspec converts."""

    def __init__(self, output_type: Any) -> None:
        self._type = output_type
        try:
            (schema,), defs = type_schemas([output_type])
        except TypeError as error:
            why = str(error).splitlines()[-1]
            raise ConfigError(f"output_type is nothing that JSON can carry: {why}") from None
        self.schema = _opened(flatten(schema, defs))

    def convert(self, value: Any) -> Any:
        return msgspec.convert(value, self._type, dec_hook=model_hook)

    def faults(self, value: Any, error: Exception, path: str) -> Iterable[str]:
        return faults(value, self._type, self.schema, self.schema.get("$defs", {}), path)


class _ModelKind:
    """A pydantic model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.schema = _opened(flatten(model.model_json_schema(), {}))

    def convert(self, value: Any) -> Any:
        return strict_model(self._model, value)

    def faults(self, value: Any, error: Exception, path: str) -> Iterable[str]:
        assert isinstance(error, ValueError)
        for fault in model_problems(error, f"`{path}`" if path else "the whole"):
            inside = path and not fault.startswith(f"`{path}`")
            yield f"`{path}{'' if fault[1] == '[' else '.'}{fault[1:]}" if inside else fault


class _SchemaKind:
    """A JSON Schema; a value stays as it is."""

    def __init__(self, schema: JsonObject) -> None:
        try:
            jsonschema = import_module("jsonschema")
        except ImportError:
            raise ConfigError(
                "An output_type that is a JSON Schema needs the package 'jsonschema'. "
                "Install it with: pip install 'playhead[jsonschema]'"
            ) from None
        check = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            check.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ConfigError(f"output_type is no JSON Schema: {_short(error.message)}") from None
        _check_references(schema, schema)
        self._validator = check(schema)
        self.schema = _opened(flatten(schema, {}))

    def convert(self, value: Any) -> Any:
        if not self._validator.is_valid(value):
            raise ValueError
        return value

    def faults(self, value: Any, error: Exception, path: str) -> Iterable[str]:
        for fault in self._validator.iter_errors(value):
            at = f"{path}{fault.json_path.removeprefix('$')}".lstrip(".")
            yield f"`{at}`: {fault.message}" if at else f"the whole: {fault.message}"


def _opened(schema: JsonObject) -> JsonObject:
    """Put a definition that the whole schema refers to in its place: its top says what it is."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    target = schema.get("$defs", {}).get(name)
    return {**target, "$defs": schema["$defs"]} if target else schema


def _check_references(node: Any, root: JsonObject) -> None:
    """Raise `ConfigError` for a reference that leads out of the schema, or nowhere."""
    if isinstance(node, list):
        for item in node:
            _check_references(item, root)
    if not isinstance(node, dict):
        return
    ref = node.get("$ref")
    if isinstance(ref, str):
        target: Any = root if ref.startswith("#") else None
        for step in ref.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        if not isinstance(target, dict | bool):
            raise ConfigError(f"output_type refers to {ref!r}, which is not in it; use '#/$defs/...'.")
    for item in node.values():
        _check_references(item, root)
