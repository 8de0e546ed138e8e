"""What AWS prints of a model and of an endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.migration.instances import gpus_of
from lmi_backend.migration.sources import Source, read_sources


def read(tmp_path: Path, *described: Any) -> Source:
    paths = []
    for number, each in enumerate(described):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(each))
    return read_sources(paths, tmp_path)


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        ("ml.g5.2xlarge", (1, 24)),
        ("ml.g6e.48xlarge", (8, 48)),
        ("ml.p4d.24xlarge", (8, 40)),
        ("p5.48xlarge", (8, 80)),
        ("ml.p5.2xlarge", None),
        ("ml.m5.large", None),
        ("", None),
    ],
)
def test_the_gpus_of_an_instance(instance: str, expected: Any) -> None:
    assert gpus_of(instance) == expected


def container(**more: Any) -> dict[str, Any]:
    return {"PrimaryContainer": {"Image": "a/djl-inference:0.33.0-lmi15", **more}}


def data(**more: Any) -> dict[str, Any]:
    return {"ModelDataSource": {"S3DataSource": {"S3Uri": "s3://b/m/", **more}}}


def test_where_the_files_are(tmp_path: Path) -> None:
    assert read(tmp_path, container(**data())).variables == {"HF_MODEL_ID": "s3://b/m/"}
    own = {"Environment": {"OPTION_MODEL_ID": "s3://b/own"}}
    assert "HF_MODEL_ID" not in read(tmp_path, container(**data(), **own)).variables
    for archived in ({"ModelDataUrl": "s3://b/m/"}, data(CompressionType="Gzip")):
        source = read(tmp_path, container(**archived))
        assert source.decisions == ["download s3://b/m/, and name it as another SOURCE"]


def test_what_somebody_must_decide(tmp_path: Path) -> None:
    variant = {
        "InstanceType": "ml.x.large",
        "InitialInstanceCount": 2,
        "ServerlessConfig": {"a": 1},
    }
    config = {"ProductionVariants": [variant, {}], "AsyncInferenceConfig": {"a": 1}}
    source = read(tmp_path, config, {"Containers": [{"Image": "a/tgi:1"}, {}]})
    decisions = "\n".join(source.decisions)
    for text in (
        "is asynchronous",
        "is serverless",
        "ml.x.large: its GPUs are not known",
        "there are 2 variants",
        "there are 2 containers",
        "is no LMI container",
    ):
        assert text in decisions
    assert (source.replicas, source.gpus, source.capture) == (2, None, "")


@pytest.mark.parametrize(
    "odd",
    [
        {"ProductionVariants": "a"},
        {"ProductionVariants": [1], "DataCaptureConfig": 1},
        {"PrimaryContainer": 1},
        {"PrimaryContainer": {"ModelDataSource": 1, "ModelDataUrl": 1, "Environment": None}},
        {"ProductionVariants": [{"InitialInstanceCount": "a", "InstanceType": 1}]},
    ],
)
def test_odd_descriptions_are_read_as_far_as_they_go(odd: Any, tmp_path: Path) -> None:
    assert read(tmp_path, odd).replicas == 0
