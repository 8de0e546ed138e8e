"""A package with the layout of vLLM's source, as far as its command line is read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILES: Final = {
    "__init__.py": "raise SystemExit('imported')\n",
    "_version.py": "__version__ = version = '0.33.0'\n",
    "engine/arg_utils.py": """\
from typing import TYPE_CHECKING, Any
from vllm.config import CacheConfig, ModelConfig, PoolConfig, SpeculativeConfig
from vllm.config.cache import CacheDType, Policy
from vllm.config.reasoning import ReasoningConfig
from vllm.utils.argparse_utils import FlexibleArgumentParser

if TYPE_CHECKING:
    from vllm.model_executor.layers.quantization import QuantizationMethods
else:
    QuantizationMethods = str


@dataclass
class EngineArgs:
    model: str = ModelConfig.model
    served_model_name: str | list[str] | None = None
    max_logprobs: int = 20
    policy: Policy | None = None
    kv_cache_dtype: CacheDType | str = CacheConfig.cache_dtype
    quantization: QuantizationMethods | str | None = ModelConfig.quantization
    enable_prefix_caching: bool | None = None
    pool_config: PoolConfig = get_field(ModelConfig, "pool_config")
    speculative_config: dict[str, Any] | None = None
    spec_method: str | None = None
    reasoning_parser: str = ""
    reasoning_config: ReasoningConfig | None = None
    device_name: str = "auto"
    disable_log_stats: bool = False
    hidden: int = 0

    def __post_init__(self):
        if isinstance(self.pool_config, dict):
            self.pool_config = PoolConfig(**self.pool_config)

    @staticmethod
    def add_cli_args(parser: FlexibleArgumentParser):
        model_kwargs = get_kwargs(ModelConfig)
        cache_kwargs = get_kwargs(CacheConfig)
        drafts = get_kwargs(SpeculativeConfig)
        for name in ("--served-model-name", "--max-logprobs"):
            parser.add_argument(name)
        group = parser.add_argument_group(title="ModelConfig")
        group.add_argument("--model", **model_kwargs["model"])
        group.add_argument("--policy", "-p", **cache_kwargs["policy"])
        group.add_argument("--kv-cache-dtype", **{**cache_kwargs["cache_dtype"], "default": None})
        group.add_argument("--quantization", **model_kwargs["quantization"])
        group.add_argument("--enable-prefix-caching", **cache_kwargs["enable_prefix_caching"])
        group.add_argument("--pool-config", **model_kwargs["pool_config"])
        group.add_argument("--speculative-config", type=json.loads)
        group.add_argument("--spec-method", **drafts["method"])
        group.add_argument("--reasoning-parser", **model_kwargs["reasoning_parser"])
        group.add_argument("--reasoning-config", **model_kwargs["reasoning_config"])
        group.add_argument("--device-name", choices=["auto", "cpu"])
        group.add_argument("--disable-log-stats", action="store_true")

    def create_speculative_config(self):
        return SpeculativeConfig(**self.speculative_config)


@dataclass
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
""",
    "config/__init__.py": """\
from .cache import CacheConfig
from .pool import *
from vllm.config.speculative import SpeculativeConfig
""",
    "config/cache.py": """\
CacheDType = Literal["auto", "fp8"]
Policy: TypeAlias = Literal[
    "fcfs",  # the first
    "priority",
]


@config
class CacheConfig:
    cache_dtype: CacheDType | str = "auto"
""",
    "config/pool.py": """\
@config
class PoolConfig:
    kind: Literal["mean", "last"] = "mean"
    backend: Literal["flash", "plain"] = "flash"
    dimensions: int | None = None
    made: int = Field(default=0, init=False)

    @field_validator("backend", mode="before")
    def _fold(cls, value):
        return value.lower()

    @field_validator("kind", mode="after")
    def _keep(cls, value):
        return value
""",
    "config/reasoning.py": """\
from vllm.reasoning import ReasoningParserManager


@config
class ReasoningConfig:
    start: str = ""
""",
    "config/speculative.py": """\
Eagle = Literal["eagle", "eagle3"]
SpeculativeMethod = Literal["ngram", "draft_model", Eagle]


@config(config=ConfigDict(arbitrary_types_allowed=True))
class SpeculativeConfig:
    method: SpeculativeMethod | None = None
    model: str | None = None
    num_speculative_tokens: int = Field(default=None, gt=0)
    prompt_lookup_max: int | None = None
""",
    "model_executor/layers/quantization/__init__.py": """\
QuantizationMethods = Literal["awq", "fp8"]
""",
    "model_executor/models/registry.py": """\
_PREVIOUSLY_SUPPORTED_MODELS = {"QWenLMHeadModel": "0.23.0", "OddForCausalLM": "0.32.0"}
""",
    "reasoning/__init__.py": """\
from .abs_reasoning_parsers import ReasoningParserManager

_TO_REGISTER = {"qwen3": ("qwen3_parser", "Qwen3")}
for name, (file, cls) in _TO_REGISTER.items():
    ReasoningParserManager.register_lazy_module(name, file, cls)
""",
    "reasoning/abs_reasoning_parsers.py": "class ReasoningParserManager: ...\n",
    "tool_parsers/__init__.py": "from .abstract_tool_parser import ToolParserManager\n",
    "tool_parsers/abstract_tool_parser.py": '''\
class ToolParserManager:
    """ToolParserManager.register_module("shown only")"""
''',
    "tool_parsers/hermes.py": """\
@ToolParserManager.register_module("hermes")
class Hermes: ...


@ToolParserManager.register_module(["llama3_json", "llama4_json"])
class Llama: ...


ToolParserManager.register_lazy_module(name="kimi_k2", module_path="a", class_name="b")
""",
    "utils/argparse_utils.py": """\
class EnableDisableAction(BooleanOptionalAction):
    _inverse_prefixes = {"--enable-": "--disable-", "--disable-": "--enable-"}


class FlexibleArgumentParser(ArgumentParser):
    labels = {"--a-": "not of the action"}
""",
    "entrypoints/common/cli_args.py": """\
from vllm.tool_parsers import ToolParserManager


@config
class BaseFrontendArgs:
    lora_modules: list[LoRAModulePath] | None = None
    engine_plugins: list[PluginPath] | None = None
    chat_template: str | None = None
    reasoning_effort_map: dict[str, str] | None = None
    response_role: str = "assistant"
    enable_auto_tool_choice: bool = False
    enable_log_deltas: bool = True
    max_log_len: int | None = None
    tool_call_parser: str | None = None
    tags: list[str] | None = None
    strict: Literal["auto", "all"] = "auto"


@config
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
    middleware: list[str] | None = None
""",
}


def write_tree(folder: Path, **changes: tuple[str, str]) -> Path:
    """Write the package below a folder, and return it.

    Args:
        changes: what is replaced in a file, and by what; the file by its name without `.py`.
    """
    package = folder / "vllm"
    for name, text in FILES.items():
        old, new = changes.pop(Path(name).stem, ("", ""))
        assert old in text, name
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    assert not changes, "there are no such files"
    return package
