"""Of a bound that owners share, the owner that holds most pays first."""

from lmi_backend.shares import Shares


def _shares(*held: tuple[str, int]) -> Shares[int]:
    shares: Shares[int] = Shares()
    for number, (owner, size) in enumerate(held):
        shares.add(number, size, owner)
    return shares


def test_an_owner_of_many_small_items_pays_before_one_of_a_single_large_one() -> None:
    shares = _shares(("one", 50), *[("many", 9)] * 10)
    assert list(shares.excess(140)) == []
    assert len(list(shares.excess(100))) == 5
    assert 0 not in list(shares.excess(100))
    # Once both hold as much, the larger item goes.
    assert list(shares.excess(90))[-1] == 0


def test_of_one_owner_the_largest_go() -> None:
    shares = _shares(("", 1), ("", 6), ("", 2), ("", 5))
    assert list(shares.excess(4)) == [1, 3]
    assert list(shares.excess(0)) == [1, 3, 2, 0]


def test_a_newcomer_finds_room_whatever_others_hold() -> None:
    shares = _shares(("a", 60))
    assert [shares.has_room(size, 80, "a") for size in (0, 1)] == [True, False]
    assert [shares.has_room(size, 80, "b") for size in (15, 16)] == [True, False]
    shares.add("b", 15, "b")  # type: ignore[arg-type]
    assert [shares.has_room(size, 80, "c") for size in (3, 4)] == [True, False]


def test_what_is_forgotten_does_not_count() -> None:
    shares = _shares(("a", 3), ("b", 2))
    shares.add(0, 4, "who it is of is known")
    assert (shares.of(0), shares.size, len(shares)) == (7, 9, 2)
    assert (shares.forget(0), shares.forget(0)) == (7, 0)
    assert (shares.of(0), shares.size, shares.largest_owner()) == (0, 2, [1])
