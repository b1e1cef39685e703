"""`/openapi.json` says what is served: no more, no less."""

import re
from typing import Any

import aiohttp
import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from playhead.config import load_settings
from playhead.server import create_app
from playhead.server.errors import CODES
from tests.server.support import HELLO, ask, chat

pytestmark = pytest.mark.anyio


@pytest.fixture
async def document(client: aiohttp.ClientSession) -> Any:
    status, document = await ask(client, "GET", "/openapi.json")
    assert status == 200
    return document


async def test_the_document_is_valid(document: Any) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"


async def test_every_route_is_described_and_nothing_else(document: Any) -> None:
    app = create_app(settings=load_settings({}))
    served = {
        (route.path, method)
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == served


async def test_every_operation_says_what_it_is_for(document: Any) -> None:
    names = []
    for path, methods in document["paths"].items():
        for operation in methods.values():
            names.append(operation["operationId"])
            assert operation["summary"]
            parameters = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert parameters == set(re.findall(r"{(\w+)}", path))
    assert len(set(names)) == len(names)


async def test_the_events_of_a_run_are_described(document: Any) -> None:
    operation = document["paths"]["/api/agent/runs/{run_id}/events"]["get"]
    text = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]["description"]
    for name in ("RunStart", "TextDelta", "ToolProgress", "RunEnd"):
        assert name in text
        assert name in document["components"]["schemas"]


async def test_an_error_is_as_described(document: Any, client: aiohttp.ClientSession) -> None:
    schema = document["components"]["schemas"]["ErrorBody"]
    assert set(schema["properties"]["code"]["enum"]) == set(CODES)
    for body in ({}, HELLO):
        status, answer = await chat(client, body)
        assert set(schema["required"]) <= set(answer) <= set(schema["properties"])
        responses = document["paths"]["/api/agent/chat"]["post"]["responses"]
        assert str(status) in responses
