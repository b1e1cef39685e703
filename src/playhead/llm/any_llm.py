"""Models of an existing multi-provider SDK: `any-llm-sdk` (extra `any-llm`), some fifty providers.

The SDK speaks the chat completions form to its callers, so requests and answers are those of
`openai_compatible.py`; its own retries are off. The extra is outside `all`: the SDKs that it stands
on pin versions of their own. Source: https://mozilla-ai.github.io/any-llm/
"""

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import AsyncGenerator
from contextlib import suppress
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from playhead.encode import mask
from playhead.errors import ConfigError, LLMConnectionError, LLMError, LLMTimeoutError
from playhead.events import EmitDelta
from playhead.llm.any_llm_errors import map_error
from playhead.llm.kept import own_data
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.openai_errors import KEY
from playhead.llm.openai_reply import OpenAIReader
from playhead.llm.profiles import Profile
from playhead.llm.structured import Shaped
from playhead.types import AssistantMessage, JsonObject, LLMRequest, LLMResult

PROFILE = Profile(name="any-llm", usage_in_stream=True)
"""The SDK takes the standard form and leaves out what a provider does not take."""

# Where no address is given, it is the SDK's affair; this one can never be reached (RFC 2606).
_NO_ADDRESS = "https://{}.any-llm.invalid"


class AnyLLM(OpenAICompatible):
    """An `AgentLLM` over a provider of any-llm.

    Args:
        model: provider and model, such as `mistral:mistral-large-latest`.
        api_key: handed to the SDK.
        base_url: another address than the provider's own.
        profile: how to phrase requests.
        options: further arguments of each call of the SDK, such as `{"reasoning_effort": "high"}`.

    Raises `ConfigError` without the package, and for what the SDK refuses: an unknown provider, one
    whose own package is missing, no key. Keep-alives of a provider do not count as a sign of life:
    `timeout` bounds the silence between pieces of the answer.
    """

    def __init__(
        self,
        model: str,
        api_key: str = "",
        base_url: str | None = None,
        *,
        profile: Profile | None = None,
        options: JsonObject | None = None,
    ) -> None:
        provider, _, name = model.partition(":")
        if not provider or not name:
            raise ConfigError(
                f"The model {model!r} of any-llm names no provider: give provider:model, such as "
                "mistral:mistral-large-latest."
            )
        super().__init__(name, "", base_url or _NO_ADDRESS.format(provider), profile=profile or PROFILE)
        self.provider = provider
        self.url = base_url or ""
        self.options = options or {}
        self._access = (api_key, base_url)
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = WeakKeyDictionary()
        self._made: Any = _create(provider, api_key, base_url)

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """One call of the model. Raises `LLMError`; never retries."""
        started = perf_counter()
        client = await self._client()
        shaped, take = None, emit
        if request.output_schema is not None:
            shaped = Shaped(request, emit, self.output_way, self)
            request, take = shaped.request, shaped.emit
        reader = _Reader(self.reader(request, take))
        stream = emit is not None and self.can_stream(request) and client.SUPPORTS_COMPLETION_STREAMING
        try:
            await self._ask(client, request, bool(stream), reader)
        except Exception as error:
            failure = map_error(error, self.provider)
            if not isinstance(failure, LLMConnectionError | LLMTimeoutError) or reader.empty:
                # `from None`: the SDK's error holds the request, its headers and the answer's body.
                raise self._with_repair(failure, error) from None
        result = reader.result()
        if shaped is not None:
            result = shaped.result(result)
        if result.stop_reason == "interrupted" and reader.empty:
            raise LLMConnectionError("The answer ended before any content arrived.", provider=self.provider)
        latency = round((perf_counter() - started) * 1000)
        return replace(result, provider=self.provider, latency_ms=latency)

    async def _ask(self, client: Any, request: LLMRequest, stream: bool, reader: "_Reader") -> None:
        fields = msgspec.json.decode(self.build_request(request, stream).body)
        patience = _Patience(request)
        async with asyncio.timeout_at(patience.until(True)) as guard:
            answer = await client.acompletion(**fields, **self.options)
            if not hasattr(answer, "__aiter__"):
                reader.take_whole(answer)
                return
            try:
                async for chunk in answer:
                    reader.take(chunk)
                    guard.reschedule(patience.until(reader.empty))
            finally:
                await _closed(answer)

    def _with_repair(self, failure: LLMError, error: Exception) -> LLMError:
        if failure.code == "bad_request":
            failure.repair = self._repair(str(error))
        return failure

    def repaired(self, change: JsonObject) -> "AnyLLM":
        """Return the same model, spoken to as the change of the profile says."""
        profile = replace(self.profile, **change)
        return AnyLLM(f"{self.provider}:{self.model}", *self._access, profile=profile, options=self.options)

    def _convert_assistant(self, message: AssistantMessage) -> JsonObject:
        wire = super()._convert_assistant(message)
        own = own_data(message, KEY, server=self._server)
        if "extraContent" in own:
            # The signature of a thought, say: it goes back with the thought, as it came.
            wire["extra_content"] = own["extraContent"]
            wire["reasoning"] = message.reasoning or ""
        return wire

    async def _client(self) -> Any:
        """The SDK's client for the running event loop: its connections belong to one."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            holder = self._hold()
            held = self._held[loop] = (await anext(holder), holder)
        return held[0]

    async def _hold(self) -> AsyncGenerator[Any, None]:
        # An event loop closes the asynchronous generators that are still open when it ends.
        client, self._made = self._made or _create(self.provider, *self._access), None
        try:
            yield client
        finally:
            await _closed(getattr(client, "client", None))

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next call opens new ones."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()


_Held = tuple[Any, AsyncGenerator[Any, None]]


class _Reader:
    """Reads the SDK's objects as what they stand for: the pieces of a chat completion."""

    def __init__(self, reader: OpenAIReader) -> None:
        self._reader = reader
        self._extra: JsonObject = {}

    @property
    def empty(self) -> bool:
        return self._reader.empty

    def take(self, chunk: Any) -> None:
        self._keep(choice.delta for choice in chunk.choices)
        self._reader.take("", _json(chunk))

    def take_whole(self, completion: Any) -> None:
        self._keep(choice.message for choice in completion.choices)
        self._reader.take_body(_json(completion))

    def _keep(self, messages: Any) -> None:
        for message in messages:
            for name, value in (getattr(message, "extra_content", None) or {}).items():
                held = self._extra.get(name)
                more = isinstance(held, dict) and isinstance(value, dict)
                self._extra[name] = {**(held or {}), **value} if more else value

    def result(self) -> LLMResult:
        result = self._reader.result()
        if not self._extra:
            return result
        kept: JsonObject = (result.message.provider_metadata or {}).get(KEY) or {}
        metadata = {KEY: {"server": self._reader.server, **kept, "extraContent": self._extra}}
        return replace(result, message=replace(result.message, provider_metadata=metadata))


