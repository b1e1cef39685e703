"""What exists by name, and the one way to run a tool."""

import asyncio
import difflib
import logging
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Generic, TypeVar

from playhead.encode import encode_result, error_text, mask
from playhead.errors import ConfigError, FatalToolError, ToolError
from playhead.stretch import FirstStretch
from playhead.types import JsonObject, ToolCall, ToolContext, ToolDefinition, ToolResult, ToolSchema

K = TypeVar("K")
V = TypeVar("V")

logger = logging.getLogger(__name__)

# Namespaces that models put before a name although nobody offered one (google-gemini/gemini-cli#6974).
_PREFIXES = ("default_api", "functions", "tools", "tool_code", "api")
_MAX_NAMES = 50
RESULT_LIMIT = 200_000


class DefinitionRegistry(Generic[K, V]):
    """Definitions by key, in the order of their registration.

    Args:
        key: returns the key of a definition.
    """

    def __init__(self, key: Callable[[V], K]) -> None:
        self._key = key
        self._items: MutableMapping[K, V] = {}

    def register(self, definition: V) -> None:
        """Add a definition.

        Raises:
            ConfigError: there is one with that key already.
        """
        key = self._key(definition)
        if key in self._items:
            raise ConfigError(f"{key!r} is registered already; give one of the two another name.")
        self._items[key] = definition

    def get(self, key: K) -> V:
        """Return the definition with that key.

        Raises:
            ConfigError: there is none; the text lists what there is.
        """
        try:
            return self._items[key]
        except KeyError:
            raise ConfigError(f"Nothing is registered as {key!r}. {self._hint(key)}") from None

    def has(self, key: K) -> bool:
        """Say whether there is a definition with that key."""
        return key in self._items

    def get_all(self) -> list[V]:
        """Return the definitions, in the order of their registration."""
        return list(self._items.values())

    def _hint(self, key: object) -> str:
        """What there is, nearest names first."""
        names = [str(name) for name in self._items]
        if not names:
            return "Nothing is registered."
        near = difflib.get_close_matches(str(key)[:200], names)
        text = "Available: " + ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            text += f" and {len(names) - _MAX_NAMES} more"
        return f"{text}. Did you mean {' or '.join(near)}?" if near else f"{text}."


class ToolRegistry(DefinitionRegistry[str, ToolDefinition[..., Any]]):
    """Tools by name. A result of more than `result_limit` characters loses its middle, and says so."""

    def __init__(self, tools: Iterable[ToolDefinition[..., Any]] = ()) -> None:
        super().__init__(_tool_name)
        self._schemas: tuple[ToolSchema, ...] | None = None
        self.result_limit = RESULT_LIMIT
        for tool in tools:
            self.register(tool)

    def register(self, definition: ToolDefinition[..., Any]) -> None:
        super().register(definition)
        self._schemas = None

    def to_tool_schemas(self) -> tuple[ToolSchema, ...]:
        """Return what a model may know of the tools: nothing executable.

        The same object is returned until another tool is registered.
        """
        if self._schemas is None:
            self._schemas = tuple(
                ToolSchema(tool.name, tool.description, tool.parameters, tool.input_schema)
                for tool in self._items.values()
            )
        return self._schemas

    async def execute(
        self, call: ToolCall, context: Any = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Look up, validate, run and encode one call; whatever goes wrong is in the result.

        Args:
            call: the call. The tool gets a copy of its arguments.
            context: the application's own context, or a `ToolContext` around it.
            timeout: seconds for the call, where the tool has none of its own; None is no limit.

        Raises:
            FatalToolError: the tool wants the run to end.
            asyncio.CancelledError: this task was cancelled.
        """
        if type(context) is not ToolContext:
            context = ToolContext(context, call.id)
        limit = None
        try:
            tool = self._called(call)
            prepared = tool.validate(_arguments(call))
            seconds = timeout if tool.timeout is None else tool.timeout
            running = tool.run(prepared, context)
            if seconds is None:
                value = await running
            else:
                # Many tools never wait: they need no timer.
                stretch = FirstStretch(running)
                if not stretch.done:
                    async with asyncio.timeout(seconds) as limit:
                        await stretch
                value = stretch.value
        except FatalToolError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _failed(call, f"`{call.name}` was cancelled from within; it has no result.")
        except Exception as error:
            if limit is not None and limit.expired():
                return _failed(
                    call, f"`{tool.name}` was stopped: it did not finish within {seconds:g} seconds."
                )
            return _failed(call, error_text(error))
        text, value = encode_result(value, self.result_limit)
        return ToolResult(call.id, call.name, value, None, text)

    def _called(self, call: ToolCall) -> ToolDefinition[..., Any]:
        if call.error is not None:
            raise ToolError(call.error or "The arguments could not be read.")
        tool = self.named(call.name)
        if tool is None:
            raise ToolError(f"There is no tool named {call.name[:200]!r}. {self._hint(call.name)}")
        if tool.name != call.name:
            logger.info("the model called %s by the name %s", tool.name, mask(call.name, 200))
        return tool

    def named(self, name: str) -> ToolDefinition[..., Any] | None:
        """Return the tool that a model means, which may put a namespace before its name."""
        tool = self._items.get(name)
        if tool is not None:
            return tool
        prefix, dot, rest = name.partition(".")
        if not dot:
            prefix, _, rest = name.partition(":")
        return self._items.get(rest) if prefix in _PREFIXES else None


def _tool_name(definition: Any) -> str:
    if not isinstance(definition, ToolDefinition):
        what = getattr(definition, "__name__", type(definition).__name__)
        raise ConfigError(f"{what!r} is not a tool: put @tool on the function, or make one with Tool(...).")
    return str(definition.name)


def _arguments(call: ToolCall) -> JsonObject:
    args: Any = call.args
    if type(args) is not dict:
        if args is None:
            return {}
        raise ToolError(f"The arguments of `{call.name[:64]}` must be a JSON object.")
    owned: JsonObject = _own(args)
    return owned


def _own(value: Any) -> Any:
    """A copy that the tool may change: the call itself is history."""
    kind = type(value)
    if kind is dict:
        return {key: _own(item) if type(item) in (dict, list) else item for key, item in value.items()}
    if kind is list:
        return [_own(item) if type(item) in (dict, list) else item for item in value]
    return value


def _failed(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, None, text, text)
