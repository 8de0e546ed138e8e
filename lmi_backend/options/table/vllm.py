"""Options LMI names differently from vLLM, or that the plan reads too.

Every other argument of vLLM is an option under its own name, read by vLLM's own parser. Chat and
embeddings have arguments of vLLM's own HTTP server. Speculative decoding is one JSON object now,
and was many options before: each older option becomes a key of the object, so that old files keep
working. LMI-Dist was vLLM started by MPI, and documents defaults that vLLM has changed.
"""

from __future__ import annotations

from operator import not_
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.options.kinds import ADAPTERS as ADAPTER_LIST
from lmi_backend.options.kinds import (
    BOOL,
    FREE_TEXT,
    ITEMS,
    JSON,
    LIMITS,
    MEDIA_HOSTS,
    MOST_DEVICES,
    TEXT,
    WHOLE_ITEMS,
    but,
    choice,
    float_type,
    number,
    tokens,
    whole,
)
from lmi_backend.options.spec import (
    NOTHING,
    AnyOption,
    ArgumentRows,
    ArgumentSource,
    EngineSpec,
    Implementation,
    Option,
)
from lmi_backend.options.table import common

if TYPE_CHECKING:
    from lmi_backend.options.spec import Ignore, LmiOptions


_ACCEPTANCE: Final = "per_request_spec_decode_metrics"
"""vLLM refuses it where nothing is drafted."""
_DRAFTED_TOKENS: Final = 5
"""Tokens to draft where nobody says: what LMI's guide documents."""


def _finish(
    options: LmiOptions, arguments: dict[str, Any], reasons: list[str], ignore: Ignore
) -> None:
    if options[common.TASK] in ("generate", "text-generation"):
        arguments["runner"] = "generate"
    if options[common.TASK] == "classify" and "convert" not in options.passthrough:
        arguments["convert"] = "classify"
    if options[ENABLE_LORA]:
        arguments.setdefault("max_loras", MAX_LORAS.default)
    _choose_structure_backend(options, arguments, reasons)
    draft = arguments.get("speculative_config")
    if not draft:
        if arguments.pop(_ACCEPTANCE, None) is not None:
            ignore("option.record_acceptance_rate", "there is no speculative decoding")
        return
    if "prompt_lookup_max" in draft or draft.get("model") == "[ngram]":
        draft.setdefault("method", "ngram")
        draft.pop("model", None)
    if "num_speculative_tokens" not in draft and not options.is_set(SPECULATIVE_CONFIG):
        draft["num_speculative_tokens"] = _DRAFTED_TOKENS
        reasons.append(f"{_DRAFTED_TOKENS} drafted tokens: the default of LMI's guide")


def _choose_structure_backend(
    options: LmiOptions, arguments: dict[str, Any], reasons: list[str]
) -> None:
    """Name a library that has what is set: with the choice left open vLLM refuses both."""
    structures = arguments.get("structured_outputs_config", {})
    for option, library, others in (
        (GUIDED_PROPERTIES, "guidance", ()),
        (GUIDED_WHITESPACE, "xgrammar", ("guidance",)),
    ):
        if not options[option]:
            continue
        if structures.get("backend", "auto") == "auto":
            structures["backend"] = library
            reasons.append(f"structured outputs by {library}: {option.name} needs it")
        elif structures["backend"] not in (library, *others):
            needed = " or ".join((library, *others))
            raise options.error(option, f"needs {GUIDED_BACKEND.name}={needed}")


