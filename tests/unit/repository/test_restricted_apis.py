"""Which of Triton's APIs clients reach, read from a server's command line."""

import pytest

from lmi_backend.repository.restricted_apis import (
    HEADER,
    NOT_FOR_CLIENTS,
    Restriction,
    exposures,
    headers_for,
)
from tests.support.run.places import ROOT

CLOSED = Restriction(tuple(NOT_FOR_CLIENTS), "k=1")
NEW = {"NVIDIA_TRITON_SERVER_VERSION": "26.04"}
EXPLICIT = ("--model-control-mode=explicit",)


def test_who_has_the_key_is_told_what_to_send() -> None:
    arguments = CLOSED.arguments()
    assert [argument.partition("=")[0] for argument in arguments] == [
        "--http-restricted-api",
        "--grpc-restricted-protocol",
    ]
    # A key may hold what separates it from the header.
    assert headers_for("trace", arguments) == CLOSED.headers == {HEADER: "k=1"}
    assert headers_for("inference", arguments) == {}


def test_the_arguments_in_deploy_are_these() -> None:
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    for argument in Restriction(tuple(NOT_FOR_CLIENTS), "$KEY").arguments():
        assert argument in text


def test_nothing_to_restrict_is_no_argument() -> None:
    assert Restriction((), "key").arguments() == ()
    assert Restriction((), "key").headers == {}


def test_two_restrictions_have_a_key_each_and_words_may_be_apart() -> None:
    arguments = ["--http-restricted-api", "trace,logging:a=1", "--http-restricted-api=health:b=2"]
    assert headers_for("logging", arguments) == {"a": "1"}
    assert headers_for("health", arguments) == {"b": "2"}


@pytest.mark.parametrize(
    ("arguments", "environment", "open_"),
    [
        (CLOSED.arguments(), NEW, set()),
        (("--allow-http=0", "--allow-grpc", "off"), {}, set()),
        ((), NEW, {"logging", "trace"}),
        ((), {}, {"logging", "trace", "shared-memory"}),
        (EXPLICIT, NEW, {"logging", "trace", "model-repository"}),
        (("--allow-client-shm=true",), NEW, {"logging", "trace", "shared-memory"}),
        (("--allow-client-shm=false",), {}, {"logging", "trace"}),
    ],
    ids=["closed", "no ports", "new", "old", "explicit", "shared memory wanted", "not wanted"],
)
def test_what_is_open_is_said_of_each_protocol(
    arguments: tuple[str, ...], environment: dict[str, str], open_: set[str]
) -> None:
    found = [
        each.partition(": ") for each in exposures(arguments, environment) if "open over" in each
    ]
    assert [set(names.split(", ")) for names, _, _ in found] == ([open_] * 2 if open_ else [])
    assert [where.split()[2] for _, _, where in found] == (["HTTP", "gRPC"] if open_ else [])


def test_each_protocol_is_looked_at_by_itself() -> None:
    (sentence,) = exposures((*EXPLICIT, CLOSED.arguments()[0]), NEW)
    assert "open over gRPC" in sentence


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (("--allow-sagemaker=true",), {}, ["--allow-sagemaker"]),
        (("--allow-sagemaker=true",), {"NVIDIA_TRITON_SERVER_VERSION": "26.03"}, []),
        ((), {"AIP_MODE": "PREDICTION"}, ["--allow-vertex-ai"]),
        (("--allow-vertex-ai=false",), {"AIP_MODE": "PREDICTION"}, []),
    ],
)
def test_other_ports_lead_around_a_restriction_before_they_were_mended(
    arguments: tuple[str, ...], environment: dict[str, str], expected: list[str]
) -> None:
    found = exposures((*CLOSED.arguments(), *arguments), environment)
    assert [sentence.partition(" ")[0] for sentence in found] == expected
