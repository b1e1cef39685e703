"""A tool of one tenant has nothing of another's."""

from typing import Any

import pytest

from playhead.tools.define import Tool
from playhead.tools.registry import ToolRegistry
from playhead.tools.tenants import belonging, for_each_tenant
from playhead.types import ToolCall, ToolContext, ToolDefinition, ToolParameter

pytestmark = pytest.mark.anyio


class Shelf:
    def __init__(self, *books: str, **tenants: "Shelf") -> None:
        self.books = books
        self._tenants = tenants

    def of_tenant(self, tenant: str) -> "Shelf":
        return self._tenants.get(tenant, Shelf())


def books(shelf: Any) -> ToolDefinition[..., Any]:
    async def execute(args: Any, context: ToolContext) -> str:
        return ", ".join(book for book in shelf.books if args["like"] in book)

    return Tool(
        "books", "Titles.", parameters=[ToolParameter("like", "string", True, "Part.")], execute=execute
    )


async def told(shelf: Any, context: Any) -> Any:
    registry = ToolRegistry([for_each_tenant(lambda tenant: books(belonging(shelf, tenant)))])
    return await registry.execute(ToolCall("c1", "books", {"like": "a"}), context)


@pytest.mark.parametrize(
    ("tenant", "found"), [(None, "all"), ("acme", "a of acme"), ("other", ""), ("", "")], ids=str
)
async def test_a_call_is_about_what_belongs_to_its_tenant(tenant: str | None, found: str) -> None:
    shelf = Shelf("all", acme=Shelf("a of acme", "b"))
    assert (await told(shelf, ToolContext({"tenant": "acme"}, tenant=tenant))).result == found


async def test_what_is_not_kept_apart_is_given_to_no_tenant() -> None:
    class Common:
        books = ("a secret",)

    assert (await told(Common(), None)).result == "a secret"
    refused = await told(Common(), ToolContext(tenant="acme"))
    assert "of_tenant" in refused.error
    assert refused.result is None
    common = Common()
    assert belonging(common, "acme", common=True) is common
