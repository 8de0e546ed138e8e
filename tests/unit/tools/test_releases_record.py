import releases_record


def test_a_release_has_run_if_a_test_passed() -> None:
    ran = {"tests": {"python": {"passed": 1, "failed": []}}}
    failed = {"tests": {"python": {"passed": 0, "failed": ["a"]}}}
    results = {
        "vllm-0.9": {"version": "0.9.0", **ran},
        "vllm-0.40": {"version": "0.40.0+cpu", **ran},
        "vllm-0.5": {"version": "0.5.0", **ran},
        "vllm-0.41": {"version": "0.41.0", **failed},
        "triton-24.03": {"version": "0.50.0", **ran},
    }
    assert releases_record.releases_run(results) == ["0.5.0", "0.9.0", "0.40.0"]
    assert releases_record.PATH.read_text(encoding="utf-8") == releases_record.releases_record()
