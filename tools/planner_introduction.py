"""What docs/planner.md says before its tables."""

# ruff: noqa: E501  the rows of a table

from __future__ import annotations

from typing import Final

INTRODUCTION: Final = """# What the planner predicts

*For people who size machines: what takes the memory of a GPU, predicted and measured.*

```
lmi-backend plan FOLDER --gpus 1 --gpu-memory 79.19GiB --explain-memory
```

`lmi-backend plan` says what weights, a step and the KV cache take before anything is loaded. It
computes as vLLM does, for the release in the workers' interpreter. With `--explain-memory` it
prints the lines that vLLM would log. **This project has measured nothing on a GPU.** The arithmetic
is read in the sources of vLLM 0.16 to 0.32, and compared with published logs.

Name the GPU (`--gpu L40S`), or give the memory that vLLM sees, which is less than on the box: an
H100 with 80 GB has 79.19 GiB. On the machine itself `plan` reads both from `nvidia-smi`. That has
not been seen on a GPU either.

A step has 2048 tokens unless `option.max_rolling_batch_prefill_tokens` says otherwise. That is
vLLM's default outside its own server, which uses 8192 on large GPUs.

## What is deducted

These are deducted from `gpu_memory_utilization` times the memory of the device:

| part | what it is |
| --- | --- |
| weights | the device's share. Norms, routers, indexers and what makes latent vectors are whole on each device; keys and values have no more parts than KV heads. Latent attention has a second copy of what unfolds its vectors, of 16 bits. MXFP4's experts are widened for their kernels |
| rotations of all positions, among the weights | whole on each device: one set for each kind of layer, four times the positions for images and videos, and as many times as positions are stretched (Gemma-3: 8) |
| peak activation | the larger of two: the layers of a trial run, or the sampling of its logits |
| two workspaces of experts | they stay through the trial run |
| non-torch memory | CUDA, NCCL and FlashInfer, see below |
| CUDA graphs, from 0.20 on | 40 MiB, and 3.3 MiB and 0.145 MiB a layer for each graph; 0.45 GiB more for the kernels of NVFP4 |
| the same on an Instinct of AMD's | 3 GiB more |
| counts for penalties, from 0.27 on | what the second runner makes before the trial run |

Sampling has `max_num_seqs` rows of logits:

| release | bytes a logit | because of |
| --- | --- | --- |
| until 0.16 | 38 | PyTorch's sort |
| from 0.17 on | 14 | Triton's or FlashInfer's sampling |
| from 0.22 on for some models, from 0.29 on for all | 2 | the second model runner |

Non-torch memory in GiB:

| where | until 0.17 | from 0.18 on |
| --- | --- | --- |
| each device | 0.13 | 0.25 |
| an Instinct of AMD's | 1.2 | 1.4 |
| tensor parallelism on Hopper adds, for NVLink's multicast | 0.42 | 0.42 |
| or, with FlashInfer's fused all-reduce (from 0.17 on, Hopper, without stages) | 1.83 | 1.83 |
| sampling by FlashInfer in the first model runner adds (from 0.22 on) | | 0.65 |
| the same in a model with states | | 0.3 |

Only these constants are measured, in published logs. Non-torch memory is from logs with one, two
and four devices: four logs of two and four L40S, RTX PRO 6000 and GB200 have nothing more than
those of one. Graphs are from the estimates that 0.19 logs. Three logs show the 0.65 and
four the 0.3. vLLM
extrapolates graphs from two of them, so its own figure for one model differs by 0.2 GiB and more.

## What is left

The rest becomes blocks of the KV cache. Layers of one kind (all of the text, a window, a state)
are divided into groups, of as many layers as the rarest kind has. The blocks of all groups have one size. A
block of attention has as many tokens as a state needs.

In the log, "GPU KV cache size" is blocks divided by groups until 0.20.1. From 0.20.2 on it is the maximum
concurrency times the longest sequence. For models of one kind both are the same; for others compare
GiB. `tests/contract/test_vllm_layout.py` computes 134 mixtures of layers with the installed vLLM,
and the planner has the same blocks and tokens.

Of the first table one log is of 0.20 or later. What these releases deduct is read in their sources,
and compared with the logs of the last table.

| what | counted | not counted |
| --- | --- | --- |
| a vision encoder | its weights, and the embeddings that stay from its trial run | the rest of its trial run |
| a draft model or MTP layers | weights; the KV cache if the model has layers of one kind, or if the draft's see the whole text as the model's do (MTP) | |
| their steps | their pass, which follows the model's. In the first model runner also a rejected guess of each sequence | their graphs, which are in the range |
| drafted tokens | in layers with a state one state more for each | |
| LoRA | its buffers for attention, MLPs, experts, embeddings and head, in the weights. Three logs of one model have 9 % more for each slot | those of other modules |

DeepSeek-V4 caches compressed text, windows and what waits for its compression; vLLM 0.32 makes the
same blocks and tokens of its own model. Ranks of decode context parallelism divide a sequence's
tokens; those of prefill are further devices.

A plan says which of these it does not count. The installed vLLM gives the same blocks for drafts, and two
logs check their weights.

The fields of the models come from 23 published files in `tests/data/planner/published.json`, with
their addresses. 55 more files are in `unseen.json` and `quoted.json`. The parameters of 36 of these are
as many as are published, to 1 %. The Hub could not be reached for the other models: their fields are written by hand,
and the measured weights and tokens of each row check them. Where a file lacks a field, the plan takes
the default of the model's config class (`lmi_backend/sizing/class_defaults.json`, recorded from
Transformers and vLLM) and names it. vLLM's own models of 66 classes say what each layer caches
(`tools/record_kv_specs.py`): bytes and windows are the planner's, but for one class. For 125
classes that vLLM serves, the parameters are compared with the model that Transformers makes from the
defaults. They agree to 1.5 %, except for 14 classes whose files differ from their defaults, and for
classes without sizes.

## Ranges

A plan has the fewest and the most tokens that are possible. These uncertainties count:

| of | uncertainty |
| --- | --- |
| computed weights | 1 % |
| quantised weights, and those with encoders | 5 % |
| a step, until 0.19 on Hopper, without states and images | 0.15 GiB |
| any other step | 1 GiB, 35 % of the activations and half of the graphs |
| an encoder's trial run | 1.7 GiB more, below the estimate |
| LoRA's buffers | 15 % more, below; all of them above |
| graphs with drafts | as much again, below |
| graphs that the second runner does not deduct (0.22 to 0.28) | all of them, below |
| an Instinct of AMD's | 3 GiB, on both sides |
| graphs of gated delta nets from 0.26 on, among which vLLM counts a trial run ([#50780](https://github.com/vllm-project/vllm/issues/50780)) | the activations, below |
| graphs of B200 and its like ([#45178](https://github.com/vllm-project/vllm/issues/45178)) | 7 GiB more, below |

A model is refused for its size only if the upper end does not fit. A field of config.json with
unknown meaning is named as "not counted".
"""

