"""`huggingface_hub`'s InferenceClient."""

from typing import Any

from huggingface_hub import InferenceClient
from results import KEY, MODEL, URL, run

PROMPT = "The capital of Italy is"
ASKED: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
# It has no field for the model; a server of one model needs none.
NAMED = {"x-amzn-sagemaker-target-model": MODEL}
client = InferenceClient(URL, token=KEY, headers=NAMED)


def details() -> Any:
    answer = client.text_generation(PROMPT, details=True, decoder_input_details=True)
    details_of_answer = answer.details
    return [
        answer.generated_text,
        details_of_answer.finish_reason,
        details_of_answer.generated_tokens,
        "".join(token.text for token in details_of_answer.tokens),
        [token.special for token in details_of_answer.tokens][-1],
        len(details_of_answer.prefill) > 2,
    ]


def streamed_details() -> Any:
    parts = list(client.text_generation(PROMPT, stream=True, details=True, max_new_tokens=3))
    last = parts[-1]
    return [
        [event.index for event in parts],
        "".join(event.token.text for event in parts),
        last.generated_text,
        [last.details.finish_reason, last.details.generated_tokens] if last.details else None,
    ]


def stop() -> Any:
    answer = client.text_generation(PROMPT, stop=["om"], details=True)
    return [answer.generated_text, answer.details.finish_reason]


def generate_stream() -> Any:
    other = InferenceClient(f"{URL}/generate_stream", token=KEY, headers=NAMED)
    return "".join(other.text_generation(PROMPT, stream=True))


def best_of() -> Any:
    answer = client.text_generation(
        PROMPT, best_of=2, do_sample=True, details=True, max_new_tokens=4
    )
    return len(answer.details.best_of_sequences or [])


def chat() -> Any:
    other = InferenceClient(base_url=URL, token=KEY)
    answer = other.chat_completion(ASKED, model=MODEL, temperature=0)
    return answer.choices[0].message.content


def chat_streamed() -> Any:
    stream = client.chat_completion(ASKED, temperature=0, stream=True)
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


CASES = {
    "text": lambda: client.text_generation(PROMPT),
    "streamed": lambda: "".join(client.text_generation(PROMPT, stream=True)),
    "full_text": lambda: client.text_generation(PROMPT, return_full_text=True),
    # The path of which the answer is no list.
    "generate": lambda: InferenceClient(
        f"{URL}/generate", token=KEY, headers=NAMED
    ).text_generation(PROMPT),
    "wrong_value": lambda: client.text_generation(PROMPT, max_new_tokens=-1),
    "wrong_key": lambda: InferenceClient(URL, token="wrong").text_generation(PROMPT),
}

if __name__ == "__main__":
    run(globals() | CASES)
