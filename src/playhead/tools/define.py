"""`@tool` and `Tool`: the three ways to declare a tool, all of which make a `ToolDefinition`."""

import functools
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from playhead.errors import ConfigError
from playhead.tools.schema import (
    JSON_TYPES,
    flatten,
    list_schema,
    read_docstring,
    schema_parameters,
)
from playhead.tools.signature import (
    function_schema,
    is_context,
    read_signature,
    refuse_generators,
    resolve_hint,
)
from playhead.tools.threads import run_blocking
from playhead.tools.validate import Field, FieldsValidator, ModelValidator
from playhead.types import JsonObject, Replay, ToolContext, ToolDefinition, ToolParameter

P = ParamSpec("P")
R = TypeVar("R")
Run = Callable[[Any, ToolContext], Awaitable[Any]]
Approval = bool | Callable[[JsonObject, Any], bool]


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    replay: Replay = "never",
    approval: Approval = False,
    client: bool = False,
    background: float | None = None,
) -> ToolDefinition[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    replay: Replay = "never",
    approval: Approval = False,
    client: bool = False,
    background: float | None = None,
) -> Callable[[Callable[P, R]], ToolDefinition[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    replay: Replay = "never",
    approval: Approval = False,
    client: bool = False,
    background: float | None = None,
) -> Any:
    """Make a tool of a function, by its annotations and its docstring.

    The schema is made by msgspec from the annotations (built-in types, dates, `Literal`, enums,
    `TypedDict`, dataclasses, msgspec structs, pydantic models); `Annotated[int,
    msgspec.Meta(description=..., ge=1)]` adds constraints and a description, which otherwise comes
    from the docstring. A parameter annotated `ToolContext` is not in the schema: it is filled in.
    A function without `async` runs in a thread, so that it may block; on a stop or a time-out its
    `ToolContext.cancelled` turns true and a late result is dropped. What the function returns is
    read by the model; an exception too, as an error; `FatalToolError` ends the run.

    Args:
        name: what the model calls it; the function's name by default.
        description: what the model reads of it; the docstring by default.
        timeout: seconds for one call; by default the run's own.
        replay: whether a call whose outcome is unknown may run again: "safe", "never", or
            "idempotency_key" when the tool passes on `ToolContext.idempotency_key`.
        approval: a person is asked before each call, or before those for which the function
            `(args, context)` says so; the run ends as `paused` with the call in `pending`.
        client: the front end executes the call; the function only declares it.
        background: seconds after which a call goes on in the background, where `Sessions` carry the run
            out: the model is told so, and what comes of the call is said in the thread later. The call is
            begun anew for that, so the tool must be `safe` to repeat, and keep what it has done.

    Raises:
        ConfigError: the function cannot be a tool; the text says what to change.
    """
    if function is None:
        more: dict[str, Any] = {"replay": replay, "approval": approval, "client": client}
        more |= {"timeout": timeout, "background": background}
        return functools.partial(tool, name=name, description=description, **more)
    name = name or str(getattr(function, "__name__", ""))
    said, described = read_docstring(function)
    signature = read_signature(name, function)
    schema = function_schema(name, signature, described)
    fields = [Field(p.name, p.type, p.required) for p in signature.parameters]
    rest = () if signature.rest is inspect.Parameter.empty else (signature.rest,)
    return _definition(
        (name, said if description is None else description),
        schema,
        FieldsValidator(name, fields, schema, *rest),
        _function_runner(function, signature.context),
        (function, timeout, replay, approval, client, background),
    )


def Tool(
    name: str,
    description: str,
    *,
    execute: Callable[..., Any],
    input_model: Any = None,
    parameters: Sequence[ToolParameter] | None = None,
    timeout: float | None = None,
    replay: Replay = "never",
    approval: Approval = False,
    client: bool = False,
    background: float | None = None,
) -> ToolDefinition[..., Any]:
    """Make a tool of a pydantic model or a parameter list, and a function that runs it.

    Args:
        name: what the model calls it.
        description: what the model reads of it.
        execute: `execute(args, context)` or `execute(args)`, async or not; a function without
            `async` runs in a thread. `args` is an instance of `input_model`, or a dict with the
            arguments that were given. `context` is the application's own, untouched, or the
            `ToolContext` when that parameter is annotated so.
        input_model: a pydantic model of the arguments, validated strictly.
        parameters: a list of the arguments. Without this and a model the tool takes none.
        timeout: as for `tool`.
        replay: as for `tool`.
        approval: as for `tool`.
        client: as for `tool`.
        background: as for `tool`.

    Raises:
        ConfigError: the declaration is wrong; the text says what to change.
    """
    if input_model is not None:
        if parameters is not None:
            raise ConfigError(f"Tool {name!r} has both input_model and parameters; give one of them.")
        if not hasattr(input_model, "model_json_schema"):
            raise ConfigError(f"Tool {name!r}: input_model must be a pydantic model class.")
        schema = flatten({"properties": {}, **input_model.model_json_schema()}, {})
        validate: Callable[[JsonObject], Any] = ModelValidator(name, input_model, schema)
    else:
        listed = parameters or ()
        schema = list_schema(listed)
        fields = [Field(p.key, JSON_TYPES[p.type], p.required) for p in listed]
        validate = FieldsValidator(name, fields, schema)
    run = _execute_runner(name, execute)
    options = (execute, timeout, replay, approval, client, background)
    return _definition((name, description), schema, validate, run, options)


def _definition(
    words: tuple[str, str],
    schema: JsonObject,
    validate: Callable[[JsonObject], Any],
    run: Run,
    options: tuple[Callable[..., Any], float | None, Replay, Approval, bool, float | None],
) -> ToolDefinition[..., Any]:
    name, description = words
    function, timeout, replay, approval, client, background = options
    # What every provider accepts as a name.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
        raise ConfigError(
            f"{name!r} is not a tool name: give name=, with letters, digits, '_' and '-' only, at most 64."
        )
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"Tool {name!r} has timeout={timeout!r}; it must be more than 0 seconds, or None.")
    if replay not in typing.get_args(Replay):
        raise ConfigError(f"Tool {name!r} has replay={replay!r}; use one of {typing.get_args(Replay)}.")
    if background is not None:
        _check_background(name, background, replay, client)
    return ToolDefinition(
        name=name,
        description=description.strip() or name.replace("_", " "),
        parameters=schema_parameters(schema),
        input_schema=schema,
        validate=validate,
        run=run,
        function=function,
        timeout=timeout,
        replay=replay,
        approval=approval,
        client=client,
        background=background,
    )


