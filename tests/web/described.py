"""Check of responses against the OpenAPI description: every response that a test gets has a described form."""

import functools
import json
from email.message import Message
from typing import Any

from openapi_schema_validator import OAS31Validator

from holdfast.web.openapi import described, openapi_routes
from holdfast.web.routes import Media, Table, segments_of
from holdfast.web.web_server import ROUTES

__all__ = ["check_described"]

_CHECKED_MAX = 1 << 18
"""Bytes: checking a longer body takes too long."""
_TABLE = Table([*ROUTES, openapi_routes(ROUTES)])


@functools.cache
def _document() -> dict[str, Any]:
    """Return the description, changed so that no object may have fields that are not described."""

    def strict(one: Any) -> Any:
        if isinstance(one, list):
            return [strict(each) for each in one]
        if not isinstance(one, dict):
            return one
        copy = {name: strict(each) for name, each in one.items()}
        return {"additionalProperties": False, **copy} if one.get("type") == "object" and "properties" in one else copy

    document: dict[str, Any] = strict(described([*ROUTES, openapi_routes(ROUTES)]))
    return document


@functools.cache
def _validator(template: str, method: str, status: str) -> Any:
    document = _document()
    found = document["paths"][template][method]["responses"][status]
    if "$ref" in found:
        found = document["components"]["responses"][found["$ref"].rpartition("/")[2]]
    schema = found["content"]["application/json"]["schema"]
    return OAS31Validator({**schema, "components": document["components"]})


def check_described(method: str, path: str, status: int, headers: Message, body: bytes) -> None:
    """Fail unless the response has the status, the media type and the fields that the description names."""
    route, _, _ = _TABLE.find(method, segments_of(path.encode()))
    if route is None or len(body) > _CHECKED_MAX:
        return
    media = headers.get_content_type()
    where = f"{method} {route.template} with status {status}"
    if status in route.answers:
        answer = route.answers[status]
        if answer is None:
            assert not body, f"{where} has content, and the description does not"
            return
        if isinstance(answer, Media):
            assert media in answer.types, f"{where} has the media type {media}, and the description {answer.types}"
            return
        key = str(status)
    else:
        assert status >= 400, f"{where} is not described"
        responses = _document()["paths"][route.template][method.lower()]["responses"]
        key = str(status) if str(status) in responses else "default"
    assert media == "application/json", f"{where} has the media type {media}"
    wrong = next(_validator(route.template, method.lower(), key).iter_errors(json.loads(body)), None)
    assert wrong is None, f"{where} is not as described, at {list(wrong.absolute_path)}: {wrong.message[:500]}"
