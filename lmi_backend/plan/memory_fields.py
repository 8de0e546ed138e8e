"""What each field of vLLM's configuration means for the memory of a device.

The classes are those of the vLLM that the plans are made for. A contract test walks them, so a
field of a new release must be judged here.
"""

from __future__ import annotations

from typing import Final

COUNTED: Final = "counted"
"""A plan computes with it."""
HARMLESS: Final = "harmless"
"""It changes nothing on a device, or only what a range holds anyway."""
DERIVED: Final = "derived"
"""vLLM sets it by itself from other fields."""
UNCOUNTED: Final = "uncounted"
"""It changes what a device holds, and no plan computes with it."""

_CLASSES: Final[dict[str, dict[str, str]]] = {
    "CacheConfig": {
        COUNTED: """block_size gpu_memory_utilization cache_dtype num_gpu_blocks_override
            enable_prefix_caching mamba_ssm_cache_dtype kv_cache_memory_bytes""",
        HARMLESS: """prefix_match_unit prefix_caching_hash_algo prefix_cache_retention_interval
            kv_offloading_size kv_offloading_backend""",
        DERIVED: """is_attention_free sliding_window mamba_page_size_padded
            skip_page_size_padded""",
        UNCOUNTED: """kv_cache_dtype_skip_layers mamba_block_size mamba_cache_dtype
            mamba_cache_mode enable_mamba_shared_prefix_checkpoint replayssm_buffer_len
            use_replayssm kv_sharing_fast_prefill swa_bounded_replay""",
    },
    "ParallelConfig": {
        COUNTED: """pipeline_parallel_size tensor_parallel_size data_parallel_size
            enable_expert_parallel prefill_context_parallel_size
            decode_context_parallel_size""",
        HARMLESS: """data_parallel_size_local data_parallel_rank data_parallel_rank_local
            data_parallel_master_ip data_parallel_rpc_port dp_sync_interval
            data_parallel_master_port data_parallel_backend data_parallel_external_lb
            data_parallel_hybrid_lb enable_ep_weight_filter expert_placement_strategy
            max_parallel_loading_workers enable_shm_tensor_arena dbo_decode_token_threshold
            dbo_prefill_token_threshold disable_nccl_for_dp_synchronization
            ray_workers_use_nsight ray_runtime_env placement_group distributed_executor_backend
            worker_cls worker_extension_cls master_addr master_port node_rank nnodes numa_bind
            numa_bind_nodes numa_bind_cpus assigned_physical_gpu_ids distributed_timeout_seconds
            cpu_distributed_timeout_seconds dcp_kv_cache_interleave_size
            cp_kv_cache_interleave_size enable_fault_tolerance fault_tolerance_config""",
        DERIVED: "is_moe_model rank",
        UNCOUNTED: """enable_hc_sp
            enable_batch_sharded_sampling enable_eplb eplb_config all2all_backend
            disable_custom_all_reduce enable_elastic_ep elastic_ep_max_dp_size enable_dbo
            ubatch_size dcp_comm_backend dcp_q_replicate""",
    },
    "SchedulerConfig": {
        COUNTED: "max_model_len max_num_batched_tokens max_num_seqs",
        HARMLESS: """max_num_scheduled_tokens max_num_active_seqs long_prefill_token_threshold
            long_prefill_token_threshold_adaptive max_num_queued_reqs max_num_queued_tokens
            enable_chunked_prefill policy disable_chunked_mm_input scheduler_cls
            scheduler_reserve_full_isl watermark prefill_schedule_interval stream_interval""",
        DERIVED: "is_encoder_decoder runner_type is_multimodal_model",
        UNCOUNTED: "disable_hybrid_kv_cache_manager async_scheduling",
    },
    "LoRAConfig": {
        COUNTED: "max_lora_rank max_loras lora_dtype",
        HARMLESS: "max_cpu_loras enable_mixed_moe_lora_format",
        UNCOUNTED: """fully_sharded_loras target_modules default_mm_loras
            enable_tower_connector_lora specialize_active_lora enable_moe_shared_loras
            max_lora_cls_labels""",
    },
    "SpeculativeConfig": {
        COUNTED: "num_speculative_tokens model method revision",
        HARMLESS: """code_revision moe_backend attention_backend max_model_len
            disable_padded_drafter_batch disable_eagle_block_drop use_local_argmax_reduction
            prompt_lookup_max prompt_lookup_min suffix_decoding_max_tree_depth
            suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
            suffix_decoding_min_token_prob draft_load_config rejection_sample_method
            synthetic_acceptance_rates synthetic_acceptance_length
            enable_adaptive_verification draft_sample_method dspark_draft_topk""",
        DERIVED: """target_model_config target_parallel_config draft_model_config
            draft_parallel_config""",
        UNCOUNTED: """enforce_eager draft_tensor_parallel_size tensor_parallel_size quantization
            kv_cache_dtype index_share_for_mtp_iteration use_heterogeneous_vocab
            parallel_drafting num_speculative_tokens_per_batch_size""",
    },
    "ModelConfig": {
        COUNTED: """model dtype max_model_len quantization enforce_eager revision hf_overrides
            language_model_only""",
        HARMLESS: """model_weights runner tokenizer tokenizer_mode trust_remote_code seed
            allowed_local_media_path allowed_media_domains code_revision tokenizer_revision
            allow_deprecated_quantization max_logprobs logprobs_mode disable_cascade_attn
            skip_tokenizer_init enable_prompt_embeds served_model_name config_format hf_token
            generation_config override_generation_config io_processor_plugin
            renderer_num_workers media_io_kwargs mm_processor_cache_gb mm_processor_cache_type
            mm_hasher_algorithm mm_shm_cache_max_object_size_mb mm_encoder_fp8_scale_path
            mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin
            interleave_mm_strings mm_tensor_ipc sleep_preserve_parameter_names
            sleep_mode_backend sleep_mode_offload_cudagraph enable_nccl_comm_suspend""",
        DERIVED: "spec_target_max_model_len multimodal_config",
        UNCOUNTED: """convert hf_config_path quantization_config return_sampling_mask
            use_fp64_gumbel enable_trace_replay disable_sliding_window
            model_class_overrides enable_sleep_mode enable_cumem_allocator model_impl
            logits_processors pooler_config limit_mm_per_prompt
            enable_mm_embeds mm_processor_kwargs mm_encoder_only mm_encoder_tp_mode
            mm_encoder_attn_backend mm_encoder_attn_dtype skip_mm_profiling video_pruning_rate
            video_pruning_method mm_ipc_gpu_memory_gb mm_device_do_normalize
            mm_processor_device""",
    },
}
MEANINGS: Final[dict[str, dict[str, str]]] = {
    cls: {name: word for word, names in kinds.items() for name in names.split()}
    for cls, kinds in _CLASSES.items()
}
"""Class to field to what it means."""
SPECULATION: Final = "SpeculativeConfig"
_ARGUMENTS: Final = {
    "cache_dtype": "kv_cache_dtype", "policy": "scheduling_policy",
    "target_modules": "lora_target_modules",
}  # fmt: skip
"""Fields that vLLM's command line calls something else."""
_FURTHER: Final = """
    additional_config attention_backend attention_config compilation_config
    ec_transfer_config engram_config kernel_config kv_transfer_config
    mamba_config max_cudagraph_capture_size offload_backend offload_group_size
    offload_num_in_group offload_params offload_prefetch_step optimization_level
    performance_mode weight_transfer_config
"""
"""Arguments that belong to other classes and change what a device holds."""


def is_uncounted(argument: str) -> bool:
    """Tell whether an argument of vLLM changes what a device holds and is not counted."""
    return argument in _UNCOUNTED_ARGUMENTS


def is_uncounted_key(key: str) -> bool:
    """Tell the same of a key of `speculative_config`."""
    return MEANINGS[SPECULATION].get(key) == UNCOUNTED


_UNCOUNTED_ARGUMENTS: Final = frozenset(_FURTHER.split()) | frozenset(
    _ARGUMENTS.get(name, name)
    for cls, fields in MEANINGS.items()
    for name, word in fields.items()
    if word == UNCOUNTED and cls != SPECULATION
)
