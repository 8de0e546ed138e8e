"""The `openai` package against a server that is full or not ready at first."""

import threading
from collections.abc import Callable
from typing import Any

import openai
from results import KEY, MODEL, URL, run

COUNT = 4


def retried() -> Any:
    """Ask more at once than the queue takes; each is answered in the end."""
    texts: list[Any] = []

    def ask() -> None:
        client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=20)
        answer = client.completions.create(model=MODEL, prompt="a b c", max_tokens=20)
        texts.append(answer.choices[0].text)

    _at_once(ask, COUNT)
    return texts


def not_retried() -> Any:
    """The same without retries, until some are told to come again."""
    answers: list[Any] = []
    while not answers:
        _flood(answers)
    return answers


def _flood(answers: list[Any]) -> None:
    together = threading.Barrier(2 * COUNT)

    def ask() -> None:
        client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
        # What takes longest is to make a client.
        together.wait()
        try:
            client.completions.create(model=MODEL, prompt="a b c", max_tokens=20)
        except openai.InternalServerError as error:
            after = error.response.headers.get("retry-after")
            answers.append([error.status_code, after, error.body])

    _at_once(ask, 2 * COUNT)


def _at_once(ask: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    run(globals())