LOGS = """
## Logs of 2026

`tests/data/planner/measured_2026.csv` has 74 logs, nearly all of 2026. The table has those of a model with known
sizes, from its own file or from one of the same sizes (`models_2026.json`). The error of a row counts
if its device, share and step are published. It is of the tokens, else of the GiB of cache. The planner
has the blocks and groups of all of them to 0.1 %, but for a build of somebody's own (0.2 %).
`tools/planner_tables.py` writes this table. No log with settings was found of an A10G, nor of a T4 with
a model whose quantised parts are known. Where a log does not name its GPU, its capability and size do.

A start of MiniMax-M3 on two devices has the keys of its sparse attention to the token.

The newest 19 rows with settings were planned before anything was changed for them. They are of V100,
RTX 2000 Ada, A100, L40S, H100 with 94 GB, RTX 5090, RTX PRO 6000 and GB10. Two kinds are AMD's, MI300X
and an APU. Some have several devices or stages. All were in their ranges then. The sentence below the table has their
errors then and now.

Few logs are known of any one kind of GPU, so no constant is fitted for a kind alone. What was fitted
is fitted again without each row, and the error that this gives for the row left out stands below the
table. `tests/unit/test_published_logs.py` plans every start of both tables: none that went well is
refused, and for none that failed does a plan say that it fits without a doubt.

From 0.22 to 0.28 the second model runner deducts nothing for its graphs. The logs of quantised models
and of stages lack as much all the same, so the plan counts them there. Six logs of other models do
not, and there it does not. Four pairs of logs are of one model with LoRA. Its first start compiles while
it is tried, and has a peak 0.65 to 0.94 GiB higher than a later one. The lower end of the
range is such a start's. On an RTX 4090 a first start and a later one of a small model were the same.

Of AMD's, a MI300X has two logs of one model that name its parts. Graphs are 3.9 GiB there, and libraries
1.4 GiB. Three more logs do not name them. MI250, MI325X and MI355X have the same figures, their maker's
memory, and a range as wide.

vLLM estimates graphs by two of each kind, multiplied. On B200 and its like two logs have estimates of 7.1
GiB for 0.07 GiB, and 33 for 8.6. `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0` turns the estimate off. Such rows, and one with an estimate
below nothing, say nothing of kernels and are not in the last table.

A GB10 shares the host's memory. There vLLM measures what the whole machine has left, and logs of
one model differ by a GiB and more.
"""
