"""Record what each layer of vLLM's own models caches, for the tests of the planner.

.venv-engine/bin/python tools/record_kv_specs.py [--output FILE]

The models are built of the defaults of their config classes, without memory for their weights, and
asked for the specs of their caches. Classes that make no model here are left out: some have no
sizes, and some want a GPU or a library.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
OUTPUT: Final = ROOT / "tests" / "data" / "planner" / "kv_specs.json"
_SPACE: Final = 1 << 16
"""Bytes of a model's record at most, as it comes through a pipe."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    found = dict(_models())
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    options.output.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stdout.write(f"wrote {options.output}: {len(found)} models\n")
    return 0


def _models() -> Iterator[tuple[str, dict[str, Any]]]:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from transformers.models.auto import modeling_auto  # noqa: PLC0415
    from vllm.model_executor.models import registry  # noqa: PLC0415

    # Each model has a process of its own already.
    registry._run_in_subprocess = lambda inspect: inspect()
    # Its kernels for the CPU would have states of 32 bits.
    torch.cpu._is_avx512_bf16_supported = lambda: False
    served = set(registry.ModelRegistry.get_supported_archs())
    for name, architecture in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if architecture not in served:
            continue
        try:
            config = transformers.CONFIG_MAPPING[name]().to_dict()
            text = json.dumps(config | {"architectures": [architecture], "dtype": "bfloat16"})
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"{name}: {error!r}\n"[:200])
            continue
        if found := _apart(name, text):
            yield name, found


def _apart(name: str, config: str) -> dict[str, Any]:
    """Ask in a process of its own, as a model changes what the next one would find."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        with os.fdopen(read) as file:
            answer = file.read()
        os.wait()
        return json.loads(answer) if answer else {}
    try:
        os.write(write, json.dumps(_ask(config)).encode()[:_SPACE])
    except BaseException as error:  # noqa: BLE001
        sys.stderr.write(f"{name}: {error!r}\n"[:200])
    finally:
        os._exit(0)


def _ask(config: str) -> dict[str, Any]:
    """Return what the layers of one model cache, and its parameters."""
    import torch  # noqa: PLC0415
    from vllm import EngineArgs  # noqa: PLC0415
    from vllm.config import set_current_vllm_config  # noqa: PLC0415
    from vllm.distributed import (  # noqa: PLC0415
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.model_executor.model_loader.utils import initialize_model  # noqa: PLC0415
    from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(config, encoding="utf-8")
        made = EngineArgs(
            model=folder, skip_tokenizer_init=True, enforce_eager=True, block_size=16
        ).create_engine_config()
        with set_current_vllm_config(made):
            init_distributed_environment(1, 0, f"file://{folder}/meet", 0, "gloo")
            initialize_model_parallel(1, 1)
            with set_default_torch_dtype(made.model_config.dtype), torch.device("meta"):
                model = initialize_model(made)
            return {"parameters": sum(each.numel() for each in model.parameters()), **_cached(made)}


def _cached(config: Any) -> dict[str, Any]:
    """Return layers and bytes of a token, or of a sequence where they keep a state."""
    found: dict[str, list[Any]] = {}
    for layer in config.compilation_config.static_forward_context.values():
        # Some layers use the cache of another.
        if getattr(layer, "kv_sharing_target_layer_name", None):
            continue
        spec = layer.get_kv_cache_spec(config) if hasattr(layer, "get_kv_cache_spec") else None
        if spec is None:
            continue
        shapes = getattr(spec, "shapes", None)
        windows = (getattr(spec, name, None) for name in ("sliding_window", "attention_chunk_size"))
        window = next(filter(None, windows), 0)
        kind = "state" if shapes else "local" if window else "full"
        if shapes:
            sizes = zip(shapes, spec.dtypes, strict=True)
            size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in sizes)
        else:
            size = spec.page_size_bytes // spec.block_size
        known = found.setdefault(kind, [0, size, window])
        if known[1:] != [size, window]:
            raise ValueError(f"two kinds of {kind} layers: {known}, {size}, {window}")
        known[0] += 1
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