SPEC: Final = EngineSpec(
    name="vllm",
    title="vLLM",
    order=0,
    implementation=Implementation(
        name="vllm",
        title="vLLM",
        engine="lmi_backend.engines.vllm.engine:VllmEngine",
        follower="lmi_backend.engines.vllm.engine:VllmFollower",
        node="lmi_backend.engines.vllm.engine:VllmNode",
        library="vllm",
        source=ArgumentSource(
            "vllm",
            "engine/arg_utils.py",
            "_version.py",
            query="lmi_backend.engines.vllm.own_arguments",
            has_flags=True,
            other_models=("transformers", "models/*/modeling_*.py"),
        ),
        running="max_num_seqs",
        counts_memory_as_vllm=True,
        prepares=True,
        fetches_adapters=True,
        arguments={
            "option.revision": "revision",
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
            "option.task": "runner",
            "option.max_rolling_batch_prefill_tokens": "max_num_batched_tokens",
            "option.stream_interval": "stream_interval",
        },
        finish=_finish,
        ports={
            "VLLM_NIXL_SIDE_CHANNEL_PORT": 5600,
            "VLLM_EC_SIDE_CHANNEL_PORT": 5601,
            "VLLM_P2P_SIDE_CHANNEL_PORT": 5710,
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": 8998,
            "VLLM_DP_MASTER_PORT": 0,
            "MASTER_PORT": 0,
        },
        oldest=(
            "0.11",
            "it has no allowed_media_domains, by which it is kept to the hosts it may fetch from",
        ),
        pools=True,
        reads_checkpoints=True,
        reads_mistral=True,
        image="vllm",
        # LMI-Dist served these; vLLM itself never has.
        refused_architectures=frozenset(
            f"{name}ForConditionalGeneration" for name in ("T5", "MT5", "UMT5")
        ),
        ray_argument="distributed_executor_backend",
        cpu_pipeline="vLLM starts and then dies with the first request",
    ),
    rolling_batch="vllm",
    entry_points=("djl_python.lmi_vllm.vllm_async_service",),
    feature="vllm",
    scopes=("adapters", "speculative", "chat", "embedding", "lmcache"),
    # vLLM 0.32's default.
    utilization=0.92,
    utilization_option="option.gpu_memory_utilization",
)

_argument: Final = ArgumentRows("vllm", "vllm")

QUANTIZE: Final = _argument(
    "quantize",
    but(TEXT, squeezellm="vLLM no longer has it; use awq, gptq or fp8"),
    "Quantisation method. Leave it out for models that are quantised already.",
    to="quantization",
    aliases=("option.quantization",),
    env=("HF_MODEL_QUANTIZE",),
    convert=lambda method: "bitsandbytes" if method.startswith("bitsandbytes") else method,
)
DTYPE: Final = _argument(
    "dtype",
    but(float_type(), int8="vLLM takes none; use option.quantize=fp8, or a model in int8"),
    "Type of weights and activations; vLLM takes no int8.",
    default="auto",
    aliases=("option.data_type",),
)
CPU_OFFLOAD: Final = _argument(
    "cpu_offload_gb_per_gpu",
    number(0),
    "GiB of weights kept on the host, per device.",
    to="cpu_offload_gb",
    aliases=("option.cpu_offload_gb",),
)
MAX_MODEL_LEN: Final = _argument(
    "max_model_len", tokens(), "Longest prompt plus answer, in tokens."
)
GPU_MEMORY_UTILIZATION: Final = _argument(
    "gpu_memory_utilization",
    number(0, 1),
    "Share of a device's memory vLLM may take.",
    env=("CUDA_MEMORY_FRACTION",),
)
KV_CACHE_DTYPE: Final = _argument(
    "kv_cache_dtype", TEXT, "Type of the KV cache; fp8 halves it.", default="auto"
)
KV_CACHE_MEMORY: Final = _argument(
    "kv_cache_memory_bytes",
    tokens(),
    "Bytes of the KV cache on each device, instead of what is left over.",
)
BLOCK_SIZE: Final = _argument("block_size", whole(1), "Tokens of one KV-cache block.")
LOAD_FORMAT: Final = _argument(
    "load_format",
    but(TEXT, sagemaker_fast_model_loader="it works on SageMaker only; leave it out"),
    "Format of the weights.",
    default="auto",
)
DATA_PARALLEL_SIZE: Final = _argument(
    "data_parallel_size",
    whole(1, MOST_DEVICES),
    "Copies of the model inside one worker, each on devices of its own.",
    default=1,
)
MAX_LOGPROBS: Final = _argument(
    "max_logprobs",
    whole(-1),
    "Largest number of log probabilities that a request may have per token.",
    default=20,
)
ENFORCE_EAGER: Final = _argument(
    "enforce_eager",
    BOOL,
    "Do not capture CUDA graphs.",
    inverse_env=("ENABLE_CUDA_GRAPHS",),
)
SERVED_MODEL_NAME: Final = _argument(
    "served_model_name",
    ITEMS,
    "Names of the model in OpenAI bodies.",
    default=[DEFAULT_MODEL_NAME],
    convert=lambda names: [str(name) for name in names],
)
LIMIT_MM_PER_PROMPT: Final = _argument(
    "limit_mm_per_prompt", LIMITS, "Images, videos or sounds one prompt may hold."
)
ALLOWED_MEDIA_DOMAINS: Final = _argument(
    "allowed_media_domains",
    MEDIA_HOSTS,
    "Hosts that images, videos and sounds in bodies may be fetched from, each by its exact"
    " name, or * for any; without it only data: URLs are accepted. Private addresses are never"
    " connected to, unless one, or its network, is listed too: images.intranet,10.2.0.0/16."
    " Redirects keep to the same list, and proxies are not used.",
)
LOG_REQUESTS: Final = _argument(
    "disable_log_requests",
    BOOL,
    "Older name of the opposite of option.enable_log_requests.",
    default=True,
    to="enable_log_requests",
    convert=not_,
)
DISTRIBUTED_EXECUTOR: Final = _argument(
    "worker_use_ray",
    BOOL,
    "Older name of option.distributed_executor_backend=ray.",
    to="distributed_executor_backend",
    convert=lambda is_wanted: "ray" if is_wanted else NOTHING,
)
CUDA_GRAPH_SIZES: Final = _argument(
    "cuda_graph_sizes",
    WHOLE_ITEMS,
    "Older name of option.cudagraph_capture_sizes.",
    to="cudagraph_capture_sizes",
)
POOLER_CONFIG: Final = _argument(
    "override_pooler_config",
    JSON,
    "Older name of option.pooler_config.",
    to="pooler_config",
)
GUIDED_BACKEND: Final = _argument(
    "guided_decoding_backend",
    choice("auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer"),
    "Library that enforces structures of all answers; auto is xgrammar, or guidance with a Tekken "
    "tokenizer of Mistral's. What the library lacks is refused.",
    to="structured_outputs_config.backend",
)
GUIDED_WHITESPACE: Final = _argument(
    "guided_decoding_disable_any_whitespace",
    BOOL,
    "Write structured answers without blanks.",
    to="structured_outputs_config.disable_any_whitespace",
)
GUIDED_PROPERTIES: Final = _argument(
    "guided_decoding_disable_additional_properties",
    BOOL,
    "Allow only the properties a JSON schema names.",
    to="structured_outputs_config.disable_additional_properties",
)
LMCACHE_FILE: Final = Option(
    name="option.lmcache_config_file",
    kind=TEXT,
    scope="lmcache",
    plan_field="environment LMCACHE_CONFIG_FILE",
    help="LMCache's own configuration, relative to the model.",
)
FAST_PATHS: Final = Option(
    name="option.vllm_fast_paths",
    kind=BOOL,
    default=True,
    scope="vllm",
    plan_field="fast_paths",
    help="Make the same answers as vLLM's public API, with less CPU (docs/engines.md).",
)


