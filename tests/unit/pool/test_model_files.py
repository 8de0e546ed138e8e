"""The files that a model is loaded from."""

from pathlib import Path

from lmi_backend.engine_config import EngineConfig
from lmi_backend.pool.model_files import files_of_adapters


def test_a_file_is_known_by_its_place_time_and_size(tmp_path: Path) -> None:
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(b"abc")
    (tmp_path / "folder").mkdir()
    config = EngineConfig(model="m", adapters={"one": str(tmp_path)})
    assert files_of_adapters(config) == ((str(file), file.stat().st_mtime_ns, 3),)