def _json(answer: Any) -> bytes:
    return bytes(answer.model_dump_json(exclude_none=True, warnings=False).encode())


class _Patience:
    """How long to wait for the next piece."""

    def __init__(self, request: LLMRequest) -> None:
        now = asyncio.get_running_loop().time()
        total, first = request.total_timeout, request.first_token_timeout
        self._silence = request.timeout
        self._total = [] if total is None else [now + total]
        self._first = [] if first is None else [now + first]

    def until(self, empty: bool) -> float | None:
        bounds = [*self._total, *(self._first if empty else ())]
        if self._silence is not None:
            bounds.append(asyncio.get_running_loop().time() + self._silence)
        return min(bounds, default=None)


async def _closed(closable: Any) -> None:
    close = getattr(closable, "aclose", None) or getattr(closable, "close", None)
    with suppress(Exception):  # how it went is known by now
        closing = close() if close is not None else None
        if inspect.isawaitable(closing):
            await closing


# ---------------------------------------------------------------- set-up


def _create(provider: str, api_key: str, base_url: str | None) -> Any:
    if importlib.util.find_spec("any_llm") is None:
        raise ConfigError("Models of any-llm need a package: pip install 'playhead[any-llm]'")
    sdk, errors = importlib.import_module("any_llm"), importlib.import_module("any_llm.exceptions")
    more: dict[str, Any] = {"api_key": api_key or None, "api_base": base_url, "unified_exceptions": True}
    try:
        try:
            return sdk.AnyLLM.create(provider, max_retries=0, **more)
        except errors.UnsupportedParameterError:  # this SDK has no number of retries to set
            return sdk.AnyLLM.create(provider, **more)
    except errors.UnsupportedProviderError:
        known = ", ".join(sorted(sdk.AnyLLM.get_supported_providers()))
        text = f"any-llm knows no provider {provider!r}. It knows: {known}."
    except ImportError:
        text = f"any-llm needs a package for {provider}: pip install 'any-llm-sdk[{provider}]'"
    except errors.MissingApiKeyError as error:
        text = f"any-llm needs a key for {provider}: give one, or set {error.env_var_name}."
    except Exception as error:
        text = f"any-llm could not set up {provider}: {mask(str(error), 200)}"
    raise ConfigError(text)
