"""The tools of the page, and which runs are offered them: those in a project of the page."""

import inspect
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from playhead.options import Prepared, PrepareStep
from playhead.server.workspace import Workspace
from playhead.tools.builtin import correct_transcript, make_captions, search_transcript, seek
from playhead.tools.joined import JoinedTools
from playhead.tools.registry import ToolRegistry
from playhead.tools.tenants import for_each_tenant
from playhead.types import AgentStep, LLMRequest, ToolDefinition


def page_tools(workspace: Workspace, registry: ToolRegistry) -> ToolRegistry:
    """Return the tools of a registry, and those of the page beside them; an own one goes before ours."""

    def search(tenant: str | None) -> ToolDefinition[..., Any]:
        mine = workspace.of_tenant(tenant)
        return search_transcript(mine.library, mine)

    def captions(tenant: str | None) -> ToolDefinition[..., Any]:
        mine = workspace.of_tenant(tenant)
        return make_captions(mine.library, mine)

    def correct(tenant: str | None) -> ToolDefinition[..., Any]:
        mine = workspace.of_tenant(tenant)
        return correct_transcript(mine.library, mine)

    ours = (*map(for_each_tenant, (search, captions, correct)), seek())
    return JoinedTools(registry, [tool for tool in ours if not registry.has(tool.name)])


def page_step(workspace: Workspace, registry: ToolRegistry, then: PrepareStep | None) -> PrepareStep:
    """Return a `prepare_step` that offers a run only the tools of the registry, unless it is the page's.

    It is if its context names a project that is kept here. A client without a player must not be
    left with a call to `seek` that nobody answers.

    Args:
        then: the application's own `prepare_step`, which comes after.
    """

    async def prepare(index: int, request: LLMRequest, steps: Sequence[AgentStep]) -> Prepared:
        context = request.context
        mine = workspace.of_tenant(request.tenant)
        if request.tools and not await mine.has(context.project_id if context else None):
            request = replace(request, tools=registry.to_tool_schemas())
        if then is None:
            return request
        prepared = then(index, request, steps)
        return await prepared if inspect.isawaitable(prepared) else prepared

    return prepare
