"""The paths that give a device its bundle: the one that the service was started with, no other file."""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse

from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.error_handlers import BINARY, JSON
from cloud_anchor.serve.http.openapi import COMMON_ERRORS, error_responses
from cloud_anchor.serve.http.schema import BundleAnswer
from edge_runtime.bundle.bundle import MANIFEST, Bundle, FileRecord, file_record

PATH = "/v1/bundle"


def install_bundle(app: FastAPI, bundle: Bundle | None) -> None:
    """Adds /v1/bundle and the paths of its files to an application; None: each says that there is none."""
    records: dict[str, FileRecord] = {}
    if bundle is not None:
        records = {MANIFEST: file_record(bundle.path / MANIFEST), **bundle.manifest.records}

    def missing(found: str) -> ServiceError:
        expected = f"a file of the bundle {bundle.path.name}" if bundle else "a service that gives a bundle"
        remedy = f"See {PATH}." if bundle else "Ask whoever runs the service for it."
        return ServiceError(404, "unknown_file", expected, found, remedy)

    errors = error_responses(401, 404, *COMMON_ERRORS)

    @app.get(PATH, response_model=BundleAnswer, responses=errors)
    async def listing() -> Response:
        """The files of the bundle for this service's devices; each lies at this path and its name."""
        if bundle is None:
            raise missing("one without")
        about = {
            "name": bundle.path.resolve().name,
            "identity": bundle.contract.identity,
            "bytes": sum(record.size for record in records.values()),
            "files": {name: record.to_json() for name, record in records.items()},
        }
        return Response(encode_json(about), media_type=JSON)

    content = {BINARY: {"schema": {"type": "string", "format": "binary"}}}
    whole = {"description": "The file.", "content": content}
    part = {"description": "The part of it that the header Range asks for.", "content": content}

    @app.get(PATH + "/{name:path}", response_class=Response, responses={200: whole, 206: part, **errors})
    async def file(name: str) -> Response:
        """A file of the bundle; with `Range: bytes=N-`, from byte N on."""
        if bundle is None or name not in records:
            raise missing(repr(name[:80]))
        headers = {"ETag": f'"{records[name].sha256}"'}
        return FileResponse(bundle.path / name, media_type=BINARY, headers=headers)
