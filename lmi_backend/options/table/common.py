"""Options that mean the same for every engine: model, mode, sizes, the format of answers."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import (
    BOOL,
    FREE_TEXT,
    LONGEST_WAIT,
    MOST_DEVICES,
    PAIRS,
    TEXT,
    Kind,
    auto_or,
    choice,
    degree,
    float_type,
    number,
    one_of,
    whole,
)
from lmi_backend.options.spec import NOTHING, SPECS, Option
from lmi_backend.structures import DEFAULT_BOUNDS


def _rolling_batches() -> tuple[str, ...]:
    return (
        "auto",
        "disable",
        *(each.rolling_batch for each in SPECS.values() if each.rolling_batch),
    )


def _engine_word(text: str) -> str:
    try:
        return choice("Python", "MPI", "DeepSpeed").parse(text)
    except ValueError:
        raise ValueError(
            "is an engine that is not served here: LLMs run on engine=Python, where "
            "option.rolling_batch names the library, and embedding models with "
            "option.task=text-embedding; for other models Triton has backends of its own"
        ) from None


ENGINE: Final = Option(
    name="engine",
    prefixed_env="OPTION_ENGINE",
    kind=Kind("enum", _engine_word, "Python, MPI, DeepSpeed", ""),
    default="Python",
    plan_field="mode",
    help="Process model of LMI: Python runs one process per worker, MPI a group of ranks.",
)
MPI_MODE: Final = Option(
    name="option.mpi_mode",
    kind=BOOL,
    plan_field="mode",
    help="Start each worker as MPI ranks.",
)
MPI_HOSTFILE: Final = Option(
    name="option.mpi_hostfile",
    kind=TEXT,
    plan_field="hosts",
    help="Open MPI's hostfile: a line for each machine that shares the model, this one first.",
)
MPI_OPTIONS: Final = Option(
    name="option.mpi_options",
    kind=FREE_TEXT,
    plan_field="mpi_options",
    help="Further arguments of mpirun, as in a shell.",
)
ASYNC_MODE: Final = Option(
    name="option.async_mode",
    kind=BOOL,
    default=True,
    plan_field="dialect",
    help="LMI's request flow, which chooses the defaults of LMI bodies. Default: false where "
    "rolling_batch names an engine.",
)
ROLLING_BATCH: Final = Option(
    name="option.rolling_batch",
    kind=one_of(_rolling_batches),
    default="auto",
    plan_field="engine",
    help="Continuous batching engine. echo is ours: it repeats the prompt, for dry runs.",
)
ENTRY_POINT: Final = Option(
    name="option.entryPoint",
    prefixed_env="OPTION_ENTRYPOINT",
    kind=TEXT,
    env=("DJL_ENTRY_POINT",),
    plan_field="engine",
    help="LMI's handler: a djl_python.* name chooses the engine. A .py file is a handler of your "
    "own, as is a model.py next to the properties.",
)
HANDLER: Final = Option(
    name="option.handler",
    kind=TEXT,
    default="handle",
    plan_field="custom_handler",
    help="Name of the function in a model.py that answers requests.",
)
PYTHON_EXECUTABLE: Final = Option(
    name="option.pythonExecutable",
    kind=TEXT,
    env=("PYTHON_EXECUTABLE",),
    plan_field="python",
    help="Interpreter of the worker; it must have the engine. Default: the server's own.",
)
ENV: Final = Option(
    name="option.env",
    kind=PAIRS,
    plan_field="environment",
    help="Variables added to the worker's environment.",
)
MODEL_ID: Final = Option(
    name="option.model_id",
    kind=TEXT,
    # The last is vLLM's and TensorRT-LLM's own name.
    aliases=("option.s3url", "option.model"),
    env=("HF_MODEL_ID",),
    plan_field="model",
    help="Hub id, local folder or s3:// prefix. Default: the folder of serving.properties.",
)
REVISION: Final = Option(
    name="option.revision",
    kind=TEXT,
    env=("HF_REVISION", "HF_MODEL_REVISION"),
    help="Branch, tag or commit of a hub model.",
)
TRUST_REMOTE_CODE: Final = Option(
    name="option.trust_remote_code",
    kind=BOOL,
    env=("HF_MODEL_TRUST_REMOTE_CODE",),
    help="Run Python code that comes with the model.",
)
DTYPE: Final = Option(
    name="option.dtype",
    kind=float_type("int8"),
    default="auto",
    aliases=("option.data_type",),
    help="Type of weights and activations.",
)
EMBEDDING: Final = frozenset({"text-embedding", "feature-extraction", "embed", "embedding"})
"""Values of option.task for models that make vectors."""

TASK: Final = Option(
    name="option.task",
    kind=choice("auto", "generate", "text-generation", "classify", *sorted(EMBEDDING)),
    default="auto",
    else_ignored="LMI knows no such task, and leaves it to the model",
    env=("HF_TASK",),
    plan_field="is_embedding",
    convert=lambda task: NOTHING if task in ("auto", "generate", "text-generation") else "pooling",
    help="What the model is used for: text-embedding, feature-extraction, embed and embedding make "
    "vectors, classify classes. Any other value is auto.",
)
TENSOR_PARALLEL_DEGREE: Final = Option(
    name="option.tensor_parallel_degree",
    kind=degree(),
    default="max",
    aliases=("option.tensor_parallel_size",),
    env=("TENSOR_PARALLEL_DEGREE", "SM_NUM_GPUS"),
    plan_field="tensor_parallel_degree",
    help="Devices each layer is split over; max is all visible, 1 without a device. Default: as "
    "few as the model fits on.",
)
PIPELINE_PARALLEL_DEGREE: Final = Option(
    name="option.pipeline_parallel_degree",
    kind=whole(1, MOST_DEVICES),
    default=1,
    aliases=("option.pipeline_parallel_size",),
    env=("PIPELINE_PARALLEL_DEGREE",),
    plan_field="pipeline_parallel_degree",
    help="Stages the layers are split into.",
)
MAX_ROLLING_BATCH_SIZE: Final = Option(
    name="option.max_rolling_batch_size",
    kind=whole(1),
    default=256,
    aliases=("option.max_num_seqs",),
    env=("MAX_BATCH_SIZE",),
    plan_field="max_running",
    help="Sequences that run at once in one worker; more wait their turn.",
)
MAX_PREFILL_TOKENS: Final = Option(
    name="option.max_rolling_batch_prefill_tokens",
    kind=whole(1),
    aliases=("option.max_num_batched_tokens",),
    env=("MAX_BATCH_PREFILL_TOKENS",),
    unused="this engine has no token budget of a step",
    help="Tokens one engine step may process.",
)
OUTPUT_FORMATTER: Final = Option(
    name="option.output_formatter",
    kind=TEXT,
    plan_field="dialect",
    help="LMI's answer format. Its presence chooses LMI's older defaults.",
)
TGI_COMPAT: Final = Option(
    name="option.tgi_compat",
    kind=BOOL,
    plan_field="dialect",
    help="Answers in TGI's shape. Its presence chooses LMI's older defaults.",
)
OPENAI_STREAMS: Final = Option(
    name="option.openai_streams",
    kind=choice("events", "lines"),
    default="events",
    plan_field="dialect",
    help="Streams to OpenAI bodies on /invocations: server-sent events, or JSON lines as of LMI.",
)
LMI_DIALECT: Final = Option(
    name="option.lmi_dialect",
    kind=choice("auto", "legacy", "async"),
    default="auto",
    plan_field="dialect",
    help="Whose defaults an LMI body gets. legacy: greedy unless the body samples; async: samples.",
)
PARALLEL_LOADING: Final = Option(
    name="option.parallel_loading",
    kind=BOOL,
    plan_field="parallel_loading",
    help="Load several workers at the same time instead of one after another. Default: "
    "on devices, if the host's memory holds the weights of all of them.",
)
MODEL_LOADING_TIMEOUT: Final = Option(
    name="option.model_loading_timeout",
    kind=whole(1, LONGEST_WAIT),
    default=1800,
    env=("MODEL_LOADING_TIMEOUT",),
    overriding_env=("SAGEMAKER_STARTUP_TIMEOUT",),
    plan_field="load_timeout",
    help="Seconds a worker may take to become ready.",
)
PREDICT_TIMEOUT: Final = Option(
    name="option.predict_timeout",
    kind=whole(1, LONGEST_WAIT),
    default=240,
    env=("PREDICT_TIMEOUT",),
    overriding_env=("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",),
    plan_field="request_timeout",
    help="Seconds a request may run.",
)
HANG_TIMEOUT: Final = Option(
    name="option.hang_timeout",
    kind=whole(0, LONGEST_WAIT),
    default=120,
    plan_field="hang_timeout",
    help="Seconds without a step, while it has requests, after which an engine is restarted; 0: "
    "never. Only vLLM's are counted; its first 8 may take option.model_loading_timeout each.",
)
MIGRATION_TIMEOUT: Final = Option(
    name="option.migration_timeout",
    kind=auto_or(number(0)),
    default="auto",
    plan_field="migration_timeout",
    help="Seconds that a request waits for a worker while none is ready, to begin or to resume. "
    "auto: three times a start and 15. 0: it fails at once.",
)
MIGRATION_LIMIT: Final = Option(
    name="option.migration_limit",
    kind=whole(0),
    default=3,
    plan_field="migration_limit",
    help="Times a request resumes elsewhere when its worker dies.",
)
RESUMABLE: Final = Option(
    name="option.resumable",
    kind=BOOL,
    plan_field="resumable",
    help="Give each event of a stream an id. A client whose connection breaks can then reconnect "
    "with Last-Event-ID, and receives the rest. false: only for requests with the header "
    "X-LMI-Resumable: 1.",
)
RESUME_WINDOW: Final = Option(
    name="option.resume_window",
    kind=whole(0, LONGEST_WAIT),
    default=60,
    plan_field="resume_window",
    help="Seconds that such an answer is kept, and generated, while its client is disconnected. 0: "
    "none is kept.",
)
SPARE_WORKERS: Final = Option(
    name="option.spare_workers",
    kind=auto_or(whole(0)),
    default="auto",
    plan_field="spare_workers",
    help="Workers that have a spare: a second process that has imported the engine, and loads the "
    "model when the worker dies or is restarted. On a CPU it has loaded the model, if memory for a "
    "second one is left. vLLM's takes about 1 GiB of memory without the model, and none of a GPU. "
    "Less than 4 GiB available: none is made. auto: 1 for one worker of vLLM in Python mode, else "
    "0.",
)
LOG_REQUESTS: Final = Option(
    name="option.log_requests",
    kind=BOOL,
    plan_field="log_requests",
    help="Write a line for each request into Triton's log: id, outcome, tokens, times; no text.",
)
STOP_BY_ID: Final = Option(
    name="option.stop_by_id",
    kind=BOOL,
    default=True,
    plan_field="stop_by_id",
    help="Let clients in the format of TensorRT-LLM stop a running request by its id (`stop`). Any "
    "client can name any id; false refuses it.",
)
MAX_OUTPUT_SIZE: Final = Option(
    name="option.max_output_size",
    kind=whole(1024),
    default=67_108_864,
    env=("MAX_NETTY_BUFFER_SIZE",),
    plan_field="max_message_size",
    help="Largest message between stub and worker, in bytes. A longer request is refused. A longer "
    "answer, or a longer response of a stream, fails.",
)
MAX_STRUCTURE_SIZE: Final = Option(
    name="option.max_structure_size",
    kind=whole(1),
    default=DEFAULT_BOUNDS.size,
    plan_field="structure_bounds",
    help="Bytes of the largest grammar, schema or list of tools in a request: it is compiled on "
    "the cores that serve all streams.",
)
MAX_STRUCTURE_CHOICES: Final = Option(
    name="option.max_structure_choices",
    kind=whole(1),
    default=DEFAULT_BOUNDS.choices,
    plan_field="structure_bounds",
    help="Members of the longest list in a structured output: choices, an enum, the rules or lines "
    "of a grammar. It also limits the lists stop, bad_words, logit_bias and allowed_token_ids.",
)
MAX_STRUCTURE_DEPTH: Final = Option(
    name="option.max_structure_depth",
    kind=whole(1),
    default=DEFAULT_BOUNDS.depth,
    plan_field="structure_bounds",
    help="Objects and lists within each other in a structured output. Its references may lead to "
    "eight times as many places.",
)
MAX_STRUCTURE_REPEATS: Final = Option(
    name="option.max_structure_repeats",
    kind=whole(0),
    default=DEFAULT_BOUNDS.repeats,
    plan_field="structure_bounds",
    help="Characters of a pattern or a grammar that are repeated, written out: a{1,20} has 20; ?, "
    "* and + count as 8. All patterns of a request may have five times as many, and sixteen times "
    "as many groups, classes and repetitions.",
)
STREAM_INTERVAL: Final = Option(
    name="option.stream_interval",
    kind=whole(1),
    default=1,
    plan_field="stream_interval",
    help="Tokens a streamed response has at least, but for the first and last of an answer.",
)
STREAM_FLUSH: Final = Option(
    name="option.stream_flush_ms",
    kind=auto_or(number(0)),
    default="auto",
    plan_field="stream_flush",
    help="Milliseconds in which the tokens of a stream share a response; auto: by the load, to 50.",
)
CLUSTER_SIZE: Final = Option(
    name="option.cluster_size",
    kind=whole(1, MOST_DEVICES),
    default=1,
    prefixed_env="DJL_CLUSTER_SIZE",
    plan_field="nodes",
    help="Machines that share one model.",
)
