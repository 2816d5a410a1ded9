"""OpenAPI 3.1 description of the API, generated from the table of routes and the types of their responses."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

import holdfast
from holdfast.web.response_types import Error
from holdfast.web.routes import Media, Needs, Route, Routes

__all__ = ["described", "openapi_routes"]

_NAME = re.compile(r"\{(\w+)\}")
_STATUSES = {
    200: "Success.",
    201: "Created.",
    202: "Accepted.",
    204: "Success, without content.",
    304: "Not modified.",
    503: "A check failed.",
}
_ERRORS = {
    "BadRequest": "The request is not valid: a parameter or a field is missing, unknown or has a wrong value.",
    "Unauthenticated": "Authentication failed.",
    "UnauthenticatedOrForbidden": "Authentication failed, or the user lacks a tag or a permission.",
    "NotFound": "The object does not exist.",
    "OtherError": "Any other error, such as 409, 413, 500 or 503.",
}
"""Responses with the common form of errors, by their names in the document."""
_FORBIDDEN = {
    Needs.USER: "The user lacks a permission on the object.",
    Needs.LOGIN: "The user lacks a permission on the object, or has none of the tags management, policymaker, "
    "monitoring and administrator.",
    Needs.MONITORING: "The user lacks the tag monitoring or administrator.",
    Needs.ADMINISTRATOR: "The user lacks the tag administrator.",
    Needs.OPERATOR: "The user lacks the tag administrator, or is the default user with its default password.",
}


def described(parts: list[Routes]) -> dict[str, Any]:
    """Return the whole document."""
    routes = [route for part in parts for route in part.all]
    types = [one for route in routes for one in route.answers.values() if one is not None and type(one) is not Media]
    schemas, components = msgspec.json.schema_components([Error, *types], ref_template="#/components/schemas/{name}")
    error, *answers = schemas
    following = iter(answers)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, following, error)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": holdfast.__version__,
            "description": "A durable message queue. Paths under /api/holdfast are its own; the others under /api "
            "are those of RabbitMQ's management API.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(part.tag for part in parts if part.all)],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
            "responses": {name: _error(says, error) for name, says in _ERRORS.items()},
            "schemas": components,
        },
    }


def _operation(route: Route, schemas: Iterator[dict[str, Any]], error: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(route.template)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": says, "schema": {"type": "string"}}
        for name, says in route.query.items()
    ]
    words = [part.strip("{}") for part in route.parts if part] or ["page"]
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.says,
        "tags": [route.tag],
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(status, answer, schemas) for status, answer in route.answers.items()},
            **_errors(route, error),
        },
    }
    if route.needs is not Needs.NOTHING:
        operation["security"] = [{"basic": []}, {"token": []}]
    if isinstance(route.takes, Media):
        binary = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"content": dict.fromkeys(route.takes.types, binary)}
    elif route.takes is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": dict(route.takes)}}}
    return operation


def _answer(status: int, answer: Any, schemas: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Return a response of a route; the next of the schemas is that of its content."""
    described: dict[str, Any] = {"description": _STATUSES[status]}
    if isinstance(answer, Media):
        described["content"] = {one: {"schema": {"type": "string"}} for one in answer.types}
    elif answer is not None:
        described["content"] = {"application/json": {"schema": next(schemas)}}
    return described


def _errors(route: Route, error: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"400": _common("BadRequest"), "404": _common("NotFound"), "default": _common("OtherError")}
    if route.needs is not Needs.NOTHING:
        if route.is_rabbitmqs:
            found["401"] = _common("UnauthenticatedOrForbidden")
        else:
            found |= {"401": _common("Unauthenticated"), "403": _error(_FORBIDDEN[route.needs], error)}
    return dict(sorted(found.items()))


def _common(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{name}"}


def _error(says: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": says, "content": {"application/json": {"schema": schema}}}


def openapi_routes(parts: list[Routes]) -> Routes:
    """Return the route that serves the document about all other routes."""
    routes = Routes("about")
    document: dict[str, Any] = {}

    @routes.get("/api/openapi.json", needs=Needs.NOTHING, says="Show this OpenAPI description.")
    def openapi(call: object) -> dict[str, Any]:
        if not document:
            document.update(described([*parts, routes]))
        return document

    return routes
