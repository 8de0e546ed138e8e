"""LiteLLM's proxy, asked with the packages of OpenAI and over HTTP."""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import openai
from results import KEY, MODEL, URL, run

CHAT: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
OWN_KEY = "sk-of-the-proxy"


def _start() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp())
    model = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{URL}/v1", "api_key": KEY}
    named = [{"model_name": MODEL, "litellm_params": model}]
    # JSON is YAML.
    (folder / "config.yaml").write_text(json.dumps({"model_list": named}), encoding="utf-8")
    words = ["--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    program = Path(sys.executable).with_name("litellm")
    with (folder / "log").open("wb") as log:
        proxy = subprocess.Popen(
            [str(program), *words, "--telemetry", "False"],
            env=os.environ | {"LITELLM_MASTER_KEY": OWN_KEY},
            stdout=log,
            stderr=log,
        )
    atexit.register(proxy.wait)
    atexit.register(proxy.terminate)
    reached = f"http://127.0.0.1:{port}"
    while proxy.poll() is None:
        try:
            if httpx.get(f"{reached}/health/liveliness").is_success:
                return reached
        except httpx.TransportError:
            time.sleep(0.2)
    raise SystemExit((folder / "log").read_text("utf-8", "replace")[-2000:])


proxy_url = _start()
client = openai.OpenAI(base_url=f"{proxy_url}/v1", api_key=OWN_KEY, max_retries=0)


def chat() -> Any:
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0)
    return answer.choices[0].message.content


def streamed() -> Any:
    stream = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def messages() -> Any:
    answer = httpx.post(
        f"{proxy_url}/v1/messages",
        headers={"x-api-key": OWN_KEY},
        json={"model": MODEL, "messages": CHAT, "max_tokens": 50, "temperature": 0},
        timeout=120,
    )
    return answer.json()["content"][0]["text"]


def responses() -> Any:
    question = CHAT[0]["content"]
    return client.responses.create(model=MODEL, input=question, temperature=0).output_text


def bad_value() -> Any:
    client.chat.completions.create(model=MODEL, messages=CHAT, temperature=-1)


if __name__ == "__main__":
    run(globals())
