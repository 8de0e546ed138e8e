from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import LmiOptions, examine_options, resolve_options
from lmi_backend.options.abbreviations import argument_of
from lmi_backend.options.classification import status_of
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import chat, common, lora, server, vllm
from lmi_backend.options.table.variables import SERVER_FLAGS
from lmi_backend.options.vllm_image import flags


def resolve(environment: Mapping[str, str], text: str = "") -> LmiOptions:
    return resolve_options(parse_properties(text), environment, folder=Path("/models/m"))


def test_each_variable_is_a_flag_of_vllm() -> None:
    options = resolve(
        {
            "SM_VLLM_MODEL": "org/m",
            "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
            "SM_VLLM_MAX_MODEL_LEN": "32K",
            "SM_VLLM_DTYPE": "half",
            "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "",
            "SM_VLLM_SEED": "3",
            "SM_VLLM_SHUTDOWN_TIMEOUT": "8",
            "SM_VLLM_NO_ENABLE_PREFIX_CACHING": "",
        }
    )
    assert options[common.MODEL_ID] == "org/m"
    assert options[common.TENSOR_PARALLEL_DEGREE] == 2
    assert options[vllm.MAX_MODEL_LEN] == 32 << 10
    assert options[vllm.DTYPE] == "float16"
    assert options[chat.ENABLE_AUTO_TOOL_CHOICE]
    assert options[server.SHUTDOWN_TIMEOUT] == 8
    assert options.passthrough["seed"].name == "SM_VLLM_SEED"
    assert options.passthrough["enable_prefix_caching"].value == "false"


def test_they_are_weaker_than_lmis_and_stronger_than_bare_ones() -> None:
    both = {"SM_VLLM_MODEL": "org/image", "HF_MODEL_ID": "org/bare"}
    assert resolve(both)[common.MODEL_ID] == "org/image"
    assert resolve({**both, "OPTION_MODEL_ID": "org/lmi"})[common.MODEL_ID] == "org/lmi"
    assert resolve(both, "option.model_id=org/file")[common.MODEL_ID] == "org/file"


def test_what_is_no_option_of_the_image_is_left() -> None:
    assert not list(flags({"SM_VLLM_": "1", "SM_NUM_GPUS": "2", "SM_VLLM_PORT": "8080"}))


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("SM_VLLM_API_KEY", "have --api-keys"),
        ("SM_VLLM_SSL_KEYFILE", "have --tls-certificate"),
        ("SM_SGLANG_MODEL_PATH", "SGLang is not served here"),
        ("SM_VLLM_MAX_MODEL_LEN", "is not a number of tokens"),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_name(variable: str, problem: str) -> None:
    with pytest.raises(OptionError, match=f"environment: {variable}=.*{problem}"):
        resolve({variable: "some-value"})


@pytest.mark.parametrize("name", sorted(SERVER_FLAGS))
def test_a_flag_of_vllms_server_has_one_outcome_however_it_is_written(name: str) -> None:
    status = SERVER_FLAGS[name]
    known = recorded_signature("vllm")
    assert known is not None
    assert argument_of(name, known) == name
    assert status_of(f"option.{name}", "vllm", known).word == status.word
    spellings = {f"SM_VLLM_{name.upper()}": "x"}
    if status.word == "refused":
        written = f"VLLM_{name.upper()}"
        spellings |= {written: "x", "OPTION_ENV": f"A=1,{written}=x"}
    for variable, value in spellings.items():
        options, errors = examine_options(Path("/models/m"), {variable: value})
        assert [status.detail in str(each) for each in errors] == [True] * len(errors)
        assert bool(errors) == (status.word == "refused"), variable
        assert {each.status.word for each in options.classifications} <= {status.word, "mapped"}


def test_where_vllms_server_would_listen_is_ignored(tmp_path: Path) -> None:
    options, errors = examine_options(tmp_path, {"SM_VLLM_PORT": "8080"})
    assert not errors
    assert [found.status.word for found in options.classifications] == ["ignored"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "true"),
        ("True ", "true"),
        (" 8 ", "8"),
        ("[4096]", "4096"),
        ('["a"]', "a"),
        ('["a,b"]', '["a,b"]'),
        ("[1, 2, 4]", "[1, 2, 4]"),
        ('["a", true, {"b": 1}]', '["a", true, {"b": 1}]'),
        ('[{"name": "a", "path": "/a"}]', '{"name": "a", "path": "/a"}'),
        ('{"a":1} {"b":2}', '[{"a": 1}, {"b": 2}]'),
        ('{"a":1}\n{"b":2}', '[{"a": 1}, {"b": 2}]'),
        ('{"a": {"b": 1},\n "c": 2}', '{"a": {"b": 1},\n "c": 2}'),
        ("{% for m in messages %}{{ m }} {% endfor %}",) * 2,
        ('[{"name":"a","path":}]',) * 2,
        ('{"a":1} b',) * 2,
        ("[" * 100_000 + "]",) * 2,
    ],
)
def test_a_value_is_the_words_that_the_image_makes_of_it(value: str, text: str) -> None:
    ((key, setting),) = flags({"SM_VLLM_X": value})
    assert (key, setting.value) == ("option.x", text)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("SM_VLLM_ENABLE_PREFIX_CACHING", "false", "SM_VLLM_NO_ENABLE_PREFIX_CACHING= turns off"),
        ("SM_VLLM_NO_ENABLE_PREFIX_CACHING", "False ", "leave out a flag whose value is false"),
        ("SM_VLLM_CUSTOM_OPS", "[]", "leave out the flag of an empty list"),
    ],
)
def test_a_flag_that_the_image_leaves_out_is_ignored(
    tmp_path: Path, variable: str, value: str, reason: str
) -> None:
    options, errors = examine_options(tmp_path, {variable: value})
    (found,) = options.classifications
    assert (errors, options.passthrough, options.values) == ([], {}, {})
    assert found.status.word == "ignored"
    assert reason in found.status.detail


def test_adapters_are_named_as_vllms_server_takes_them() -> None:
    for value in (
        '[{"name":"a","path":"/l/a"},{"name":"b","path":"/l/b","base_model_name":"m"}]',
        '{"name":"a","path":"/l/a"} {"name":"b","path":"/l/b"}',
        '["a=/l/a", "b=/l/b"]',
        "a=/l/a,b = /l/b",
    ):
        options = resolve({"SM_VLLM_LORA_MODULES": value, "SM_VLLM_ENABLE_LORA": "true"})
        assert options[lora.LORA_MODULES] == {"a": "/l/a", "b": "/l/b"}
