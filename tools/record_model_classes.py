"""Record what the config classes of Transformers and vLLM take where a config.json has no field.

.venv-engine/bin/python tools/record_model_classes.py [--output FILE] [--counts FILE]

The defaults go into the package. With `--counts` each class that has a model is built of its
defaults, without memory for its weights, and its parameters are counted, for the tests.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DEFAULTS: Final = ROOT / "lmi_backend" / "sizing" / "class_defaults.json"
_FIELDS: Final = """
attention_chunk_size attention_head_dim attn_layer_offset attn_layer_period
block_auto_adjust_ff_dim block_multiple_of conv_L_cache conv_kernel d_ff d_kv d_model
decoder_attention_heads decoder_ffn_dim decoder_layers decoder_sparse_step
deepstack_visual_indexes dense_intermediate_size depth embed_dim encoder_ffn_dim encoder_layers
expand expert_ffn_hidden_size expert_layer_offset expert_layer_period ffn_dim ffn_hidden_size
first_k_dense_replace full_attention_interval global_head_dim head_dim hidden_size
hidden_size_per_layer_input index_head_dim index_n_heads interleave_moe_layer_step
intermediate_size intermediate_size_mlp is_encoder_decoder kv_channels kv_lora_rank
linear_conv_kernel_dim linear_head_dim linear_key_head_dim linear_num_heads
linear_num_key_heads linear_num_value_heads linear_value_head_dim mamba_d_conv mamba_d_head
mamba_d_ssm mamba_d_state mamba_expand mamba_head_dim mamba_headdim mamba_n_groups
mamba_n_heads mamba_ngroups mamba_num_heads max_position_embeddings max_seq_len mlp_ratio
model_dim moe_intermediate_size moe_k moe_latent_size moe_layer_interval moe_layer_start_index
moe_num_experts moe_num_shared_experts moe_shared_expert_intermediate_size moe_topk multi_query
n_embd n_groups n_head n_heads n_inner n_layer n_layers n_mamba_heads n_positions
n_routed_experts n_shared_experts new_decoder_architecture num_attention_heads
num_decoder_layers num_dense_layers num_experts num_experts_per_tok num_global_key_value_heads
num_heads num_hidden_layers num_key_value_heads num_kv_heads num_kv_shared_layers num_layers
num_local_experts num_mem_blocks num_shared_experts o_groups o_lora_rank out_hidden_size
padded_vocab_size q_lora_rank qk_nope_head_dim qk_rope_head_dim seq_length
shared_expert_intermediate_size shared_intermediate_size sliding_window spatial_merge_size
ssm_state_size state_size tie_word_embeddings time_step_rank top_k_experts use_double_wide_mlp
v_head_dim vocab_size vocab_size_per_layer_input
"""
"""Fields that say how large a model is."""
_LARGEST: Final = 1 << 31
_FULL: Final = "full_attention"

Record = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=DEFAULTS)
    parser.add_argument("--counts", type=Path, help="file for the counted parameters")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    record = {name: found for name, cls in classes() if (found := defaults_of(cls))}
    options.output.write_text(render(record), encoding="utf-8")
    sys.stdout.write(f"wrote {options.output}: {len(record)} classes\n")
    if options.counts:
        counted = dict(counts())
        options.counts.write_text(render(counted), encoding="utf-8")
        sys.stdout.write(f"wrote {options.counts}: {len(counted)} models\n")
    return 0


def render(record: Record) -> str:
    lines = [f"{json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def classes() -> Iterator[tuple[str, Any]]:
    """Yield model types and config classes of models that write text, and of their parts.

    vLLM's own class comes first, where it has one.
    """
    import vllm.transformers_utils.configs as own  # noqa: PLC0415
    from transformers.models.auto import modeling_auto  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: PLC0415
    from vllm.transformers_utils.config import _CONFIG_REGISTRY  # noqa: PLC0415

    registered = dict(_CONFIG_REGISTRY)
    wanted = [
        *registered,
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    ]
    seen = {"hrm_text", "zamba2"}  # They run layers again, which no plan computes.
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        found = registered.get(name)
        try:
            cls = getattr(own, found) if isinstance(found, str) else CONFIG_MAPPING[name]
        except (ImportError, AttributeError, KeyError) as error:
            sys.stderr.write(f"{name}: {error!r}\n")
            continue
        wanted += _parts(cls).values()
        yield name, cls


def defaults_of(cls: Any) -> dict[str, Any]:
    """Return the sizes that a class takes by itself, as its source has them."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= {each.name: each.default for each in dataclasses.fields(base)}
    for name, each in inspect.signature(cls.__init__).parameters.items():
        found[name] = each.default
    sizes = {name: value for name, value in found.items() if _is_size(name, value)}
    return sizes | _parts(cls) | _layers(cls)


