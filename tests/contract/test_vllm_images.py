"""Media are decoded within bounds, in threads, whether tensors or bodies bring them."""

import json
from typing import Any

import pytest

from tests.support.run.places import SCRIPTS, TINY

ACCEPTED = "accepted: at most 10000 (VLLM_MAX_IMAGE_PIXELS)"
COUNT = "image has 3 files; accepted: at most 2 (option.limit_mm_per_prompt)"
TOGETHER = f"the images of a request have 12000 pixels together; {ACCEPTED}"
LARGE = f"an image has too many pixels; {ACCEPTED}"


@pytest.fixture(scope="module")
def seen(vllm_interpreter: Any) -> tuple[dict[str, list[str]], int]:
    script = str(SCRIPTS / "vllm_images.py")
    answered = json.loads(vllm_interpreter.run(script, str(TINY / "llama")))
    return answered[0], answered[1]


@pytest.mark.parametrize(
    ("kind", "by_tensor", "by_body"),
    [
        ("small", "10x10 60x100", "10x10 60x100"),
        ("a film", "60x100", "60x100"),
        ("pages", "60x100", "60x100"),
        ("an icon", "16x16", "16x16"),
        ("large", LARGE, LARGE),
        ("an icon of another size", LARGE, LARGE),
        ("together", f"image number 1 cannot be read: {TOGETHER}", TOGETHER),
        (
            "too many",
            "image has 3 files; accepted: at most 2 (option.limit_mm_per_prompt)",
            "10x10",
        ),
        ("no image", "image number 0 is not an image that can be read", "cannot identify image"),
        (
            "half an image",
            "image number 0 is not an image that can be read",
            "cannot identify image",
        ),
        ("a program", "image number 0 is not an image that can be read", "cannot identify image"),
    ],
)
def test_images_are_bounded_before_they_are_decoded(
    seen: Any, kind: str, by_tensor: str, by_body: str
) -> None:
    tensor, body = seen[0][kind]
    assert by_tensor in tensor
    assert by_body in body
    for ended, error in ((tensor, "RequestError: "), (body, "VLLMValidationError: ")):
        assert ended[0].isdigit() or ended.startswith(error)


def test_a_model_that_takes_text_only_decodes_no_image(seen: Any) -> None:
    assert seen[0]["blind"] == ["RequestError: image is given, but the model takes text only"]


def test_clips_and_sounds_count_too(seen: Any) -> None:
    """By their header before they are decoded, or by what was made of them."""
    too_much = f"VLLMValidationError: {TOGETHER}"
    long = too_much.replace("12000", "12500")
    assert seen[0]["others"] == {
        "declared": f"False {long}",
        "sampled": "True 10000",
        "not declared": f"True {long}",
        "a sound": "True 6666",
        "a long sound": f"True {too_much}",
        "4 frames": "10000",
        "5 frames": long,
        "held": "0",
    }


def test_what_all_requests_hold_is_bounded(seen: Any) -> None:
    """Images wait for room that others hold, and are refused when it takes too long."""
    waited, *ended = seen[0]["beside others"]
    busy = "UnavailableError: other requests hold the memory for decoded images, clips and sounds"
    assert (waited, ended) == ("False", ["60x100", "60x100", busy, busy, busy])


def test_others_have_their_turns_while_an_image_is_decoded(seen: Any) -> None:
    assert seen[1] > 10
