from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.model_store import ModelUrl, model_urls, models_of


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("ALL", []),
        ("/opt/ml/model", [ModelUrl("/opt/ml/model")]),
        ("test::MPI=/opt/ml/model", [ModelUrl("/opt/ml/model", "test", "MPI")]),
        ("a:v1:Python:0;1=/m/a", [ModelUrl("/m/a", "a", "Python", "0;1")]),
        ("[a:::*=/m/a] , b=file:///m/b", [ModelUrl("/m/a", "a"), ModelUrl("file:///m/b", "b")]),
    ],
)
def test_a_load_list_is_read_as_lmi_reads_it(text: str, entries: list[ModelUrl]) -> None:
    assert model_urls(text) == entries


def test_an_entry_without_a_folder_is_named() -> None:
    with pytest.raises(ConfigurationError, match="entry a::MPI= has no folder"):
        model_urls("a::MPI=")


def test_a_store_is_its_folders_or_one_model(tmp_path: Path) -> None:
    environment = {"SERVING_MODEL_STORE": str(tmp_path)}
    assert models_of(environment) == []
    for name in ("b", "a-1.x"):
        (tmp_path / name).mkdir()
    assert [entry.model_name for entry in models_of(environment)] == ["a-1.x", "b"]
    (tmp_path / "config.json").touch()
    assert [entry.folder for entry in models_of(environment)] == [tmp_path]
    assert models_of({**environment, "SERVING_LOAD_MODELS": "NONE"}) == []
    listed = models_of({**environment, "SERVING_LOAD_MODELS": "x=/m"})
    assert [entry.model_name for entry in listed] == ["x"]


@pytest.mark.parametrize(
    ("model_id", "name"),
    [("org/m-7b", "org_m-7b"), ("s3://bucket/m-7b/", "m-7b"), ("/models/m 7b", "m_7b")],
)
def test_a_model_id_alone_is_a_model(model_id: str, name: str, tmp_path: Path) -> None:
    environment = {"SERVING_MODEL_STORE": str(tmp_path / "none"), "HF_MODEL_ID": model_id}
    assert [entry.model_name for entry in models_of(environment)] == [name]
