import re
from dataclasses import replace

import pytest
import yaml

from lmi_backend.deploy.files import TARGETS
from lmi_backend.deploy.served import Needs, Served

SERVED = Served(
    name="m",
    title="M",
    image="i",
    needs=Needs(devices=2),
    place="/opt/ml/model/M",
    texts={"serving.properties": "a=b"},
)


@pytest.mark.parametrize("target", TARGETS)
def test_every_placeholder_is_filled_with_whole_lines(target: str) -> None:
    for name, text in TARGETS[target](SERVED).items():
        is_copied = name.startswith(("templates/", "values.schema"))
        assert is_copied or not re.search(r"(?<!\$)\$(?!patch)\w", text)
        assert text.endswith("\n") or name.startswith("model/")
        assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_model_is_a_config_map_or_a_claim() -> None:
    written = TARGETS["kubernetes"](SERVED)
    assert yaml.safe_load(written["kustomization.yaml"])["configMapGenerator"] == [
        {"name": "model", "files": ["model/serving.properties"]}
    ]
    claimed = TARGETS["kubernetes"](replace(SERVED, needs=Needs(), claim="c"))
    assert "configMapGenerator" not in yaml.safe_load(claimed["kustomization.yaml"])
    volumes = yaml.safe_load(claimed["needs.yaml"])["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["persistentVolumeClaim"] == {"claimName": "c"}
    assert "nvidia.com/gpu" not in claimed["needs.yaml"]


def test_a_folder_may_have_any_name() -> None:
    """A unit has specifiers, variables and quotes of its own, Compose variables."""
    folder = "/a b/100%/$x's/\"y"
    served = replace(SERVED, mount=folder, place=folder)
    (unit,) = TARGETS["systemd"](served).values()
    assert r"""lmi-backend" serve "/a b/100%%/$$x's/\"y" --port""" in unit
    (text,) = TARGETS["compose"](served).values()
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["volumes"][1]["source"] == "/a b/100%/$$x's/\"y"
