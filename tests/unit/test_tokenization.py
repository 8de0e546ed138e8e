"""Token ids as bytes."""

from hypothesis import given
from hypothesis import strategies as st

from lmi_backend.tokenization import ID_BYTES, pack, unpack

IDS = st.lists(st.integers(0, (1 << 31) - 1), min_size=1)


@given(st.lists(IDS))
def test_groups_stay_apart_however_they_are_appended(groups: list[list[int]]) -> None:
    data = b"".join(map(pack, groups))
    assert unpack(data) == groups
    assert len(data) == ID_BYTES * sum(map(len, groups))


def test_no_ids_are_no_bytes() -> None:
    assert (pack([]), unpack(b"")) == (b"", [])
