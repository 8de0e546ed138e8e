"""What the log says of parameters that change nothing."""

import pytest

from lmi_backend.clients.parameters import DroppedParameters


def test_a_parameter_of_lmi_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    dropped = DroppedParameters()
    dropped.note([f"n{number}" for number in range(1000)])
    caplog.clear()
    for _ in range(3):
        dropped.note(("beam_width", "typical_p"))
    assert caplog.messages == [
        "parameter 'beam_width' of a body changes nothing here (logged once)",
        "parameter 'typical_p' of a body changes nothing here (logged once)",
    ]


def test_the_first_unknown_names_are_said(caplog: pytest.LogCaptureFixture) -> None:
    dropped = DroppedParameters()
    for _ in range(2):
        dropped.note([f"n{number}" for number in range(8)])
    assert len(caplog.messages) == 8
    assert "parameter 'n0' of a body is unknown and changes nothing" in caplog.messages[0]
    for number in range(1000):
        dropped.note([f"m{number}"])
    assert len(caplog.messages) == 9
    assert caplog.messages[-1].startswith("more unknown parameters")


def test_an_unknown_name_is_cut_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    DroppedParameters().note(["a\n" + "x" * 1000])
    (message,) = caplog.messages
    assert "'a\\nxxxx" in message
    assert len(message) < 150
