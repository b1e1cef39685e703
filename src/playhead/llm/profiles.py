"""What servers of one dialect differ in, as data.

A profile is chosen by name or by the host of the base URL. Each value that differs from the default
cites its public source; what is unknown stays at the default, which every server is known to take.
"""

from typing import Literal
from urllib.parse import urlsplit

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How to speak to a server of the OpenAI-compatible dialect.

    Attributes:
        name: the profile's name.
        usage_in_stream: send `stream_options.include_usage`. Some servers reject the field.
        max_tokens_field: which field carries the output limit.
        stream_tools: the server streams tool calls whole; without it, a request with tools is
            made without streaming.
    """

    name: str
    usage_in_stream: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_tools: bool = True


DEFAULT = Profile(name="default")

PROFILES = {
    # https://platform.openai.com/docs/api-reference/chat/create: `max_tokens` is deprecated and not
    # taken by reasoning models; `stream_options.include_usage` adds a last chunk with the usage.
    "openai": Profile(name="openai", usage_in_stream=True, max_tokens_field="max_completion_tokens"),
    # https://openrouter.ai/docs/api-reference/overview: usage in the stream on request.
    "openrouter": Profile(name="openrouter", usage_in_stream=True),
    # https://api-docs.deepseek.com/api/create-chat-completion: stream_options.
    "deepseek": Profile(name="deepseek", usage_in_stream=True),
    # https://console.groq.com/docs/api-reference#chat-create: stream_options.
    "groq": Profile(name="groq", usage_in_stream=True),
    # https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html: stream_options.
    "vllm": Profile(name="vllm", usage_in_stream=True),
    # https://github.com/ollama/ollama/blob/main/docs/api/openai-compatibility.mdx: stream_options.
    "ollama": Profile(name="ollama", usage_in_stream=True),
}

_HOSTS = {
    "api.openai.com": "openai",
    "openrouter.ai": "openrouter",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
}


def profile_for(base_url: str) -> Profile:
    """Return the profile of a known host, else the default."""
    host = (urlsplit(base_url).hostname or "").lower()
    return PROFILES.get(_HOSTS.get(host, ""), DEFAULT)
