"""The path of decisions: a form and a text come, the probabilities that the diffusion model reads go back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.serve.batching.backend import Backend, require_ready
from cloud_anchor.serve.batching.forecast import InProgress
from cloud_anchor.serve.errors import ServiceError, overloaded, too_late
from cloud_anchor.serve.http.error_handlers import BINARY
from cloud_anchor.serve.http.openapi import PAYLOAD_ERRORS, error_responses
from cloud_anchor.serve.http.schema import DecisionsRequest
from cloud_anchor.serve.settings import Limits
from edge_runtime.endpoint.presence import while_present
from edge_runtime.errors import FormError
from edge_runtime.form import Form
from payload.decisions import encode_decisions


class FormReader:
    """Reads forms with a pipeline's model, one request after the other, in a thread of its own. forms: that
    requests may name.
    """

    def __init__(self, pipeline: Pipeline, limits: Limits, forms: Mapping[str, Form]) -> None:
        self.pipeline, self._limits, self.forms = pipeline, limits, forms
        self._thread = ThreadPoolExecutor(1, "forms")
        self._asked = InProgress()

    async def read(self, form: Form, text: str, asked: list[int], passes: int) -> Mapping[int, list[float]]:
        """The probabilities of the slots asked for. Raises ServiceError, and RequestError for a long text."""
        if len(self._asked) > self._limits.queue:
            most = f"at most {self._limits.queue} requests that wait"
            raise overloaded(most, "more", self._asked.seconds_left())

        from cloud_anchor.decide import probabilities  # with PyTorch

        work = partial(probabilities, self.pipeline, form, form.question(text), asked, passes)
        try:
            with self._asked.one():
                found = asyncio.get_running_loop().run_in_executor(self._thread, work)
                return await asyncio.wait_for(found, self._limits.deadline)
        except TimeoutError:
            raise too_late(self._limits.deadline) from None


def install_decisions(app: FastAPI, backend: Backend, reader: FormReader | None) -> None:
    """Adds /v1/decisions to an application; None: it says that there is none."""
    payload = {
        "description": "The distributions, as SPEC.md says under Decisions.",
        "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}},
    }

    @app.post(
        "/v1/decisions",
        response_class=Response,
        responses={200: payload, **error_responses(404, *PAYLOAD_ERRORS)},
    )
    async def decisions(request: Request, body: Annotated[DecisionsRequest, Body()]) -> Response:
        """The probabilities of a form's options for a text, read in one pass: nothing is written."""
        require_ready(backend)
        if reader is None or not isinstance(reader.pipeline.model, MaskedModel):
            remedy = "Ask a service of Dream, LLaDA or another model that predicts masked tokens."
            raise ServiceError(404, "no_decisions", "a service that reads forms", "one that does not", remedy)
        try:
            form = reader.forms.get(str(body.form)) or Form.of(body.form)
            asked = sorted(set(range(len(form.slots)) if body.asked is None else body.asked))
            if asked and asked[-1] >= len(form.slots):
                raise FormError(f"asked: expected questions below {len(form.slots)}, found {asked[-1]}")
            found = await while_present(
                request.receive, reader.read(form, body.text, asked, body.passes or 1)
            )
        except FormError as error:
            raise ServiceError(400, "invalid_form", "a form", str(error), "Change the schema.") from None
        except RequestError as error:
            raise ServiceError(413, "prompt_too_long", "a text that fits", str(error), "Cut it.") from None
        return Response(encode_decisions(form.identity, body.text, form.sizes, found), media_type=BINARY)
