"""What the paths of Text Generation Inference are."""

import pytest

from lmi_backend.clients.tgi.spec import SPEC


@pytest.mark.parametrize("path", SPEC.paths, ids=lambda path: path.template)
def test_what_generates_waits_counts_and_resumes(path: object) -> None:
    generates = path.template in ("/generate", "/generate_stream", "/")  # type: ignore[attr-defined]
    traits = [getattr(path, name) for name in ("takes_place", "counts_n", "can_resume")]
    assert traits == [generates] * 3
