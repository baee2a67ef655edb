"""Time on air against published values, and properties of the formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from links.airtime import LoraModulation
from links.profiles import LINK_PROFILES, meshtastic_packet

SEMTECH = [
    # As Semtech's "SX1261 LoRa Calculator" shows them: spreading factor, kHz, coding rate; preamble, bytes,
    # explicit header, checksum; milliseconds. Taken down in the tests of MicroPython's LoRa driver.
    ((12, 500, 5), (8, 1, True, True), 206.848),
    ((12, 500, 5), (12, 64, True, True), 649.216),
    ((12, 500, 5), (8, 1, True, False), 165.888),
    ((12, 500, 5), (8, 192, True, True), 1476.608),
    ((12, 500, 5), (12, 16, False, False), 280.576),
    ((8, 125, 6), (8, 1, True, True), 53.760),
    ((8, 125, 6), (8, 3, True, True), 66.048),
    ((8, 125, 6), (8, 3, True, False), 53.760),
    ((8, 125, 6), (8, 253, True, True), 827.904),
    ((8, 125, 6), (12, 10, False, True), 86.528),
    ((8, 125, 6), (12, 253, False, True), 823.808),
    ((12, 7.81, 8), (128, 253, True, True), 287532.907),
    ((12, 7.81, 8), (1000, 253, True, True), 744858.387),
    ((11, 10.42, 7), (25, 16, True, True), 12824.568),
    ((11, 10.42, 7), (25, 16, False, False), 11448.752),
]

SHEET = [
    # The calculator of the LoRaWAN community's spreadsheet on AN1200.13.
    ((9, 125, 5), (8, 13, True, True), 164.864),
]


@pytest.mark.parametrize(("radio", "packet", "milliseconds"), SEMTECH + SHEET)
def test_published_values(
    radio: tuple[int, float, int], packet: tuple[int, int, bool, bool], milliseconds: float
) -> None:
    spreading, khz, coding = radio
    preamble, size, header, crc = packet
    modulation = LoraModulation(spreading, khz * 1e3, coding, preamble, crc, header)
    assert modulation.airtime(size) * 1e3 == pytest.approx(milliseconds, rel=1e-5)


@pytest.mark.parametrize(("size", "seconds"), [(20, 0.56), (35, 0.68), (200, 1.91)])
def test_meshtastic_long_fast(size: int, seconds: float) -> None:
    assert LINK_PROFILES["meshtastic-longfast"].cost(size).airtime == pytest.approx(seconds, abs=0.005)
    assert meshtastic_packet(20) == 16 + 3 + 2 + 20 + 2, "header, port, payload, bit field"
    assert meshtastic_packet(231) == meshtastic_packet(219, 12) == 255
    assert (meshtastic_packet(165, 66), meshtastic_packet(166, 66)) == (255, 190), (
        "signed where there is room"
    )


@pytest.mark.parametrize(("spreading", "seconds"), [(10, 0.698), (11, 1.561), (12, 2.793)])
def test_lorawan_largest_frame(spreading: int, seconds: float) -> None:
    assert LINK_PROFILES[f"lorawan-sf{spreading}"].cost(51).airtime == pytest.approx(seconds, abs=0.001)


@given(
    st.integers(7, 12), st.sampled_from([62.5e3, 125e3, 250e3, 500e3]), st.integers(5, 8), st.integers(0, 254)
)
def test_more_bytes_never_take_less(spreading: int, bandwidth: float, coding: int, size: int) -> None:
    modulation = LoraModulation(spreading, bandwidth, coding)
    assert modulation.airtime(size) <= modulation.airtime(size + 1)
    if spreading < 12:
        assert modulation.airtime(size) < LoraModulation(spreading + 1, bandwidth, coding).airtime(size)
    # The payload's bits take at least their share of the symbols' bits at this coding rate.
    assert modulation.symbols(size) * spreading * 4 / coding >= 8 * size