def _layers(cls: Any) -> dict[str, Any]:
    """Return what a class says of each layer by itself, in short."""
    try:
        made = cls()
    except Exception:  # noqa: BLE001
        # Some classes want arguments; their files name the layers.
        return {}
    kinds = getattr(made, "layer_types", None)
    found = _pattern(kinds)
    if isinstance(kinds, list) and set(kinds) == {_FULL} and getattr(made, "sliding_window", None):
        # It has a window that no layer uses unless its file says so.
        found |= {"layer_types": [_FULL]}
    if others := getattr(made, "per_layer_config", None):
        heads = [each["head_dim"] for each in others.values() if "head_dim" in each]
        found |= {"global_head_dim": heads[0]} if heads else {}
    words = getattr(made, "mlp_layer_types", None)
    if isinstance(words, list) and set(words) == {"dense", "sparse"}:
        first = words.index("sparse")
        found |= {} if "dense" in words[first:] else {"first_k_dense_replace": first}
    return found


def _pattern(kinds: object) -> dict[str, Any]:
    """Return the period of the layers' kinds, if they differ."""
    if not isinstance(kinds, list) or len(set(kinds)) < 2:
        return {}
    periods = range(2, len(kinds) // 2 + 1)
    found = (n for n in periods if all(kind == kinds[at % n] for at, kind in enumerate(kinds)))
    period = next(found, 0)
    return {"layer_types": kinds[:period]} if period else {}


def _is_size(name: str, value: object) -> bool:
    if name == "mlp_ratio":
        return isinstance(value, int | float)
    if name == "use_sliding_window" or (name in _FIELDS.split() and value == "auto"):
        return isinstance(value, bool | str)
    is_number = type(value) is int and 0 < value < _LARGEST
    return name in _FIELDS.split() and (value is True or is_number)


def _parts(cls: Any) -> dict[str, str]:
    """Return the model types of the configs inside a class's own."""
    kinds = getattr(cls, "sub_configs", None) or {}
    found = {name: getattr(kind, "model_type", "") for name, kind in kinds.items()}
    return {name: kind for name, kind in found.items() if kind}


def counts() -> Iterator[tuple[str, int]]:
    """Yield model types that Transformers and vLLM serve, and the parameters by default."""
    import transformers  # noqa: PLC0415
    from transformers.models.auto import modeling_auto  # noqa: PLC0415
    from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415

    served = set(ModelRegistry.get_supported_archs())
    several = (
        (
            modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
            transformers.AutoModelForImageTextToText,
        ),
        (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    )
    found = {
        name: auto
        for architectures, auto in several
        for name, architecture in architectures.items()
        if architecture in served
    }
    for name, auto in found.items():
        try:
            yield name, _count(auto, transformers.CONFIG_MAPPING[name]())
        except Exception as error:  # noqa: BLE001
            # Some defaults make no model, and some want a library that is not here.
            sys.stderr.write(f"{name}: {error!r}\n"[:200])


def _count(auto: Any, config: Any) -> int:
    import torch  # noqa: PLC0415

    with torch.device("meta"):
        model = auto.from_config(config)
    return sum(each.numel() for each in model.parameters())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
