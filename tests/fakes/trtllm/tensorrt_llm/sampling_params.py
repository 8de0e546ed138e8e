from typing import Any


class GuidedDecodingParams:
    def __init__(
        self,
        json: Any = None,
        regex: str | None = None,
        grammar: str | None = None,
        json_object: bool = False,
        structural_tag: str | None = None,
    ) -> None:
        if sum(bool(each) for each in (json, regex, grammar, json_object, structural_tag)) > 1:
            raise ValueError("Only one guide can be used for a request")


class SamplingParams:
    def __init__(
        self,
        *,
        end_id: int | None = None,
        pad_id: int | None = None,
        max_tokens: int = 32,
        bad: Any = None,
        bad_token_ids: Any = None,
        stop: Any = None,
        stop_token_ids: Any = None,
        include_stop_str_in_output: bool = False,
        embedding_bias: Any = None,
        logits_processor: Any = None,
        apply_batched_logits_processor: bool = False,
        n: int = 1,
        best_of: int | None = None,
        use_beam_search: bool = False,
        top_k: int | None = None,
        top_p: float | None = None,
        top_p_min: float | None = None,
        top_p_reset_ids: int | None = None,
        top_p_decay: float | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        min_tokens: int | None = None,
        beam_search_diversity_rate: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        length_penalty: float | None = None,
        early_stopping: int | None = None,
        no_repeat_ngram_size: int | None = None,
        min_p: float | None = None,
        beam_width_array: Any = None,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        return_context_logits: bool = False,
        return_generation_logits: bool = False,
        exclude_input_from_output: bool = True,
        return_encoder_output: bool = False,
        return_perf_metrics: bool = False,
        additional_model_outputs: Any = None,
        lookahead_config: Any = None,
        guided_decoding: Any = None,
        ignore_eos: bool = False,
        detokenize: bool = True,
        add_special_tokens: bool = True,
        truncate_prompt_tokens: int | None = None,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        if top_p is not None and not 0 <= top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={top_p}")
        if top_k is not None and top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={top_k}")
        if temperature is not None and temperature < 0:
            raise ValueError(f"require temperature >= 0, got temperature={temperature}")
        is_greedy = temperature == 0 or top_k == 1 or top_p == 0
        is_greedy = is_greedy or all(each is None for each in (temperature, top_k, top_p))
        if best_of is not None and best_of > 1 and is_greedy:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns")
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
