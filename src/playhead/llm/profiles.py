"""What servers of the OpenAI-compatible dialect differ in, as data.

A profile is chosen by name, by the host of the base URL, or read from a file that `playhead probe`
wrote. Each built-in value that differs from the default cites its public source in `servers.py`;
what is unknown stays at the default, which is what the strictest servers take.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from playhead.errors import ConfigError
from playhead.http import where
from playhead.llm.structured import OutputForm

Evidence = Literal["default", "documented", "measured"]


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How to speak to one server.

    Attributes:
        name: the profile's name.
        evidence: where its values come from; only `probe` writes `measured`.
        assistant_empty: the content of a message that has only calls: empty text, null, no such
            field, or a placeholder text.
        replay_reasoning: send a message's own reasoning back: never, with messages that have
            calls (as empty text where there was none), or always.
        reasoning_field: the field that it goes back in.
        needs_assistant_after_tool: a user message may not follow a result directly.
        merge_users: user messages that follow one another go as one.
        prefill: the history may end with an assistant message.
        tool_choice: forms that are taken: words and a named tool, words only, or none at all.
        stream_tools: calls arrive whole in a stream; without it, a request with tools is made
            without streaming.
        usage_in_stream: `stream_options.include_usage` is taken.
        max_tokens_field: the field of the output limit.
        id_codec: call ids as they are, as 9 letters and digits, as up to 64 of `[A-Za-z0-9_-]`, or
            cut to 40 characters.
        max_tool_name: characters of a tool's name, at least 16.
        schema_dialect: JSON Schema, or the OpenAPI subset of Gemini.
        needs_tools_with_tool_history: a request may hold calls and results only if it offers tools.
        lenient_arguments: arguments may be followed by other text, which is cut off.
        think_prefilled: the chat template opened `<think>` already, so text begins inside it.
        output: how an answer in the form of a schema is asked for: by `response_format` with the
            schema, by `response_format` for any JSON, by a tool that takes the answer, or by the
            instructions alone.
        output_beside_tools: `response_format` is taken together with tools, and does not keep the
            model from calling them. Otherwise the tool is used where there are tools.
        output_strict: the server shows the schema to the model and holds it to it (`strict`).
            Without, the schema stands in the instructions as well.
    """

    name: str
    evidence: Evidence = "default"
    assistant_empty: Literal["text", "null", "omit", "placeholder"] = "text"
    replay_reasoning: Literal["never", "calls", "always"] = "never"
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    needs_assistant_after_tool: bool = False
    merge_users: bool = False
    prefill: bool = False
    tool_choice: Literal["named", "words", "none"] = "words"
    stream_tools: bool = True
    usage_in_stream: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    id_codec: Literal["any", "alnum9", "safe64", "short40"] = "any"
    max_tool_name: Annotated[int, msgspec.Meta(ge=16)] = 64
    schema_dialect: Literal["json_schema", "openapi"] = "json_schema"
    needs_tools_with_tool_history: bool = False
    lenient_arguments: bool = False
    think_prefilled: bool = False
    output: OutputForm = "prompt"
    output_beside_tools: bool = False
    output_strict: bool = False


DEFAULT = Profile(name="default")


def profile_file(folder: Path, base_url: str) -> Path:
    """Return where the measured profile of a server is kept: one file for a host and port."""
    return folder / (re.sub(r"[^a-z0-9.-]", "_", where(base_url).lower()) + ".json")


def read_profile(path: Path) -> Profile:
    """Read a profile from a JSON file. Raises `ConfigError` that says what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise ConfigError(f"The profile file {path.name!r} cannot be read: {error.strerror}.") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"The profile file {path.name!r} is not a profile: {error}.") from None
