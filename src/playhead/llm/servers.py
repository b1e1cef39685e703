"""Built-in profiles. Each value that differs from the default cites its public source.

A source stands directly above its value, as an address or as `owner/repo#issue`. A value for which
none was found is left out. Servers that run any model (vllm, lm-studio, llama.cpp, openrouter) are
described by the strictest chat templates that they are known to run.
"""

from pathlib import Path
from urllib.parse import urlsplit

from playhead.errors import ConfigError
from playhead.llm.profiles import DEFAULT, Profile, read_profile

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_ALL: tuple[Profile, ...] = (
    Profile(
        name="openai",
        evidence="documented",
        # https://github.com/openai/openai-python/blob/main/src/openai/types/chat/completion_create_params.py
        tool_choice="named",
        # openai/openai-openapi#248
        usage_in_stream=True,
        # https://github.com/openai/openai-python/blob/main/src/openai/types/chat/completion_create_params.py
        # `max_tokens` is deprecated, and reasoning models refuse it.
        max_tokens_field="max_completion_tokens",
        # vercel/ai#5171: an id of more than 40 characters, made elsewhere, is refused.
        id_codec="short40",
        # https://github.com/openai/openai-python/blob/main/src/openai/types/chat/completion_create_params.py
        # Models that have it not (before gpt-4o) refuse it, and are asked otherwise then.
        output="json_schema",
        # TanStack/ai#605: the schema holds for the last answer, and calls come before it.
        output_beside_tools=True,
        # https://github.com/openai/openai-python/blob/main/src/openai/types/shared_params/response_format_json_schema.py
        output_strict=True,
    ),
    Profile(
        name="azure",
        evidence="documented",
        # https://schemas.apis.io/schemas/microsoft-azure/microsoft-azure-chatcompletiontoolchoiceoption/
        tool_choice="named",
        # griptape-ai/griptape#1640: since API version 2024-10-21.
        usage_in_stream=True,
        # BerriAI/litellm#6376, anomalyco/opencode#37964: newer models refuse `max_tokens`.
        max_tokens_field="max_completion_tokens",
        # BerriAI/litellm#11392: an id of more than 40 characters, made elsewhere, is refused.
        id_codec="short40",
        # https://learn.microsoft.com/en-us/azure/ai-services/openai/how-to/structured-outputs
        output="json_schema",
        # https://learn.microsoft.com/en-us/azure/ai-services/openai/how-to/structured-outputs
        output_strict=True,
    ),
    # Usage comes in every stream, and the option for it has no effect:
    # https://openrouter.ai/docs/cookbook/administration/usage-accounting
    # Ids stay as they are, since entries of `reasoning_details` may refer to them.
    # A schema beside tools is for some of its models only (TanStack/ai#836).
    Profile(
        name="openrouter",
        evidence="documented",
        # https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning
        replay_reasoning="calls",
        # https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning
        reasoning_field="reasoning",
        # zed-industries/zed#37021: the rule of Mistral holds here too.
        needs_assistant_after_tool=True,
        # https://openrouter.ai/docs/guides/features/tool-calling#tool-choice-configuration
        tool_choice="named",
        # https://openrouter.ai/docs/guides/features/tool-calling: every request with results has tools.
        needs_tools_with_tool_history=True,
        # https://openrouter.ai/docs/guides/features/structured-outputs
        output="json_schema",
    ),
    # Reasoning is never sent back: both of its fields are refused (janhq/jan#8136, karthink/gptel#774).
    Profile(
        name="groq",
        evidence="documented",
        # https://github.com/groq/groq-python/blob/main/src/groq/types/chat/completion_create_params.py
        tool_choice="named",
        # withceleste/celeste-python#351
        usage_in_stream=True,
        # groq/groq-python#175: `max_tokens` is deprecated.
        max_tokens_field="max_completion_tokens",
        # https://console.groq.com/docs/structured-outputs: a schema goes with neither streaming nor
        # tools (jgravelle/GroqApiLibrary#33), and JSON of any kind not with tools (vercel/ai#16540).
        output="tool",
    ),
    Profile(
        name="deepseek",
        evidence="documented",
        # https://api-docs.deepseek.com/guides/thinking_mode: a request with tools is refused when the
        # reasoning of an earlier message is missing, whether or not that message has calls.
        replay_reasoning="always",
        # deepseek-ai/DeepSeek-V3#1376: thinking, which is on unless switched off, refuses `required`
        # and a named tool.
        tool_choice="none",
        # https://api-docs.deepseek.com/api/create-chat-completion
        usage_in_stream=True,
        # https://api-docs.deepseek.com/guides/json_mode: a schema is refused (ItzCrazyKns/Vane#969).
        output="json_object",
    ),
    # Unknown fields are refused: `max_completion_tokens` (editor-code-assistant/eca#231) and
    # `reasoning_content` (charmbracelet/crush#1590).
    Profile(
        name="mistral",
        evidence="documented",
        # datapizza-labs/datapizza-ai#98: error 3230.
        needs_assistant_after_tool=True,
        # https://docs.rs/crate/mistral-openapi-client/latest/source/src/models/tool_choice.rs
        tool_choice="named",
        # anomalyco/opencode#1680
        id_codec="alnum9",
        # https://docs.mistral.ai/capabilities/structured-output/custom_structured_output/
        output="json_schema",
        # https://docs.mistral.ai/capabilities/structured-output/custom_structured_output/
        output_strict=True,
    ),
    # Null content without calls is refused, and `max_completion_tokens` is not read:
    # https://github.com/ollama/ollama/blob/main/openai/openai.go
    # Held to a schema, a model cannot call tools (ollama/ollama#11185), and it is not shown the schema
    # (ollama/ollama#8162).
    Profile(
        name="ollama",
        evidence="documented",
        # https://github.com/ollama/ollama/blob/main/openai/openai.go: it reaches the template.
        replay_reasoning="calls",
        # https://github.com/ollama/ollama/blob/main/openai/openai.go
        reasoning_field="reasoning",
        # https://github.com/ollama/ollama/blob/main/docs/api/openai-compatibility.mdx: not supported.
        tool_choice="none",
        # https://github.com/ollama/ollama/blob/main/docs/api/openai-compatibility.mdx
        usage_in_stream=True,
        # https://github.com/ollama/ollama/blob/main/docs/capabilities/structured-outputs.mdx
        output="json_schema",
    ),
    Profile(
        name="vllm",
        evidence="documented",
        # https://github.com/vllm-project/vllm/blob/main/docs/features/interleaved_thinking.md
        replay_reasoning="calls",
        # https://github.com/vllm-project/vllm/blob/main/docs/features/interleaved_thinking.md
        reasoning_field="reasoning",
        # mistralai/mistral-vibe#578
        needs_assistant_after_tool=True,
        # vllm-project/vllm#6862
        merge_users=True,
        # https://github.com/vllm-project/vllm/blob/main/docs/features/tool_calling.md
        tool_choice="named",
        # vllm-project/vllm#36379
        usage_in_stream=True,
        # vllm-project/vllm#48975
        lenient_arguments=True,
        # https://github.com/vllm-project/vllm/blob/main/docs/features/structured_outputs.md: better with the
        # schema in the prompt.
        # Beside tools it keeps the model from calling them (vllm-project/vllm#39929).
        output="json_schema",
    ),
    # A named tool (lmstudio-ai/lmstudio-bug-tracker#670) and null content
    # (lmstudio-ai/lmstudio-bug-tracker#261) are refused, as the defaults have it. With a schema, the
    # answer of a model that thinks may come as its thoughts (lmstudio-ai/lmstudio-bug-tracker#1698).
    Profile(
        name="lm-studio",
        evidence="documented",
        # mcowger/generic-copilot#43: such templates count neither calls nor results.
        needs_assistant_after_tool=True,
        # mcowger/generic-copilot#43
        merge_users=True,
        # zed-industries/zed#57861
        usage_in_stream=True,
    ),
    # A named tool is taken for `auto` (ggml-org/llama.cpp#26535). Reasoning beside text is refused by
    # the template of gpt-oss (ggml-org/llama.cpp#17040), so it is not sent back.
    Profile(
        name="llama.cpp",
        evidence="documented",
        # ggml-org/llama.cpp#19851: such templates count neither calls nor results.
        needs_assistant_after_tool=True,
        # ggml-org/llama.cpp#19851
        merge_users=True,
        # ggml-org/llama.cpp#16048
        usage_in_stream=True,
        # ggml-org/llama.cpp#26359: templates of Mistral refuse the server's own ids.
        id_codec="alnum9",
        # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
        # Its grammar leaves no room for calls (modelship-ai/modelship#71).
        output="json_schema",
    ),
    # Its request has `max_tokens` and no `stream_options`, as the defaults have it:
    # https://github.com/togethercomputer/together-py/blob/main/src/together/types/chat/completion_create_params.py
    Profile(
        name="together",
        evidence="documented",
        # https://docs.together.ai/docs/inference/chat/structured-outputs: the schema has to stand in the
        # instructions as well.
        output="json_schema",
    ),
    # A message without content is refused, empty text is taken (langchain-ai/langchain#34140).
    Profile(
        name="xai",
        evidence="documented",
        # BerriAI/litellm#17136
        usage_in_stream=True,
        # https://docs.x.ai/docs/guides/structured-outputs; beside tools with some models only
        # (TanStack/ai#605).
        output="json_schema",
    ),
    Profile(
        name="cerebras",
        evidence="documented",
        # https://tessl.io/registry/tessl/pypi-cerebras-cloud-sdk/1.50.0/files/docs/chat-completions.md
        usage_in_stream=True,
        # https://cerebras-inference.mintlify.app/api-reference/chat-completions
        max_tokens_field="max_completion_tokens",
        # https://inference-docs.cerebras.ai/capabilities/structured-outputs
        # Beside tools it is refused (BerriAI/litellm#31445).
        output="json_schema",
        # https://inference-docs.cerebras.ai/capabilities/structured-outputs
        output_strict=True,
    ),
    # Unknown fields are refused (liliMozi/openhanako#394).
    Profile(
        name="gemini-compatible",
        evidence="documented",
        # pontus-espe/agent-sdk-go#23
        schema_dialect="openapi",
        # https://ai.google.dev/api/compatibility
        # Beside tools it is refused before Gemini 3 (openai/openai-agents-python#656).
        output="json_schema",
    ),
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in _ALL}
"""The built-in profiles by name."""

