"""Tools that work with what belongs to the tenant whose run it is, and with nothing of another's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from playhead.errors import ToolError
from playhead.types import ToolContext, ToolDefinition

T = TypeVar("T")


def for_each_tenant(make: Callable[[str | None], ToolDefinition[..., Any]]) -> ToolDefinition[..., Any]:
    """Return a tool that is made anew for the tenant of each call.

    Args:
        make: makes the tool over what is a tenant's; None is who belongs to no tenant. What it is
            called, says and takes is the same for all, and when it is made is not told.
    """
    shown = make(None)

    async def run(prepared: Any, context: ToolContext) -> Any:
        tool = shown if context.tenant is None else make(context.tenant)
        return await tool.run(prepared, context)

    return replace(shown, run=run)


def belonging(whole: T, tenant: str | None, *, common: bool = False) -> T:
    """Return what of a library, or the like, belongs to a tenant, by its method `of_tenant`.

    Raises `ToolError` for one without that method, unless it is `common` to all and holds nothing of anybody.
    """
    if tenant is None or whole is None:
        return whole
    of_tenant: Callable[[str], T] | None = getattr(whole, "of_tenant", None)
    if of_tenant is None and common:
        return whole
    if of_tenant is None:
        raise ToolError(f"{type(whole).__name__} is not kept apart by tenant: it has no method `of_tenant`.")
    return of_tenant(tenant)
