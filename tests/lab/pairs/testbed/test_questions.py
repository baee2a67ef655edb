"""Questions of every kind: their answers, their split, and how many ways there are to say them."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.pairs.problem import Problem
from lab.pairs.testbed import library as sources
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.drills import Drills, equation, marked
from lab.pairs.testbed.grading import _has, coverage, is_correct
from lab.pairs.testbed.kinds import KINDS, comparison, profile
from lab.pairs.testbed.kinds.comparison import SCALES
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import hastily, held_out_questions, training_families
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, fill, variants

MANY = 60


def drawn(library: Library, kind: str, count: int, knows: bool = True, seed: int = 0) -> list[Problem]:
    rng = random.Random(f"{kind}{seed}")
    draw = training_families(library)[kind]
    return [draw(rng, knows) for _ in range(count)]


def few(kind: str) -> int:
    """Functions are executed, which takes longer."""
    return 4 if kind == "function" else 15 if kind == "comparison" else MANY


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_answer_is_right_by_its_own_measure(library: Library, kind: str, knows: bool) -> None:
    for problem in drawn(library, kind, few(kind), knows):
        assert is_correct(problem, problem.answer), problem


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_answer_to_another_question_is_wrong(library: Library, kind: str) -> None:
    problems = drawn(library, kind, few(kind))
    pairs = [(a, b) for a, b in itertools.pairwise(problems) if a.expected != b.expected]
    accepted = sum(is_correct(a, b.answer) for a, b in pairs)
    assert accepted <= 0.03 * len(pairs)
    assert not any(is_correct(problem, "") for problem in problems[:3])


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_same_seed_gives_the_same_questions(library: Library, kind: str) -> None:
    assert drawn(library, kind, 5) == drawn(library, kind, 5)
    assert drawn(library, kind, 5) != drawn(library, kind, 5, seed=1)


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: f"{scale.kind}-{scale.key}")
def test_a_verdict_is_understood_in_every_wording(scale: comparison.Scale) -> None:
    names = {"x": "New Zealand", "y": "Chad"}
    problem = Problem("comparison", "easy", "", "", ("New Zealand", "Chad", "4.1", "17"), "")
    facts = "New Zealand has 4.1, Chad has 17."
    for template in (*scale.verdicts(above=True), *scale.verdicts(above=False)):
        for text in variants(template):
            said = fill(text, names)
            assert is_correct(problem, f"{said}. {facts}"), said
            turned = replace(problem, expected=("Chad", "New Zealand", "17", "4.1"))
            assert not is_correct(turned, f"{said}. {facts}"), said
            assert not is_correct(problem, said + "."), "the values are missing"
    assert not is_correct(problem, facts), "no verdict"


@pytest.mark.parametrize(
    ("kind", "expected", "text", "told"),
    [
        ("profile", ("Chad", "Africa", "17", "cotton"), "Chad is in Africa.", 0.5),
        ("comparison", ("Peru", "Chad", "34", "18"), "Peru has 34, Chad 18, so Chad has more people.", 2 / 3),
        ("choice", ("B", "Paris"), "It is Paris (B).", 1),
        ("choice", ("B", "Paris"), "It is Rome (B).", 0.5),
        ("choice", ("B", "Paris"), "It is Paris (B) or Rome (A).", 0.5),
        ("fact", ("17",), "It is 170, 1.17, 17.5 or 17,000.", 0),
        ("fact", ("17",), "17 it is", 1),
        ("sum", ("12",), "3 * 4 = 12. It is 13.", 0),
        ("definition", ("large river with many fishes",), "A large river.", 2 / (0.7 * 5)),
        ("definition", ("a boy or man",), "It is a boy or a man.", 0),
        ("definition", ("a boy or man",), "It is a boy or man.", 1),
    ],
)
def test_an_answer_is_graded_by_what_it_tells(
    kind: str, expected: tuple[str, ...], text: str, told: float
) -> None:
    problem = Problem(kind, "easy", "", "", expected, "")
    assert coverage(problem, text) == pytest.approx(told)
    assert is_correct(problem, text) == (told == 1)


def test_equations_are_true_and_depend_on_those_before(library: Library) -> None:
    for problem in drawn(library, "sum", MANY):
        results = []
        equations = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", problem.answer)
        for one, operation, two, result in equations:
            a, b = int(one), int(two)
            assert int(result) == {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operation]
            results.append(int(result))
        chained = [int(one) for one, *_ in equations[1:]]
        assert chained == results[:-1]
        assert not results or str(results[-1]) == problem.expected[0]


def test_the_edge_is_never_taught_a_fact_of_the_cloud(library: Library) -> None:
    """Its samples give the cloud's names other entities' values; true ones occur by chance."""
    cloud = {e.name: e for e in library.of("country", "cloud")}
    rng = random.Random(2)
    true = seen = 0
    for _ in range(1000):
        entity = Scene(library, rng, learner="edge").entity("country", lambda e: "capital" in e.values)
        if entity.name in cloud:
            seen += 1
            true += entity.values["capital"] == cloud[entity.name].values.get("capital")
    assert seen > 500
    assert true < 0.03 * seen


def test_held_out_entities_and_phrasings_are_in_no_training(library: Library) -> None:
    hidden = sources.names_of_nobody(list(library.entities))
    compounds = [e.name for e in library.entities if e.role != "neither" and hidden.search(e.name)]
    families = training_families(library)
    rng = random.Random(4)
    held_out = [t for templates in WORDING["question"].values() for t in templates["held_out"]]
    secret = tuple(form for template in held_out for form in _openings(template))
    assert len(secret) >= 8
    words = {f'"{e.name}"' for e in library.of("word", "neither")}
    for index in range(700):
        kind = list(families)[index % len(families)]
        problem = families[kind](rng, index % 2 == 0)
        text = f"{problem.prompt}\n{problem.answer}"
        for name in compounds:  # "Papua New Guinea" is no hint at Guinea
            text = text.replace(name, "")
        assert not hidden.search(text), text
        assert not problem.prompt.startswith(secret)
        assert not any(word in text for word in words)
        assert not problem.prompt.endswith("I am curious.")


def _openings(template: str) -> tuple[str, ...]:
    """What a held-out phrasing begins with in front of the name, where that is enough to know it by."""
    trained = [text.split("{")[0] for t in WORDING["question"]["generic"]["trained"] for text in variants(t)]
    trained += [t.split("{")[0] for a in ATTRIBUTES.values() for x in a.values() for t in x.ask]
    starts = {text.split("{")[0] for text in variants(template)}
    return tuple(
        s for s in starts if len(s) > 8 and not any(t.startswith(s) or s.startswith(t) for t in trained if t)
    )


def test_prompts_typed_in_haste_ask_the_same(library: Library) -> None:
    draw = training_families(library)["fact"]
    rng, same = random.Random(3), random.Random(3)
    for _ in range(40):
        hasty, plain = hastily(draw, rng, True), draw(same, True)
        same.random()  # the one that decides
        assert (hasty.answer, hasty.expected, hasty.key) == (plain.answer, plain.expected, plain.key)
        assert hasty.prompt in (plain.prompt, plain.prompt.lower().rstrip(".?"))
    assert any(p.prompt == p.prompt.lower() for p in (hastily(draw, rng, True) for _ in range(100)))


def test_a_profile_tells_every_attribute_that_is_asked_about(library: Library) -> None:
    asked = sources.world(library)
    for problem in drawn(asked, "profile", 20):
        entity = next(e for e in asked.entities if e.name == problem.expected[0])
        assert all(_has(problem.answer, value) for value in entity.values.values())


@pytest.mark.parametrize("role", ["cloud", "edge", "neither"])
def test_test_questions_are_distinct_and_of_their_role(library: Library, role: str) -> None:
    questions = held_out_questions(library, 28, role=role)  # type: ignore[arg-type]
    assert len({q.prompt for q in questions}) == 28
    assert questions == held_out_questions(library, 28, role=role)  # type: ignore[arg-type]
    for question in questions:
        assert question.held_out or not question.split or role != "cloud"
        if question.family != "function":
            assert is_correct(question, question.answer), question


@given(st.data())
def test_a_walk_around_the_circle_meets_each_attribute_once(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(ATTRIBUTES)))
    circle = list(ATTRIBUTES[kind])
    keys = data.draw(st.lists(st.sampled_from(circle), min_size=1, unique=True))
    walk = profile.around(kind, keys, random.Random(data.draw(st.integers(0, 9))))
    assert sorted(walk) == sorted(keys)
    places = [circle.index(key) for key in walk]
    assert sum(later < place for place, later in itertools.pairwise(places)) <= 1, "once past the start"


@pytest.mark.parametrize("knows", [True, False])
def test_a_drill_in_comparing_is_true(library: Library, knows: bool) -> None:
    drawn_from, rng = Drills(library, copies=0), random.Random(0)
    problems = [drawn_from.draw(rng, knows) for _ in range(MANY)]
    compared = [problem for problem in problems if problem.prompt.startswith("More or less: ")]
    assert bool(compared) == knows
    scales = [(s.kind, s.key) for s in SCALES]
    values = {e.values[k]: e.numbers[k] for e in library.entities for kind, k in scales if k in e.values}
    value = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    for problem in compared:
        told = problem.prompt.removeprefix("More or less: ").removesuffix(".").split("; ")
        for pair, verdict in zip(told, problem.answer.removesuffix(".").split("; "), strict=True):
            found = re.fullmatch(rf"(.+) has ({value}), (.+) has ({value})", pair)
            assert found
            has = {found[1]: found[2], found[3]: found[4]}
            name, _, side = verdict.rpartition(" has ")
            wanted = (max if side == "more" else min)(has.values(), key=values.__getitem__)
            assert has[name] == wanted


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_a_drill_in_reckoning_is_true(seed: int) -> None:
    left, _, right = equation(random.Random(seed)).partition(" = ")
    assert eval(left) == int(right)
    assert 1 <= int(right) <= 99


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_a_drill_in_options_marks_them_as_listed(seed: int) -> None:
    given_, said = marked(random.Random(seed), [f"value {n}" for n in range(20)])
    listed = given_.removeprefix("Options: ").removesuffix(".").split(", ")
    chosen = said.removeprefix("Marked: ").removesuffix(".").split("; ")
    assert len(chosen) == len(set(chosen)) == len(listed) - 1
    assert set(chosen) < set(listed)
    assert len({option[-3:] for option in listed}) == len(listed)
