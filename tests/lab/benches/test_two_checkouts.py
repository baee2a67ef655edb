"""Two commits in one run: each in its own files, and what counts as slower."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from common.errors import InputError
from lab.benches.two_checkouts import PAYLOADS, ROOT, checkouts, compared, main


def test_payloads_are_measured_by_names_that_every_checkout_has() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAYLOADS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert [name for name in found if "8 anchors" in name] == [
        "payload of 8 anchors, bytes",
        "encode 8 anchors, us",
        "decode 8 anchors, us",
    ]
    assert found["payload of 8 anchors, bytes"] < found["payload of 512 anchors, bytes"] < 512 * 4


def test_slower_is_more_than_the_rounds_differ_and_counted_the_right_way_round() -> None:
    quick, slow = (
        {"decode, us": 10.0, "capacity, answers/s": 9.0},
        {"decode, us": 12.0, "capacity, answers/s": 7.0},
    )
    assert [row["slower"] for row in compared([(quick, slow)] * 3)] == [True, True]
    assert [row["slower"] for row in compared([(slow, quick)] * 3)] == [False, False]
    assert [row["slower"] for row in compared([(quick, slow), (slow, quick)])] == [False, False]


def test_a_commit_s_files_are_in_a_folder_of_their_own() -> None:
    with checkouts(["HEAD"]) as (place,):
        assert (place / "payload" / "SPEC.md").is_file()
    with (
        pytest.raises(InputError, match="expected a commit, found 'no-such-commit'"),
        checkouts(["no-such-commit"]),
    ):
        pass
    assert main(["no-such-commit", "--rounds", "1"]) == 2