def _check_background(name: str, seconds: float, replay: Replay, client: bool) -> None:
    if not seconds > 0:
        raise ConfigError(
            f"Tool {name!r} has background={seconds!r}; it must be more than 0 seconds, or None."
        )
    if client or replay != "safe":
        raise ConfigError(
            f"Tool {name!r} has background={seconds!r}, for which a call is begun anew: it must run on the"
            ' server, and be marked replay="safe" if that does no harm.'
        )


# ---------------------------------------------------------------- running


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def _function_runner(function: Callable[..., Any], context_name: str | None) -> Run:
    def call(kwargs: JsonObject, context: ToolContext) -> Any:
        if context_name is not None:
            kwargs[context_name] = context
        return function(**kwargs)

    if not _is_async(function):
        return lambda kwargs, context: run_blocking(functools.partial(call, kwargs), context)
    if context_name is None:
        return lambda kwargs, context: function(**kwargs)
    return call


def _execute_runner(name: str, execute: Callable[..., Any]) -> Run:
    refuse_generators(name, execute)
    positional = [
        parameter
        for parameter in inspect.signature(execute).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not 1 <= len(positional) <= 2:
        raise ConfigError(f"Tool {name!r}: execute must take (args, context) or (args).")
    second = positional[1] if len(positional) == 2 else None
    takes_ours = second is not None and is_context(resolve_hint(name, execute, second))

    def call(prepared: Any, context: ToolContext) -> Any:
        if second is None:
            return execute(prepared)
        return execute(prepared, context if takes_ours else context.context)

    if _is_async(execute):
        return call
    return lambda prepared, context: run_blocking(functools.partial(call, prepared), context)
