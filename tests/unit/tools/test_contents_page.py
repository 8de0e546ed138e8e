"""The contents of the documentation, and the page of the options that most people use."""

import re

import contents_page

from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import find_option

DOCS = contents_page.CONTENTS.parent


def test_the_common_options_are_twenty_that_exist() -> None:
    text = (DOCS / "common-options.md").read_text("utf-8")
    names = re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
    assert len(set(names)) == len(names) == 20
    signature = recorded_signature("vllm")
    assert signature
    taken = signature.arguments.keys() | signature.server.keys()
    for name in names:
        assert find_option(name, "vllm") or name.removeprefix("option.") in taken, name
