"""Forms: what a schema asks, and that every answer is valid under it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import FormError
from edge_runtime.form import MAX_OPTIONS, Form
from tests.vectors.make_decision_vectors import OUTPUT, vectors

jsonschema = pytest.importorskip("jsonschema")
TRIAGE = Path("edge_runtime/triage.json")

scalars = st.one_of(st.booleans(), st.integers(-9, 9), st.text(max_size=5), st.none())
properties = st.one_of(
    st.just({"type": "boolean"}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-5, 5),
        st.integers(-1, 70),
    ),
    st.builds(lambda values: {"enum": values}, st.lists(scalars, max_size=5)),
    st.builds(lambda values: {"type": "array", "items": {"enum": values}}, st.lists(scalars, max_size=4)),
    st.just({"type": "string"}),
    st.dictionaries(st.sampled_from(["type", "enum", "minimum", "items", "format"]), scalars, max_size=3),
)
schemas = st.builds(
    lambda found: {"type": "object", "properties": found},
    st.dictionaries(st.text(max_size=6), properties, max_size=5),
)


@settings(max_examples=1000)
@given(schemas, st.randoms(use_true_random=False))
def test_a_schema_is_refused_in_a_line_or_every_answer_is_valid(schema: dict[str, Any], random: Any) -> None:
    try:
        form = Form.of(schema)
    except FormError as refused:
        one_line = "\n" not in str(refused)
        assert one_line
        return
    value = form.value([random.randrange(len(slot.options)) for slot in form.slots])
    jsonschema.validate(value, schema)
    assert form.identity == Form.of(json.dumps(schema)).identity
    assert len(form.question("text")) < 20_000


def test_the_text_of_a_form_is_the_object_that_json_writes() -> None:
    form = Form.of(TRIAGE)
    first = [
        text
        for text, slot in zip(form.literals, form.slots, strict=False)
        for text in (text, slot.options[0])
    ]
    written = json.loads("".join([*first, form.literals[-1]]))
    members = written.pop("about")
    value = form.value([0] * len(form.slots))
    assert value == written | {"about": list(members)}
    assert all(members.values())


class Team(Enum):
    SALES = "sales"
    REPAIRS = "repairs"


@dataclass
class Ticket:
    urgent: bool
    team: Team
    stars: Literal[1, 2, 3]
    about: set[Literal["money", "outage"]]


def test_a_dataclass_and_a_model_give_the_form_of_their_schema() -> None:
    wanted = {
        "urgent": {"type": "boolean"},
        "team": {"enum": ["sales", "repairs"]},
        "stars": {"enum": [1, 2, 3]},
        "about": {"type": "array", "items": {"enum": ["money", "outage"]}},
    }
    expected = Form.of({"type": "object", "properties": wanted})
    assert Form.of(Ticket).identity == expected.identity
    pydantic = pytest.importorskip("pydantic")
    fields = {"urgent": (bool, ...), "team": (Team, ...), "stars": (Literal[1, 2, 3], ...)}
    fields |= {"about": (set[Literal["money", "outage"]], ...)}
    model = pydantic.create_model("Ticket", **fields)
    assert [slot.options for slot in Form.of(model).slots] == [slot.options for slot in expected.slots]


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"properties": {"a": {"type": "string"}}},
        {"properties": {"a": {"enum": ["x"]}}},
        {"properties": {"a": {"enum": ["x", "x"]}}},
        {"properties": {"a": {"enum": [float("nan"), 1]}}},
        {"properties": {"a": {"type": "integer", "minimum": 0, "maximum": MAX_OPTIONS}}},
        {"properties": {"a": {"type": "boolean", "minLength": 3}}},
        {"properties": {f"a{n}": {"type": "boolean"} for n in range(65)}},
        {"properties": {"a": {"enum": ["x" * 5000, "y"]}}},
    ],
)
def test_what_is_no_form_is_refused(schema: Any) -> None:
    with pytest.raises(FormError):
        Form.of(schema)


def test_the_vectors_are_what_is_written() -> None:
    stored = json.loads(OUTPUT.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(vectors())) == stored
    for refused in stored["refused"]:
        with pytest.raises(FormError):
            Form.of(refused)
