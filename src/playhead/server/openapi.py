"""The OpenAPI document, made from the route table and the wire types."""

import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from playhead.server.errors import CODES
from playhead.server.routes import Endpoint
from playhead.server.wire import ErrorBody

_REF = "#/components/schemas/{name}"
_ALWAYS = (403, 421, 500)
# Beside them, where it matters who asks.
_GUARDED = (401, 429)
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The access token, if there is one."}
}
_STREAM = (
    "Server-sent events: `event` is the type, `data` one line of JSON, comments keep the connection open."
    " Each `data` is an object of {types}."
)


def openapi(endpoints: Sequence[Endpoint], *, version: str, server: str = "/") -> dict[str, Any]:
    """Return the document. `server` is the address under which the app is mounted."""
    types = [t for e in endpoints for t in (e.body, e.reply, e.events) if t is not None]
    unique = {repr(t): t for t in [ErrorBody, *types]}
    schemas, components = msgspec.json.schema_components(unique.values(), ref_template=_REF)
    by_type = dict(zip(unique, schemas, strict=True))
    components["ErrorBody"]["properties"]["code"]["enum"] = sorted(CODES)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Playhead",
            "version": version,
            "description": "An agent session shell: threads, runs and media over HTTP.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
        "security": [{"bearer": []}, {}],
    }


def _operation(endpoint: Endpoint, schemas: Mapping[str, Any]) -> dict[str, Any]:
    summary, _, text = inspect.cleandoc(endpoint.handler.__doc__ or "").partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": summary.rstrip("."),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ],
        "responses": _responses(endpoint, schemas),
    }
    operation["parameters"] += [
        {"name": name, "in": "query", "description": what, "schema": {"type": "string"}}
        for name, what in endpoint.query
    ]
    if text:
        operation["description"] = text
    if endpoint.open:
        operation["security"] = []
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas[repr(endpoint.body)])}
    elif endpoint.upload:
        operation["requestBody"] = {"required": True, "content": {kind: {} for kind in endpoint.upload}}
    return operation


def _responses(endpoint: Endpoint, schemas: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    content: dict[str, Any] = {kind: {} for kind in endpoint.download}
    if endpoint.reply is not None:
        content |= _json(schemas[repr(endpoint.reply)])
    if endpoint.events is not None:
        stream = {"text/event-stream": {"schema": _stream_schema(schemas[repr(endpoint.events)])}}
        if endpoint.reply is None or endpoint.status == 200:
            content |= stream
        else:
            responses["200"] = {"description": "The events of the run.", "content": stream}
    answer: dict[str, Any] = {"description": HTTPStatus(endpoint.status).phrase}
    if content:
        answer["content"] = content
    responses[str(endpoint.status)] = answer
    for status in sorted({*endpoint.errors, *_ALWAYS, *(() if endpoint.open else _GUARDED)}):
        error = _json({"$ref": _REF.format(name="ErrorBody")})
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": error}
    return responses


def _stream_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    refs = [option["$ref"].rpartition("/")[2] for option in schema.get("anyOf", [schema])]
    # Without a type: some tools hold it against each event, others against the whole text.
    return {"description": _STREAM.format(types=", ".join(refs))}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
