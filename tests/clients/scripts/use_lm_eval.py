"""`lm-eval`: log likelihoods of the choices of a task, and generated answers."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager
from results import KEY, MODEL, URL, run

os.environ["OPENAI_API_KEY"] = KEY
TOKENIZER = Path(__file__).resolve().parents[3] / "examples" / "tiny" / "llama"
folder = Path(tempfile.mkdtemp())
CAPITALS = {"Italy": "Rome.", "Japan": "Tokyo.", "France": "Paris."}


def _task(name: str, question: str, answer: str, **more: Any) -> None:
    documents = [
        {
            "question": question.format(country),
            "choices": list(CAPITALS.values()),
            "label": place,
            "answer": answer.format(country, city),
        }
        for place, (country, city) in enumerate(CAPITALS.items())
    ]
    lines = [f"{json.dumps(document)}\n" for document in documents]
    (folder / f"{name}.json").write_text("".join(lines), encoding="utf-8")
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.json")}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        **more,
    }
    # JSON is YAML.
    (folder / f"{name}.yaml").write_text(json.dumps(task), encoding="utf-8")


_task(
    "likely",
    "The capital of {} is",
    "",
    output_type="multiple_choice",
    doc_to_choice="choices",
    doc_to_target="label",
    metric_list=[{"metric": "acc"}],
)
GENERATED: Any = {
    "output_type": "generate_until",
    "doc_to_target": "answer",
    "metric_list": [{"metric": "exact_match", "ignore_case": True}],
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 20, "temperature": 0},
}
_task("written", "The capital of {} is", " {1}", **GENERATED)
_task("asked", "What is the capital of {}?", "The capital of {0} is {1}", **GENERATED)


def _score(model: str, path: str, task: str, metric: str, **more: Any) -> Any:
    reached = {"model": MODEL, "base_url": f"{URL}/v1/{path}", "tokenizer": str(TOKENIZER)}
    evaluated = lm_eval.simple_evaluate(
        model=model,
        # One request at a time: vLLM's LoRA on a CPU dies of the log probabilities of two prompts.
        model_args=reached | {"max_length": 256, "num_concurrent": 1},
        tasks=[task],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        **more,
    )
    return evaluated["results"][task][f"{metric},none"]


CASES = {
    "loglikelihood": lambda: _score("local-completions", "completions", "likely", "acc"),
    "generate_until": lambda: _score("local-completions", "completions", "written", "exact_match"),
    "chat": lambda: _score(
        "local-chat-completions",
        "chat/completions",
        "asked",
        "exact_match",
        apply_chat_template=True,
    ),
}

if __name__ == "__main__":
    run(globals() | CASES)
