"""The tiny model with one class: what ranks, scores and classifies."""

import json
import random
import shutil
import struct
from pathlib import Path

from tests.support.places import TINY

_HEAD = "score.weight"


def write_ranking_model(folder: Path) -> Path:
    """Write it into a new folder, with a head by seed; return the folder."""
    shutil.copytree(TINY / "llama", folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    path.write_text(json.dumps(config), encoding="utf-8")
    _add_head(folder / "model.safetensors", config["hidden_size"])
    return folder


def _add_head(path: Path, size: int) -> None:
    """Add the weights of one class to a file of safetensors."""
    dice = random.Random(1)
    weights = struct.pack(f"<{size}f", *(dice.uniform(-1, 1) for _ in range(size)))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    place = [len(rest), len(rest) + len(weights)]
    head[_HEAD] = {"dtype": "F32", "shape": [1, size], "data_offsets": place}
    written = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + rest + weights)
