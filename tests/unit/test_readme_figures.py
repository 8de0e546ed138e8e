"""What README says was measured is in the results that it is said of."""

import json
import statistics

import pytest

from tests.support.places import ROOT

README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def samples(name: str, target: str, at_once: int) -> list[dict[str, float]]:
    """Return each sample of a target, with µs a token of its `engine` and, `cpu`, of the rest."""
    text = (ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8")
    found = []
    for each in json.loads(text)["samples"]:
        if (each["target"], each["concurrency"]) == (target, at_once):
            engine = each["cpu_us_per_token"].pop("engine", 0.0)
            cpu = sum(each["cpu_us_per_token"].values())
            found.append(each | {"engine": engine, "cpu": cpu})
    assert found
    return found


def median(name: str, target: str, at_once: int, what: str) -> float:
    return statistics.median(each[what] for each in samples(name, target, at_once))


PACED, UNPACED = "2026-11-24-paced", "2026-11-24-unpaced"
CHATS, FASTER = "2026-11-25-tokens", "2026-11-24-paced-chat"
QUICK = "2026-11-25-quick"
EMBEDDINGS, ONE_TOKEN = "2026-11-24-embeddings", "2026-11-24-one-token"
OURS, THEIRS = "lmi-backend, chat, each token", "vLLM's server"
EIGHT = ("lmi-backend, chat, 8 tokens", f"{THEIRS}, 8 tokens")


@pytest.mark.parametrize(
    ("words", "name", "target", "at_once", "what"),
    [
        ("each token an event: {} µs of CPU a token", CHATS, OURS, 256, "cpu"),
        ("vLLM's own server {}, with 8", CHATS, THEIRS, 256, "cpu"),
        ("with 8 tokens an event {} and", CHATS, EIGHT[0], 256, "cpu"),
        ("and {}, and the first event comes", CHATS, EIGHT[1], 256, "cpu"),
        ("costs more there: {} µs and", QUICK, OURS, 1, "cpu"),
        (" µs and {}** (of the engine's", QUICK, THEIRS, 1, "cpu"),
        ("the engine's processes {} and", QUICK, OURS, 1, "engine"),
        (" and {}). 256 on faster", QUICK, THEIRS, 1, "engine"),
        ("faster cores, a day before: {} and", FASTER, OURS, 256, "cpu"),
        (" and {}; Triton's `gen", FASTER, THEIRS, 256, "cpu"),
        (
            "`generate_stream` cost {} there",
            *(PACED, "lmi-backend, Triton's form, each token", 256, "cpu"),
        ),
        ("own HTTP port {}**", PACED, "lmi-backend, HTTP, each token", 256, "cpu"),
        ("its vLLM backend {},", PACED, "Triton's vLLM backend", 256, "cpu"),
        ("a model that only sends {})", PACED, "Triton, constant responses", 256, "cpu"),
        ("over gRPC {}.", PACED, "lmi-backend, gRPC, each token", 256, "cpu"),
        ("stream gets {} tokens/s", UNPACED, OURS, 1, "tokens_per_second"),
        ("tokens/s and vLLM's server {}, but", UNPACED, THEIRS, 1, "tokens_per_second"),
        ("for {} µs of CPU a token and", UNPACED, OURS, 1, "cpu"),
        ("of CPU a token and {}** (the", UNPACED, THEIRS, 1, "cpu"),
        ("64 streams get {} and", UNPACED, OURS, 64, "tokens_per_second"),
        ("and {}: its core computes", UNPACED, THEIRS, 64, "tokens_per_second"),
        ("makes {} a second", EMBEDDINGS, "lmi-backend, embeddings", 64, "requests_per_second"),
        (
            "vLLM's server {}, of one-token",
            EMBEDDINGS,
            "vLLM's server, embeddings",
            64,
            "requests_per_second",
        ),
        ("of one-token answers {} and", ONE_TOKEN, OURS, 64, "requests_per_second"),
        (" and {}. - **And keeps most", ONE_TOKEN, THEIRS, 64, "requests_per_second"),
    ],
)
def test_a_figure_is_the_measured_one(
    words: str, name: str, target: str, at_once: int, what: str
) -> None:
    assert words.format(f"{median(name, target, at_once, what):,.0f}") in README


def test_one_streams_first_token_is_the_measured_one() -> None:
    ours, theirs = (
        statistics.median(each["first_ms"]["p50"] for each in samples(UNPACED, target, 1))  # type: ignore[index]
        for target in (OURS, THEIRS)
    )
    assert f"(the first comes after {ours:.0f} ms, there after {theirs:.0f})" in README


def test_what_is_left_of_the_engine() -> None:
    ours, raw = (
        median("2026-11-21", target, 64, "tokens_per_second")
        for target in ("lmi-backend", "raw engine")
    )
    assert f"over gRPC {ours / raw:.0%}".replace("%", " %") in README


def test_what_is_not_plain_costs_as_much_or_less() -> None:
    for asked, share in (("log probabilities", 1), ("tools", 1), ("structure", 0.9)):
        ours = median(PACED, f"lmi-backend, chat with {asked}, each token", 256, "cpu")
        theirs = median(PACED, f"{THEIRS}, chat with {asked}", 256, "cpu")
        assert round(ours / theirs, 1) == share
    words = "probabilities and tools cost what they cost there, grammars a tenth less"
    assert words in README


@pytest.mark.parametrize("targets", [(OURS, THEIRS), EIGHT])
def test_the_first_event_comes_earlier(targets: tuple[str, str]) -> None:
    ours, theirs = (
        statistics.median(each["first_ms"]["p50"] for each in samples(CHATS, target, 256))  # type: ignore[index]
        for target in targets
    )
    assert ours < theirs


def ratios(name: str, targets: tuple[str, str]) -> tuple[float, float]:
    """Return the lowest and the highest share of theirs that ours cost in a round."""
    rounds = zip(*(samples(name, target, 256) for target in targets), strict=True)
    found = [round(one["cpu"] / other["cpu"], 2) for one, other in rounds]
    return min(found), max(found)


def test_what_several_tokens_an_event_cost() -> None:
    text = " ".join((ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").split())
    ours, theirs = (median("2026-11-25-eight", target, 256, "cpu") for target in EIGHT)
    assert f"server's (below) {ours:.1f} and {theirs:.1f}, 0.63 to 0.69 in three rounds" in text
    assert ratios("2026-11-25-eight", EIGHT) == (0.63, 0.69)
    assert (ratios(CHATS, (OURS, THEIRS)), ratios(CHATS, EIGHT)) == ((0.39, 0.45), (0.66, 0.8))
    shares = "0.39 to 0.45 of vLLM's server round by round, with 8 tokens an event 0.66 to 0.80."
    assert shares in text
    words = []
    for target in (*EIGHT, OURS, THEIRS):
        words.append(f"{median('2026-11-25-quick-optimized', target, 256, 'cpu'):.1f}")
    assert "they took {} and {}, each token an event {} and {} (".format(*words) in text


def process(name: str, target: str, part: str) -> float:
    found = (each["cpu_us_per_token"][part] for each in samples(name, target, 256))  # type: ignore[index]
    return statistics.median(found)


def test_what_new_tokens_cost_before_and_after() -> None:
    text = " ".join((ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").split())
    before, after = "2026-11-25-before-tokens", "2026-11-25-after-tokens"
    of_eight, of_each = (
        [process(name, target, "worker front end") for name in (before, after)]
        + [median(name, target, 256, "cpu") for name in (before, after)]
        for target in (EIGHT[0], OURS)
    )
    words = "the worker {:.1f}, then {:.1f}, beside the engine {:.1f} and {:.1f};"
    assert words.format(*of_eight) in text
    assert "each token an event {:.1f} and {:.1f}, {:.1f} and {:.1f} (".format(*of_each) in text
    for target, title in zip(
        (OURS, THEIRS, *EIGHT),
        ("lmi-backend, chat", "vLLM's server", "event: lmi-backend", "vLLM's server"),
        strict=True,
    ):
        pace = median(CHATS, target, 256, "tokens_per_second")
        row = text[text.index(f"{title} | {pace:,.0f} |") :].split("|")
        assert row[4].split(":")[0].strip() == f"{median(CHATS, target, 256, 'cpu'):.1f}"