HOSTS: dict[str, str] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "openrouter.ai": "openrouter",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral",
    "ollama.com": "ollama",
    "api.together.ai": "together",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.cerebras.ai": "cerebras",
    "generativelanguage.googleapis.com": "gemini-compatible",
}
"""The profile of a host and of all hosts below it.

Servers on one's own machine are chosen by name: a port is no evidence of what listens on it.
"""


def profile_for(base_url: str) -> Profile:
    """Return the profile of a known host, else the default."""
    host = (urlsplit(base_url).hostname or "").lower()
    for known, name in HOSTS.items():
        if host == known or host.endswith(f".{known}"):
            return PROFILES[name]
    return DEFAULT


def named_profile(name: str) -> Profile:
    """Return a built-in profile. Raises `ConfigError` that lists them."""
    if name not in PROFILES:
        raise ConfigError(f"There is no profile {name!r}. Built in: {', '.join(sorted(PROFILES))}.")
    return PROFILES[name]


def chosen_profile(choice: str) -> Profile:
    """Return the built-in profile of that name, or the one in that file.

    Raises `ConfigError` for what is neither, and for a file that is no profile.
    """
    if choice in PROFILES:
        return PROFILES[choice]
    path = Path(choice).expanduser()
    looks_like_a_file = path.suffix or len(path.parts) > 1 or path.is_file()
    return read_profile(path) if looks_like_a_file else named_profile(choice)
