import pytest

from lmi_backend.frontend.operators.metrics import as_histograms

TRITON = """\
# HELP lmi_requests_total Finished requests, by outcome
# TYPE lmi_requests_total counter
lmi_requests_total{model="m"} 3
# HELP lmi_request_seconds_bucket From a request to its last response
# TYPE lmi_request_seconds_bucket counter
lmi_request_seconds_bucket{le="0.1",model="m"} 1
lmi_request_seconds_bucket{le="+Inf",model="m"} 3
# HELP lmi_request_seconds_count From a request to its last response
# TYPE lmi_request_seconds_count counter
lmi_request_seconds_count{model="m"} 3
# HELP token_count A counter whose name ends so
# TYPE token_count counter
token_count 1
# HELP lmi_request_seconds_sum From a request to its last response
# TYPE lmi_request_seconds_sum counter
lmi_request_seconds_sum{model="m"} 0.5
"""
TYPED = """\
# HELP lmi_requests_total Finished requests, by outcome
# TYPE lmi_requests_total counter
lmi_requests_total{model="m"} 3
# HELP lmi_request_seconds From a request to its last response
# TYPE lmi_request_seconds histogram
lmi_request_seconds_bucket{le="0.1",model="m"} 1
lmi_request_seconds_bucket{le="+Inf",model="m"} 3
lmi_request_seconds_sum{model="m"} 0.5
lmi_request_seconds_count{model="m"} 3
# HELP token_count A counter whose name ends so
# TYPE token_count counter
token_count 1
"""


LONE = "# HELP a_bucket Buckets of water\n# TYPE a_bucket counter\na_bucket 1\n"
"""A counter whose name ends like a part."""


@pytest.mark.parametrize(
    ("text", "typed"), [(TRITON, TYPED), (TYPED, TYPED), (LONE, LONE), ("", "")]
)
def test_three_counters_become_a_histogram_and_the_rest_stays(text: str, typed: str) -> None:
    assert as_histograms(text) == typed
