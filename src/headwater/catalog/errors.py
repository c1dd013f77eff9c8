"""Errors as Iceberg's REST API spells them: a status, a type that clients turn into an exception, and a sentence."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError as InvalidModel
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ValidationError,
)
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException

from headwater.catalog.ledger import NoSuchLoadError
from headwater.catalog.locations import ForbiddenLocationError
from headwater.catalog.metadata_files import MissingFileError
from headwater.catalog.namespaces import UnprocessableError

_KNOWN: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchViewError, 404, "NoSuchViewException"),
    (NoSuchLoadError, 404, "NoSuchLoadException"),
    (MissingFileError, 404, "NotFoundException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (OperationalError, 503, "ServiceUnavailableException"),
    (NotImplementedError, 406, "UnsupportedOperationException"),
    (ForbiddenLocationError, 403, "ForbiddenException"),
    (UnprocessableError, 422, "UnprocessableEntityException"),
    (DataError, 400, "BadRequestException"),
    (InvalidModel, 400, "BadRequestException"),
    (ValidationError, 400, "BadRequestException"),
    (ValueError, 400, "BadRequestException"),
)
"""The first that fits. An exception that is not here is a mistake of ours, and the state of a commit is unknown."""


_MOST_TOLD: Final = 3


def error_answer(status: int, kind: str, message: str) -> JSONResponse:
    """An answer in Iceberg's form."""
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status_code=status)


def answer_for(error: Exception) -> JSONResponse:
    """The answer that tells a client of an error."""
    for known, status, kind in _KNOWN:
        if isinstance(error, known):
            return error_answer(status, kind, _words(error))
    return error_answer(500, "InternalServerError", f"{type(error).__name__}: {error}")


def _words(error: Exception) -> str:
    if isinstance(error, OperationalError):
        return f"the catalog's database does not answer as it should: {error.orig}".strip()
    if isinstance(error, DataError):
        # Its own words quote the statement with all that the request said.
        return f"the catalog's database does not take what the request says: {error.orig}".strip()
    if isinstance(error, InvalidModel):
        return _problems(error.errors(include_url=False, include_context=False, include_input=False))
    return str(error)


def _problems(found: Sequence[Any]) -> str:
    return "; ".join(_problem(problem) for problem in found[:_MOST_TOLD])


def _problem(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    words = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place}: {words}" if place else words


def answer_errors(app: FastAPI) -> None:
    """Makes an app answer all its errors in this form."""

    async def answer(_request: Request, error: Exception) -> Response:
        return answer_for(error)

    for known, _, _ in _KNOWN:
        app.add_exception_handler(known, answer)
    app.add_exception_handler(Exception, answer)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path}"
        if error.status_code in (404, 405):
            return error_answer(
                error.status_code, "UnsupportedOperationException", f"this catalog does not serve {what}"
            )
        return error_answer(error.status_code, "BadRequestException", f"{what}: {error.detail}")

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> Response:
        return error_answer(400, "BadRequestException", f"malformed request: {_problems(error.errors())}")
