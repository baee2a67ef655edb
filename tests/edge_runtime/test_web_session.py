"""Sessions saved by Python continue in TypeScript, and the other way round."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import BUNDLES
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession

RUNTIME = Path(__file__).resolve().parents[2] / "web" / "edge-runtime"
BUNDLE = BUNDLES / "testbed-qwen"
FIRST, SECOND = "What does the word choir mean?", "And a frost?"
SCRIPT = """
import { readFileSync, writeFileSync } from "node:fs";
import { EdgeModel, EdgeSession } from "inversespec-edge-runtime";

const [bundle, theirs, ours, first, second] = process.argv.slice(1);
const edge = await EdgeModel.open(bundle, { variant: "fp32", threads: 1 });
const answered = async (session, question) => {
  const answer = session.ask(question, { maxTokens: 20 });
  const ids = [];
  for await (const token of answer) ids.push(token.id);
  return ids;
};
const loaded = await EdgeSession.load(readFileSync(theirs), edge);
console.log(JSON.stringify({ private: loaded.private, ids: await answered(loaded, second) }));
const session = new EdgeSession(edge, { system: "You explain words." });
await answered(session, first);
session.private = true;
writeFileSync(ours, await session.save());
await edge.close();
"""


@pytest.mark.skipif(
    shutil.which("node") is None or not (RUNTIME / "dist").is_dir(), reason="needs Node.js and make web-page"
)
def test_a_session_goes_on_in_the_other_language(tmp_path: Path) -> None:
    options = FillOptions(max_tokens=20)
    edge = EdgeRuntime.open(BUNDLE, "fp32", threads=1)
    session = EdgeSession(edge, "You explain words.")
    list(session.ask(FIRST, options))
    session.private = True
    session.save(tmp_path / "python")
    wanted = [token.id for token in session.ask(SECOND, options)]
    arguments = [str(BUNDLE), str(tmp_path / "python"), str(tmp_path / "typescript"), FIRST, SECOND]
    command = ["node", "--input-type=module", "--eval", SCRIPT, *arguments]
    done = subprocess.run(command, cwd=RUNTIME, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ids"], found["private"]) == (wanted, True)

    fresh = EdgeRuntime.open(BUNDLE, "fp32", threads=1)
    loaded = EdgeSession.load(tmp_path / "typescript", fresh)
    assert (loaded.messages, loaded.private) == (session.messages[:3], True)
    assert [token.id for token in loaded.ask(SECOND, options)] == wanted
