"""Images are decoded within bounds, in threads, whether tensors or bodies bring them."""

import json
from typing import Any

import pytest

from tests.support.places import TESTS, TINY

ACCEPTED = "accepted: at most 10000 (VLLM_MAX_IMAGE_PIXELS)"
COUNT = "image has 3 files; accepted: at most 2 (option.limit_mm_per_prompt)"
TOGETHER = f"the images of a request have 12000 pixels together; {ACCEPTED}"
LARGE = f"an image has too many pixels; {ACCEPTED}"


@pytest.fixture(scope="module")
def seen(vllm_interpreter: Any) -> tuple[dict[str, list[str]], int]:
    script = str(TESTS / "support" / "vllm_images.py")
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
        ("no image", "image number 0 is no image that can be read", "cannot identify image"),
        ("half an image", "image number 0 is no image that can be read", "cannot identify image"),
        ("a program", "image number 0 is no image that can be read", "cannot identify image"),
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


def test_others_have_their_turns_while_an_image_is_decoded(seen: Any) -> None:
    assert seen[1] > 10
