"""Fields of a config.json that no code here has read and that may mean memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields

_HARMLESS: Final = re.compile(
    r"""_?(
    .*(_token_id|_token_ids|_token_index|_token|_eps|epsilon|dropout.*|_pdrop|_std|_range|_init.*
      |_coef|_coeff|_scale|_scaling|_factor|_multiplier|_multipliers|_softcapping|_bias|_logits
      |_penalty|_loss|_version|_id|_ids|_name|_path|_implementation|_method|_mode|_func|_act
      |_activation|_theta|_type|_template|_labels|_residual|_fp32|_freq)
    |rope_.*|.*_rope|rotary.*|partial_rotary.*|rms_norm.*|norm.*|.*_norm|layer_norm.*|use_cache
    |architectures|auto_map|transformers_version|model_type|dtype|torch_dtype|torchscript
    |initializer.*|hidden_act.*|activation.*|attention_bias|mlp_bias|pretraining_tp|problem_type
    |output_.*|return_.*|is_decoder|add_cross_attention|tie_encoder_decoder|pruned_heads|id2label
    |label2id|num_labels|finetuning_task|task_specific_params|tokenizer_class|prefix|bad_words_ids
    |(min|max)_length|num_(beams|beam_groups|return_sequences|logits_to_keep)|do_sample|top_[kp]
    |temperature|typical_p|early_stopping|.*suppress_tokens|no_repeat.*|encoder_no_repeat.*
    |chunk_size.*|remove_invalid_values|use_bfloat16|tf_legacy_loss|scoring_func|topk.*|n_group
    |num_expert_group|n_groups|moe_renormalize|norm_topk_prob|score_func.*|routed_.*|router_.*|ep_size
    |use_qk_norm|qk_.*|query_pre_attn_scalar|attn_logit.*|final_logit.*|bos|eos|unk|pad|sep
    |time_step.*|rescale.*|residual.*|use_(bias|conv_bias|mamba_kernels|grouped_topk|rope|mrope)
    |mamba_(hidden_act|proj_bias|conv_bias|chunk_size|rms_norm|norm_before_gate|expand)|mtp_.*
    |(vision|audio|image|video|media|boi|eoi|boa|eoa|mm)_?.*|full_attn_idxs|block_.*|conv_.*
    |head_dim|max_window_layers|layer_types|language_model_only|ignore_index|beta_.*|expand|scale_.*
    |original_max.*|mamba_(dt_rank|d_head|head_dim)|mup_.*|enable_.*_fp32.*|moe_router_.*
    |num_(expert_groups|limited_groups)|global_attn_every_n_layers|zero_expert_.*|num_hash_layers
    |initial_context_length|use_bidirectional_attention|kv_channels|head_dim_.*
    |experts_per_token|moe_layer_freq|moe_shared_expert_overlap|index_topk.*|indexer_.*|mla_use_.*
    |num_key_value_heads|num_attention_heads|attention_chunk_size|sliding_window.*|attn_.*|use_.*
    |latent_moe_use_norm|encoder_layerdrop|decoder_layerdrop|classifier.*|gradient.*|swiglu_limit.*
    |full_attention_interval|vocab_size_per_layer_input|aux_loss.*|seq_aux|.*_dtype|swiglu_alpha
    |first_k_dense_replace|interleave_moe_layer_step|no_rope_layer.*|hc_sinkhorn_iters|prefix_lm
    |index_share.*|index_skip.*|num_mtp_modules|n_positions|embd_pdrop|summary_.*|n_ctx|alibi|L_bp_cycles|parallel_attn|apply_.*|unsloth.*|quantization|format
    )""",
    re.VERBOSE,
)
"""Names that say how numbers are computed, chosen or written, and not how many there are."""
_SHOWN: Final = 6


def unread_fields(config: ConfigFields) -> tuple[str, ...]:
    """Return the language model's fields that nobody has read, but for harmless and empty ones."""
    names = [
        name
        for name, value in config.fields.items()
        if name not in config.read
        and value not in (None, False, 0, "", [], {})
        and not _HARMLESS.fullmatch(name)
    ]
    return tuple(sorted(names))


def uncounted(names: tuple[str, ...]) -> str:
    """Say which fields are not counted; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN])
    return f"not counted: what these fields of config.json may mean for memory: {shown}{more}"
