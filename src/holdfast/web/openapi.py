"""OpenAPI 3.1 description of the API, generated from the table of routes."""

import re
from typing import Any

import holdfast
from holdfast.web.routes import Needs, Route, Routes

__all__ = ["described", "openapi_routes"]

_NAME = re.compile(r"\{(\w+)\}")
_ERRORS = {"400": "It cannot be done as asked.", "404": "It is not there."}
_ERROR = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
}


def described(parts: list[Routes]) -> dict[str, Any]:
    """Return the whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for part in parts:
        for route in part.all:
            paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
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
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(route.template)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": says, "schema": {"type": "string"}}
        for name, says in route.query.items()
    ]
    answer = {"application/json": {"schema": dict(route.answer or {})}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_" + "_".join(part.strip("{}") for part in route.parts if part)
        or "page",
        "summary": route.says,
        "tags": [route.tag],
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": answer},
            **{status: {"description": says, "content": error} for status, says in _ERRORS.items()},
        },
    }
    if route.needs is not Needs.NOTHING:
        operation["security"] = [{"basic": []}, {"token": []}]
        operation["responses"]["401"] = {"description": "Nobody we know.", "content": error}
        operation["responses"]["403"] = {"description": f"Needs {route.needs.name.lower()}.", "content": error}
    if route.takes is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": dict(route.takes)}}}
    return operation


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
