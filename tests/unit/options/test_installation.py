from pathlib import Path

from lmi_backend.options.installation import plugins_in


def test_a_distribution_that_extends_the_package_is_a_plugin(tmp_path: Path) -> None:
    entries = {
        "vllm-0.33.0": "[vllm.general_plugins]\nlora = vllm.plugins.lora:register\n",
        "other-1.0": "[console_scripts]\nvllm-other = other.main:main\n",
        "vllm_neuron-0.24": "[vllm.platform_plugins]\nneuron = vllm_neuron:register\n",
        "vllm_quant-1": "[a]\nb=c:d\n\n[vllm.general_plugins]\nq=vllmquant.x:y\n[e]\n",
    }
    for name, text in entries.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "entry_points.txt").write_text(text, encoding="utf-8")
    assert plugins_in("vllm", tmp_path / "vllm") == ("vllm_neuron", "vllm_quant")
