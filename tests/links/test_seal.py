"""Seals: what is taken, what is not, that no counter is used twice; and an exchange under them."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import resource
import shutil
import sqlite3
import stat
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.errors import LinkError, UsageError
from links import LINK_PROFILES, Datagram
from links.exchange import QuestionExchange, RetryBudget
from links.seal import SEAL_BYTES, WINDOW, Seal, SealedLink, main, make_pair, nearest
from tests.links.emulation import Emulation
from tests.links.test_exchange import ANSWER, ID, QUESTION, SETS, read


@pytest.fixture(params=[False, True], ids=["tags", "encrypted"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Seal, Seal]:
    if request.param:
        pytest.importorskip("cryptography", reason="the extra sealed is not installed")
    device, gateway = make_pair(tmp_path / "one", encrypted=request.param)
    return Seal(device), Seal(gateway)


def state(seal: Seal, **values: int | str) -> sqlite3.Row:
    """The row of a seal's file, after these values were put into it."""
    with sqlite3.connect(seal.path) as connection:
        for name, value in values.items():
            connection.execute(f"UPDATE seal SET {name} = ?", (value,))
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM seal").fetchone()
    connection.close()
    return row  # type: ignore[no-any-return]


def test_frames_come_out_as_they_went_in(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    for frame in (b"a question", b"\0", bytes(225)):
        sealed = device.seal(frame)
        assert len(sealed) == len(frame) + SEAL_BYTES
        assert gateway.open(sealed) == frame
        assert device.open(gateway.seal(frame)) == frame
    assert (frame in sealed) == (not device.encrypted)


def test_a_frame_is_taken_once_and_not_by_its_sender(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    sealed = device.seal(b"a question")
    assert device.open(sealed) is None
    assert gateway.open(sealed) == b"a question"
    assert gateway.open(sealed) is None
    assert Seal(gateway.path).open(sealed) is None  # nor after a restart


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The databases of seals that are opened from now on."""
    opened: list[object] = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: opened.append(args) or connect(*args, **options)
    )
    return opened


def test_a_forged_frame_does_not_open_the_file(
    pair: tuple[Seal, Seal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, gateway = pair
    sealed = device.seal(b"a question")
    assert gateway.open(device.seal(b"before")) == b"before"
    gateway.open(b"\0\3 whatever it is")
    opened = opened_files(monkeypatch)
    for number in range(50):
        assert gateway.open(number.to_bytes(2, "big") + b"a question and a tag") is None
    assert not opened
    assert gateway.open(sealed) == b"a question"
    assert opened


def test_many_keys_cost_a_forged_frame_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seals = [Seal(make_pair(tmp_path / str(number))[1]) for number in range(20)]
    link = SealedLink(Emulation(LINK_PROFILES["sms"]).gateway, seals)
    link.opened(Datagram(b"\0\1 anything at all", "stranger"))
    opened = opened_files(monkeypatch)
    for _ in range(20):
        assert link.opened(Datagram(b"\0\1 anything at all", "stranger")) is None
    assert not opened
    assert link.dropped == 21


def test_another_process_may_have_moved_the_counters(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    assert gateway.open(device.seal(b"first")) == b"first"
    state(device, sent=200_000)
    state(gateway, highest=199_990)
    assert gateway.open(device.seal(b"second")) == b"second"


def test_no_bit_of_a_sealed_frame_can_change(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    sealed = device.seal(b"a question")
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert gateway.open(bytes(damaged)) is None
    assert all(gateway.open(sealed[:size]) is None for size in range(len(sealed)))
    assert gateway.open(sealed) == b"a question"


def test_another_pairs_frames_are_not_taken(pair: tuple[Seal, Seal], tmp_path: Path) -> None:
    other = Seal(make_pair(tmp_path / "two", encrypted=pair[0].encrypted)[0])
    assert pair[1].open(other.seal(b"a question")) is None


# Few examples: every frame is a write to the disk that is waited for.
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), reach=st.integers(1, WINDOW - 1))
def test_frames_in_any_order_within_the_window_are_taken_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, reach: int
) -> None:
    device, gateway = map(Seal, make_pair(tmp_path_factory.mktemp("seal") / "one"))
    state(device, sent=65_520)  # the counter's low bits turn over on the way
    state(gateway, highest=65_520)
    frames = [b"%d" % number for number in range(30)]
    sealed = list(map(device.seal, frames))
    rng = random.Random(seed)
    order = sorted(range(30), key=lambda number: number + rng.uniform(0, reach))
    assert [gateway.open(sealed[number]) for number in order] == [frames[number] for number in order]
    assert all(gateway.open(each) is None for each in sealed)
    assert state(gateway)["highest"] == 65_550


def test_what_is_older_than_the_window_is_not_taken(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    sealed = [device.seal(b"%d" % number) for number in range(WINDOW + 1)]
    assert gateway.open(sealed[-1]) is not None
    assert gateway.open(sealed[0]) is None
    assert gateway.open(sealed[1]) == b"1"


def test_counters_are_never_used_twice(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    found: list[bytes] = []

    def work() -> None:
        own = Seal(device.path)  # as another process would
        found.extend(own.seal(b"x") for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each[:2] for each in found}) == 80
    assert state(device)["sent"] == 80
    assert all(gateway.open(each) for each in sorted(found))


@given(st.integers(0, 1 << 40), st.integers(-32_768, 32_767))
def test_the_counter_is_completed(highest: int, ahead: int) -> None:
    counter = highest + ahead
    if counter >= 0:
        assert nearest(counter % 65_536, highest) in (counter, counter + 65_536 * (ahead == -32_768))


def test_a_tag_is_the_documented_one(tmp_path: Path) -> None:
    device = Seal(make_pair(tmp_path / "one")[0])
    key = hmac.digest(
        state(device)["key"], b"inverse speculation, seal 1, tags of the device", hashlib.sha256
    )
    tag = hmac.digest(key, (1).to_bytes(8, "big") + b"a question", hashlib.sha256)[:4]
    assert device.seal(b"a question") == b"\0\1" + b"a question" + tag


def test_a_ciphertext_is_the_documented_one(tmp_path: Path) -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    device = Seal(make_pair(tmp_path / "one", encrypted=True)[0])
    text = b"inverse speculation, seal 1, encryption of the device"
    key = hmac.digest(state(device)["key"], text, hashlib.sha256)
    state(device, sent=65_535)
    expected = ciphers.AESCCM(key, 4).encrypt((65_536).to_bytes(13, "big"), b"a question", None)
    assert device.seal(b"a question") == b"\0\0" + expected


def test_without_the_library_an_encrypted_seal_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_pair(tmp_path / "one", encrypted=True)[0]
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UsageError):
        Seal(path)


def test_files_are_the_owners_and_are_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "buoy")]) == 0
    device, gateway = map(Path, capsys.readouterr().out.split())
    assert (device.name, gateway.name) == ("buoy.device.seal", "buoy.gateway.seal")
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in (device, gateway)} == {0o600}
    before = device.read_bytes()
    assert main([str(tmp_path / "buoy")]) == 2
    assert device.read_bytes() == before
    with pytest.raises(LinkError):
        Seal(tmp_path / "none")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(LinkError):
        Seal(tmp_path / "text")
    with pytest.raises(UsageError):
        SealedLink(Emulation(LINK_PROFILES["sms"]).device(), [Seal(gateway)])


def test_an_exchange_under_seals(pair: tuple[Seal, Seal], tmp_path: Path) -> None:
    others = make_pair(tmp_path / "other", encrypted=pair[0].encrypted)
    emulation = Emulation(LINK_PROFILES["sms"], loss=0.1, duplicates=0.2, reordering=0.2, seed=3)
    gateway = SealedLink(emulation.gateway, [Seal(others[1]), pair[1]])
    asked: list[bytes] = []

    def arrived(datagram: Datagram) -> None:
        found = gateway.opened(datagram)
        if found is not None:
            asked.append(found.data)
            for frame in ANSWER:
                gateway.send(frame, found.peer)

    emulation.gateway.listen(arrived)
    plain = emulation.device()
    device = SealedLink(plain, [pair[0]])
    assert (device.largest, device.largest_received) == (134, 134)
    assert device.cost(20) == plain.cost(26)
    stranger = emulation.device("stranger")
    stranger.send(QUESTION)
    exchange = QuestionExchange(device, QUESTION, ID, read, RetryBudget(attempts=30), random.Random(1))
    assert [anchors.by_position for anchors in exchange.anchors()] == list(SETS)
    assert set(asked) == {QUESTION}
    assert gateway.dropped > 0
    with pytest.raises(LinkError):
        gateway.send(b"x", "stranger")


def test_a_full_disk_costs_frames_and_not_the_link(pair: tuple[Seal, Seal]) -> None:
    device, gateway = pair
    emulation = Emulation(LINK_PROFILES["udp"])
    link = SealedLink(emulation.gateway, [gateway])
    frames = [device.seal(b"%d" % number) for number in range(2)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        found = link.opened(Datagram(frames[0], "device"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (found, link.dropped) == (None, 1)
    for number, frame in enumerate(frames):  # the first as well: it was not counted
        assert link.opened(Datagram(frame, "device")) == Datagram(b"%d" % number, "device")


def test_a_copied_file_is_a_state_of_its_own_and_its_replay_is_refused(
    pair: tuple[Seal, Seal], tmp_path: Path
) -> None:
    device, gateway = pair
    shutil.copy(device.path, tmp_path / "backup")
    assert gateway.open(device.seal(b"first")) == b"first"
    assert gateway.open(Seal(tmp_path / "backup").seal(b"second")) is None  # the same counter
