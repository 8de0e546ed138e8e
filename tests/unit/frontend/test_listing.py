"""What OpenAI's clients are told of models."""

import pytest

from lmi_backend.engine_config import ModelInfo
from lmi_backend.frontend.listing import root_of


@pytest.mark.parametrize(
    ("root", "shown"),
    [("/opt/ml/model", "m"), ("org/name", "org/name"), ("gpt2", "gpt2"), ("", "")],
)
def test_a_client_sees_no_folder_of_the_server(root: str, shown: str) -> None:
    assert root_of(ModelInfo(name="m", root=root)) == shown
