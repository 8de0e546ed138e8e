"""The table of the fast paths into vLLM.

This module imports nothing of vLLM, so that documents and commands can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class FastPath:
    """One place where this package reaches into vLLM."""

    name: str
    purpose: str
    """What it is for; a noun phrase."""
    public_way: str
    """What answers the same requests without it; empty if nothing does."""
    cost: str
    """What the public way costs, or what fails without the path."""


PATHS: Final = (
    FastPath(
        name="own_streams",
        purpose="answers made of the core's outputs without vLLM's objects for each token",
        public_way="AsyncLLM.generate and the events of vLLM's server, as they come",
        cost="five to eight times the CPU of the worker a token",
    ),
    FastPath(
        name="fewer_counts",
        purpose="none of the counts that only the metrics page of vLLM's server shows",
        public_way="vLLM counts everything",
        cost="about a quarter more CPU a token",
    ),
    FastPath(
        name="waits",
        purpose="processes on a CPU that sleep while they wait for each other",
        public_way="vLLM's processes wait in a loop",
        cost="on a CPU: half a core while it is idle, and long gaps on some kernels",
    ),
    FastPath(
        name="single_process",
        purpose="a core of one rank on a CPU that computes in its own process",
        public_way="vLLM's own worker process",
        cost="on a CPU: one process more, half a GiB and a slower step",
    ),
    FastPath(
        name="adapter_table",
        purpose="one table of LoRA adapters for the engine and its server",
        public_way="the server's own table, told with the first request of each adapter",
        cost="an adapter is loaded twice",
    ),
    FastPath(
        name="resumption",
        purpose="requests that resume from tokens which another worker generated",
        public_way="none for a request whose worker died: it fails with an error that says so",
        cost="a crash of a worker fails its streams",
    ),
    FastPath(
        name="forced_tokens",
        purpose="resumption of requests with a grammar or penalties, by a plugin in vLLM's core",
        public_way="such requests resume only if they are greedy or have a seed",
        cost="a crash of a worker fails sampled streams with a grammar or penalties",
    ),
    FastPath(
        name="load",
        purpose="how many requests, tokens and adapters the engine has",
        public_way="the worker counts its own requests",
        cost="no metrics of KV cache, drafts and adapters; a hang is found by silence only",
    ),
    FastPath(
        name="defaults",
        purpose="sampling values of the model's own, where a request gives none",
        public_way="the model's generation_config.json, read by this package",
        cost="vLLM's arguments generation_config and override_generation_config change nothing",
    ),
    FastPath(
        name="lora_rows",
        purpose="the model itself next to its adapters, where LoRA runs on a CPU",
        public_way="vLLM's code, whose engine may end",
        cost="on a CPU with LoRA: the model itself may answer as an adapter does, and log "
        "probabilities of two prompts at once end the engine",
    ),
    FastPath(
        name="seeded_steps",
        purpose="seeded requests on a CPU, whose prompt may be computed in several steps",
        public_way="such requests are refused, unless they are greedy",
        cost="on a CPU: sampled requests with a seed are refused, as each may end the engine",
    ),
    FastPath(
        name="media",
        purpose="media that are fetched from listed hosts, whose addresses are looked at",
        public_way="no URL is fetched; data: URLs are read within vLLM's own bounds",
        cost="bodies with http: URLs of media are refused",
    ),
    FastPath(
        name="short_errors",
        purpose="errors that are cut before vLLM looks for paths in them",
        public_way="vLLM's errors, as they are",
        cost="an error that quotes a long text may take long",
    ),
    FastPath(
        name="asked_name",
        purpose="answers that name their model as the client does",
        public_way="the first of the model's names in each answer",
        cost="bills and traces that go by the answer's name have another",
    ),
    FastPath(
        name="whole_tool_calls",
        purpose="whole answers that show of a cut tool call what streams show",
        public_way="vLLM's whole answers, as they are",
        cost="a tool call that is cut is shown as text, and its finish reason may be tool_calls",
    ),
    FastPath(
        name="prefill",
        purpose="Anthropic's messages whose last one is the assistant's, which is continued",
        public_way="vLLM's server, which begins a new message",
        cost="an answer does not continue what its client began",
    ),
)
