"""A function's signature, read as the arguments of a tool."""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from playhead.errors import ConfigError
from playhead.tools.schema import object_schema, type_schemas
from playhead.types import JsonObject, ToolContext


class Parameter(NamedTuple):
    """One argument that a model gives."""

    name: str
    type: Any
    required: bool
    default: Any


class Signature(NamedTuple):
    """`context` is the name of the parameter that is filled in; `rest` the type of `**kwargs`."""

    parameters: list[Parameter]
    context: str | None
    rest: Any


def read_signature(name: str, function: Callable[..., Any]) -> Signature:
    """Return what a function takes.

    Raises:
        ConfigError: a model cannot fill one of its parameters.
    """
    if not callable(function):
        raise ConfigError(f"@tool takes a function, not {function!r}.")
    refuse_generators(name, function)
    found: list[Parameter] = []
    context, rest = None, inspect.Parameter.empty
    for parameter in inspect.signature(function).parameters.values():
        hint = resolve_hint(name, function, parameter)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = hint
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"Tool {name!r}: a model names its arguments, so `{parameter}` cannot be filled; "
                "declare it as an ordinary parameter."
            )
        elif is_context(hint):
            context = parameter.name
        elif parameter.name == "self" and parameter.annotation is parameter.empty:
            raise ConfigError(f"Tool {name!r} is a method; make a tool of the bound one: tool(thing.{name}).")
        else:
            required = parameter.default is parameter.empty
            found.append(Parameter(parameter.name, hint, required, parameter.default))
    return Signature(found, context, rest)


def resolve_hint(name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return a parameter's annotation as a type, also where it is text."""
    if parameter.annotation is parameter.empty:
        return Any
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    scope = getattr(inner, "__globals__", None) or getattr(type(inner).__call__, "__globals__", {})
    # ToolContext is often imported for type checkers only.
    local = {} if "ToolContext" in scope else {"ToolContext": ToolContext}
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(holder, scope, local, include_extras=True)["it"]
    except NameError as error:
        raise ConfigError(
            f"Tool {name!r}: the type of `{parameter.name}` cannot be found ({error}); "
            "define or import it at the top of the module, at run time too."
        ) from error


def is_context(hint: Any) -> bool:
    """Say whether an annotation is `ToolContext`, also in `Optional` and `Annotated`."""
    if hint is ToolContext:
        return True
    if get_origin(hint) is Annotated or get_origin(hint) in (typing.Union, types.UnionType):
        return any(is_context(part) for part in get_args(hint))
    return False


def function_schema(name: str, signature: Signature, described: dict[str, str]) -> JsonObject:
    """Return the JSON Schema of the arguments, with `described` as descriptions by name."""
    parameters = signature.parameters
    rest = [] if signature.rest is inspect.Parameter.empty else [signature.rest]
    try:
        schemas, defs = type_schemas([*(parameter.type for parameter in parameters), *rest])
    except Exception as error:
        raise _type_error(name, signature, error) from error
    properties = {}
    for parameter, schema in zip(parameters, schemas, strict=False):
        text = _metadata_text(name, parameter) or described.get(parameter.name, "")
        if text and "description" not in schema:
            schema = {**schema, "description": text}
        if not parameter.required and parameter.default is not None:
            try:
                schema = {**schema, "default": msgspec.to_builtins(parameter.default, str_keys=True)}
            except Exception:  # noqa: S110 - a default that JSON has no form for is not told
                pass
        properties[parameter.name] = schema
    required = [parameter.name for parameter in parameters if parameter.required]
    return object_schema(properties, required, defs, *schemas[len(parameters) :])


def _type_error(name: str, signature: Signature, error: Exception) -> ConfigError:
    for key, kind in [(p.name, p.type) for p in signature.parameters] + [("**", signature.rest)]:
        try:
            type_schemas([kind])
        except Exception as own:
            reason = str(own).splitlines()[0]
            return ConfigError(
                f"Tool {name!r}: no JSON form is known for the type of `{key}`, {kind!r} ({reason}). "
                "Use built-in types, dataclasses, msgspec structs, TypedDicts or pydantic models."
            )
    return ConfigError(f"Tool {name!r}: its parameters have no JSON Schema together: {error}")


def _metadata_text(name: str, parameter: Parameter) -> str:
    """The description among the `Annotated` extras that msgspec does not read: text, or pydantic's."""
    text = ""
    for extra in getattr(parameter.type, "__metadata__", ()):
        module = type(extra).__module__.partition(".")[0]
        if isinstance(extra, str):
            text = text or extra
        elif module == "annotated_types" or (module == "pydantic" and getattr(extra, "metadata", None)):
            raise ConfigError(
                f"Tool {name!r}: the constraint on `{parameter.name}` is not one that is checked; "
                "use msgspec.Meta(...), or Tool(..., input_model=...)."
            )
        elif module == "pydantic":
            text = text or getattr(extra, "description", None) or ""
    return text


def refuse_generators(name: str, function: Callable[..., Any]) -> None:
    """Raise `ConfigError` for a generator function."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"Tool {name!r} yields; a tool returns one value. Collect a list and return it.")
