"""What TensorRT-LLM's clients do who put an ensemble together by themselves.

Read at triton-inference-server/tensorrtllm_backend, commit 89ee0f2 (v0.19):
tools/inflight_batcher_llm/end_to_end_test.py, whose first test asks `preprocessing`, the core model
and `postprocessing` in turn, and compares with what the ensemble says.
"""

from typing import Any

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.support.answers.triton_client import tensors
from tests.support.servers.serving import Served

PROMPT = "The capital of Italy is"


def ask(served: Served, model: str, arrays: dict[str, Any]) -> Any:
    inputs = tensors(tritonclient.http, arrays)
    with tritonclient.http.InferenceServerClient(served.http) as client:
        return client.infer(model, inputs, request_id="0")


def question(prompt: str = PROMPT, tokens: int = 8, **more: str) -> dict[str, Any]:
    words = {"BAD_WORDS_DICT": "", "STOP_WORDS_DICT": ""} | more
    return {
        "QUERY": np.array([[prompt]]).astype(object),
        **{name: np.array([[word]], dtype=object) for name, word in words.items()},
        "REQUEST_OUTPUT_LEN": np.ones_like([[prompt]]).astype(np.int32) * tokens,
    }


def test_the_steps_say_what_the_ensemble_says(served: Served) -> None:
    read = ask(served, "tiny_preprocessing", question())
    core = {
        "input_ids": "INPUT_ID",
        "decoder_input_ids": "DECODER_INPUT_ID",
        "input_lengths": "REQUEST_INPUT_LEN",
        "request_output_len": "REQUEST_OUTPUT_LEN",
        "end_id": "OUT_END_ID",
        "pad_id": "OUT_PAD_ID",
        "bad_words_list": "BAD_WORDS_IDS",
        "stop_words_list": "STOP_WORDS_IDS",
    }
    made = ask(
        served, "tiny_trtllm_infer", {name: read.as_numpy(ours) for name, ours in core.items()}
    )
    tokens = {
        "TOKENS_BATCH": made.as_numpy("output_ids").astype(np.int32),
        "SEQUENCE_LENGTH": made.as_numpy("sequence_length"),
    }
    written = ask(served, "tiny_postprocessing", tokens).as_numpy("OUTPUT")
    whole = {
        "text_input": np.array([[PROMPT]]).astype(object),
        "max_tokens": np.array([[8]], dtype=np.int32),
    }
    ensemble = ask(served, "tiny_trtllm_infer", whole).as_numpy("text_output")
    assert written == ensemble
    assert written[0].decode().startswith(PROMPT)
    assert len(written[0]) > len(PROMPT)


def test_words_come_as_the_core_model_reads_them(served: Served) -> None:
    read = ask(served, "tiny_preprocessing", question(STOP_WORDS_DICT="one, two"))
    ids, ends = read.as_numpy("STOP_WORDS_IDS")[0]
    assert ids.shape == ends.shape
    assert 0 < ends[0] < ends[1]
    assert read.as_numpy("BAD_WORDS_IDS").tolist() == [[[0], [-1]]]
    assert read.as_numpy("OUT_END_ID").shape == (1, 1)
    squeezed = np.squeeze(read.as_numpy("INPUT_ID").astype(np.int32), axis=0)
    assert squeezed.tolist() == read.as_numpy("INPUT_ID")[0].tolist()


def lengths(*each: int) -> dict[str, Any]:
    return {
        "TOKENS_BATCH": np.array([[[5, 6]] * len(each)], dtype=np.int32),
        "SEQUENCE_LENGTH": np.array([each], dtype=np.int32),
    }


@pytest.mark.parametrize(
    ("model", "arrays", "message"),
    [
        ("tiny_preprocessing", question(DECODER_QUERY="a"), "DECODER_QUERY is not served"),
        ("tiny_preprocessing", question("word " * 9999), "characters"),
        ("tiny_preprocessing", {"QUERY": question()["QUERY"]}, "REQUEST_OUTPUT_LEN is missing"),
        ("tiny_postprocessing", lengths(2, 2), "is for several beams"),
        ("tiny_postprocessing", lengths(3), "0 to 2, the length of TOKENS_BATCH"),
        ("echo_preprocessing", question(), "has no tokenizer"),
    ],
)
def test_what_is_not_served_is_refused(
    served: Served, model: str, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InferenceServerException, match=message):
        ask(served, model, arrays)
