"""Duties: no window of their period holds more than they grant, and nothing waits longer than it must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from links.duty import DAY, HOUR, Duty, DutyMeter


def test_airtime_of_an_hour() -> None:
    meter = DutyMeter([Duty(HOUR, airtime=36)])
    assert meter.earliest(0, 20) == 0
    meter.record(0, 20)
    meter.record(100, 16)
    assert meter.earliest(200, 1) == HOUR, "when the first leaves the window"
    assert meter.earliest(200, 21) == HOUR + 100
    assert meter.earliest(HOUR, 20) == HOUR
    assert meter.earliest(0, 50) == HOUR + 100, "more than a window grants waits for an empty one"


def test_frames_a_day_for_each_device() -> None:
    meter = DutyMeter([Duty(DAY, frames=2, down=True)])
    meter.record(0, 1, "a")
    meter.record(10, 1, "a")
    meter.record(20, 1, "b")
    assert meter.earliest(30, 1, "a") == DAY
    assert meter.earliest(30, 1, "b") == 30
    assert str(Duty(DAY, frames=10, down=True)) == "10 frames a day to the device"


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0.1, 5)), max_size=40), st.integers(1, 5))
def test_no_window_holds_more(frames: list[tuple[float, float]], most: int) -> None:
    duty = Duty(100, airtime=10, frames=most)
    meter = DutyMeter([duty])
    sent: list[tuple[float, float]] = []
    now = 0.0
    for pause, airtime in frames:
        now += pause
        start = meter.earliest(now, airtime)
        assert start >= now
        meter.record(start, airtime)
        sent.append((start, airtime))
        now = start
    for end, _ in sent:
        window = [airtime for when, airtime in sent if when <= end < when + duty.period]
        assert len(window) <= most
        assert sum(window) <= 10 * (1 + 1e-6)
    for (before, _), (start, airtime), (pause, _) in zip(sent, sent[1:], frames[1:], strict=False):
        if start > before + pause + 1e-6:  # it waited: a moment sooner there was no room
            window = [spent for when, spent in sent if start - 1e-3 - duty.period < when < start]
            assert len(window) >= most or sum(window) + airtime > 10 * (1 - 1e-6)
