"""What several owners hold of one bound: the owner that holds most pays first.

`excess` names what is to be deleted. Where nothing can be, `has_room` leaves room for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
FREE_BYTES: Final = 1 << 16
"""Of each item that cannot be deleted; not counted, so that small ones always find room."""
_TIMES: Final = 3
"""What is left free, times this: an owner may hold as much."""


class Shares(Generic[Item]):
    """Counts the bytes of items by owner."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all items."""
        self._owners: dict[Item, str] = {}
        self._items: defaultdict[str, dict[Item, int]] = defaultdict(dict)
        self._totals: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, item: Item, size: int, owner: str = "") -> None:
        """Count so many bytes more, or fewer, for an item, and for its first named owner."""
        owner = self._owners.setdefault(item, owner)
        items = self._items[owner]
        items[item] = items.get(item, 0) + size
        self._totals[owner] += size
        self.size += size

    def of(self, item: Item) -> int:
        owner = self._owners.get(item)
        return 0 if owner is None else self._items[owner][item]

    def has_room(self, size: int, most: float, owner: str = "") -> bool:
        """Tell whether an owner may hold so many bytes more, of `most` for all.

        Alone it may hold three quarters of them, and the next owner three quarters of the rest.
        """
        held = self._totals.get(owner, 0) + size
        return held <= _TIMES * (most - self.size - size)

    def forget(self, item: Item) -> int:
        """Count an item no longer; return what its bytes were."""
        owner = self._owners.pop(item, None)
        if owner is None:
            return 0
        items = self._items[owner]
        size = items.pop(item)
        self._totals[owner] -= size
        self.size -= size
        if not items:
            del self._items[owner], self._totals[owner]
        return size

    def largest_owner(self) -> list[Item]:
        """Return the items of the owner that holds most, in the order in which they were added."""
        return list(self._items[max(self._totals, key=self._totals.__getitem__)])

    def excess(self, most: float) -> Iterator[Item]:
        """Yield the items without which the others have no more than so many bytes.

        Each is the largest of the owner that then holds most.
        """
        if self.size <= most:
            return
        left = {owner: sorted(items, key=items.__getitem__) for owner, items in self._items.items()}
        totals, size = dict(self._totals), self.size
        while size > most and totals:
            owner = max(totals, key=totals.__getitem__)
            if not left[owner]:
                del totals[owner]
                continue
            item = left[owner].pop()
            freed = self.of(item)
            totals[owner] -= freed
            size -= freed
            yield item