_adapters: Final = ArgumentRows("adapters", "vllm")

LORA_DTYPE: Final = _adapters("lora_dtype", float_type(), "Type of LoRA weights.", default="auto")
ENABLE_LORA: Final = Option(
    name="option.enable_lora",
    kind=BOOL,
    scope="adapters",
    engine_args={"vllm": "enable_lora", "trtllm": "enable_lora"},
    plan_field="adapters",
    help="Serve LoRA adapters from the model's adapters/ folder.",
)
MAX_LORAS: Final = Option(
    name="option.max_loras",
    kind=whole(1),
    default=4,
    scope="adapters",
    engine_args={"vllm": "max_loras", "trtllm": "lora_config.max_loras"},
    help="Adapters one engine step may mix.",
)
MAX_LORA_RANK: Final = Option(
    name="option.max_lora_rank",
    kind=whole(1),
    default=16,
    scope="adapters",
    engine_args={"vllm": "max_lora_rank", "trtllm": "lora_config.max_lora_rank"},
    help="Largest rank of an adapter.",
)
MAX_CPU_LORAS: Final = Option(
    name="option.max_cpu_loras",
    kind=whole(1),
    scope="adapters",
    engine_args={"vllm": "max_cpu_loras", "trtllm": "lora_config.max_cpu_loras"},
    help="Adapters cached on the host.",
)
FULLY_SHARDED_LORAS: Final = _adapters(
    "fully_sharded_loras",
    BOOL,
    "Split all LoRA arithmetic over the tensor parallel devices.",
)
ADAPTER_ROOTS: Final = Option(
    name="option.adapter_roots",
    kind=TEXT,
    scope="adapters",
    plan_field="adapter_roots",
    help="Folders, separated by commas, from which adapters may be loaded while serving, in "
    "addition to the folder of the model.",
)
ADAPTERS: Final = Option(
    name="option.adapters",
    kind=TEXT,
    default="adapters",
    scope="adapters",
    plan_field="adapters",
    help="Folder, relative to the model, whose sub-folders are adapters.",
)
LORA_MODULES: Final = Option(
    name="option.lora_modules",
    kind=ADAPTER_LIST,
    scope="adapters",
    plan_field="adapters",
    help="Further adapters by name: a folder, relative to the model, or where vLLM runs a hub id. "
    "Needs option.enable_lora.",
)


