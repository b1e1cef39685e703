"""Declarations that `@tool` and `Tool` refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pydantic
import pytest

from playhead.errors import ConfigError
from playhead.tools import Tool, tool
from playhead.types import ToolParameter

if TYPE_CHECKING:
    from decimal import Decimal


class Point(msgspec.Struct):
    x: int


class Address(pydantic.BaseModel):
    street: str


class Unknown:
    pass


def _bad_name() -> Any:
    return tool(lambda: None)


def _long_name() -> Any:
    return Tool("x" * 65, "X.", execute=lambda args: None)


def _method() -> Any:
    class Shop:
        @tool
        def price(self, item: str) -> None: ...


def _generator() -> Any:
    @tool
    def numbers() -> Any:
        yield 1


def _star() -> Any:
    @tool
    def many(*items: int) -> None: ...


def _position() -> Any:
    @tool
    def first(item: int, /) -> None: ...


def _unknown_type() -> Any:
    @tool
    def f(good: int, thing: Unknown) -> None: ...


def _hidden_type() -> Any:
    @tool
    def f(price: Decimal) -> None: ...


def _foreign_constraint() -> Any:
    @tool
    def f(age: Annotated[int, pydantic.Field(ge=0)]) -> None: ...


def _time_out() -> Any:
    return Tool("t", "T.", execute=lambda args: None, timeout=0)


def _replay() -> Any:
    return Tool("t", "T.", execute=lambda args: None, replay="often")  # type: ignore[arg-type]


def _both() -> Any:
    return Tool("t", "T.", execute=lambda args: None, input_model=Address, parameters=[])


def _no_model() -> Any:
    return Tool("t", "T.", execute=lambda args: None, input_model=Point)


def _type_name() -> Any:
    return Tool("t", "T.", execute=lambda args: None, parameters=[ToolParameter("a", "str", True)])


def _twice() -> Any:
    twice = [ToolParameter("a", "string", True), ToolParameter("a", "string", True)]
    return Tool("t", "T.", execute=lambda args: None, parameters=twice)


def _no_arguments() -> Any:
    return Tool("t", "T.", execute=lambda: None)


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (_bad_name, "'<lambda>' is not a tool name: give name="),
        (_long_name, "is not a tool name"),
        (_method, "is a method; make a tool of the bound one"),
        (_generator, "yields; a tool returns one value"),
        (_star, r"`\*items: 'int'` cannot be filled"),
        (_position, "cannot be filled; declare it as an ordinary parameter"),
        (_unknown_type, "no JSON form is known for the type of `thing`"),
        (_hidden_type, "the type of `price` cannot be found"),
        (_foreign_constraint, "use msgspec.Meta"),
        (_time_out, "timeout=0; it must be more than 0 seconds"),
        (_replay, "replay='often'; use one of"),
        (_both, "both input_model and parameters"),
        (_no_model, "input_model must be a pydantic model class"),
        (_type_name, "'a' has the type 'str'; use one of string, integer"),
        (_twice, "'a' is declared twice"),
        (_no_arguments, r"execute must take \(args, context\) or \(args\)"),
    ],
)
def test_a_declaration_that_cannot_work_says_what_to_change(declare: Callable[[], Any], text: str) -> None:
    """S5: at once, not at the first call."""
    with pytest.raises(ConfigError, match=text):
        declare()
