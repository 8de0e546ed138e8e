"""The pages for people who come from another server."""

from __future__ import annotations

from pathlib import Path

from lmi_page import lmi_pages
from others_page import others_pages


def migration_pages() -> dict[Path, str]:
    """Return the pages with the tables of today."""
    return lmi_pages() | others_pages()