FRONT_END: Final = "front_end "
"""How the plan field of an argument of the server begins; its name follows."""

ENABLE_AUTO_TOOL_CHOICE: Final = Option(
    name="option.enable_auto_tool_choice",
    kind=BOOL,
    scope="chat",
    plan_field=FRONT_END + "enable_auto_tool_choice",
    help="Let the model decide whether to call a tool; needs option.tool_call_parser.",
)
TOOL_CALL_PARSER: Final = Option(
    name="option.tool_call_parser",
    kind=TEXT,
    scope="chat",
    plan_field=FRONT_END + "tool_call_parser",
    help="vLLM's parser of the model's tool calls, such as hermes or llama3_json.",
)
CHAT_TEMPLATE: Final = Option(
    name="option.chat_template",
    kind=FREE_TEXT,
    scope="chat",
    plan_field=FRONT_END + "chat_template",
    help="Chat template in place of the model's own: a file, relative to the model, or its text.",
)
CHAT_TEMPLATE_CONTENT_FORMAT: Final = Option(
    name="option.chat_template_content_format",
    kind=choice("auto", "string", "openai"),
    default="auto",
    scope="chat",
    plan_field=FRONT_END + "chat_template_content_format",
    help="Whether the template gets a message's content as a string or as OpenAI's parts.",
)
NORMALIZE: Final = Option(
    name="option.normalize",
    kind=BOOL,
    default=True,
    scope="embedding",
    plan_field="normalize",
    help="Scale embeddings to length 1.",
)


_key: Final = ArgumentRows("speculative", "vllm", "speculative_config.")

SPECULATIVE_CONFIG: Final = ArgumentRows("speculative", "vllm")(
    "speculative_config", JSON, "Speculative decoding, as vLLM's JSON object."
)
DRAFT_MODEL: Final = _key(
    "speculative_draft_model",
    TEXT,
    "Draft model: hub id, local folder or s3:// prefix.",
    to="model",
    aliases=("option.speculative_model", "option.draft_model_id"),
)
LENGTH: Final = _key(
    "speculative_length",
    whole(1),
    "Tokens the draft model proposes in a step.",
    to="num_speculative_tokens",
    aliases=("option.num_speculative_tokens", "option.spec_length"),
)
ROWS: Final[tuple[AnyOption, ...]] = (
    _key(
        "draft_model_tp_size",
        whole(1),
        "Tensor parallel degree of the draft model: 1, or that of the model.",
        to="draft_tensor_parallel_size",
        aliases=("option.speculative_draft_tensor_parallel_size",),
    ),
    _key(
        "speculative_model_quantization",
        TEXT,
        "Quantisation of the draft model.",
        to="quantization",
    ),
    _key(
        "speculative_max_model_len",
        whole(1),
        "Longest sequence that is drafted for.",
        to="max_model_len",
    ),
    _key("ngram_prompt_lookup_max", whole(1), "Longest n-gram looked up.", to="prompt_lookup_max"),
    _key("ngram_prompt_lookup_min", whole(1), "Shortest n-gram looked up.", to="prompt_lookup_min"),
    ArgumentRows("lmi-dist", "vllm")(
        "record_acceptance_rate",
        BOOL,
        "Measure per request how many drafted tokens were accepted.",
        to="per_request_spec_decode_metrics",
        convert=lambda is_wanted: "summary" if is_wanted else "none",
    ),
)


LMI_DIST: Final = EngineSpec(
    name="lmi-dist",
    title="LMI-Dist",
    order=1,
    implementation=SPEC.implementation,
    why_implementation="LMI-Dist was vLLM started by MPI",
    rolling_batch="lmi-dist",
    mpi_if_named=True,
    scopes=("vllm", *SPEC.scopes),
    utilization_option="option.gpu_memory_utilization",
)

_older: Final = ArgumentRows("lmi-dist", "vllm")

LMI_DIST_UTILIZATION: Final = _older(
    "gpu_memory_utilization",
    number(0, 1),
    "Share of a device's memory vLLM may take.",
    lmi_default=0.9,
    env=("CUDA_MEMORY_FRACTION",),
)
ENABLE_PREFIX_CACHING: Final = _older(
    "enable_prefix_caching",
    BOOL,
    "Keep KV-cache blocks of prompts that begin alike.",
    lmi_default=False,
)
