"""Which hosts media may be fetched from: names and networks, but none that no list may open."""

import pytest

from lmi_backend.options.media_hosts import MEDIA_HOSTS


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("*", ["*"]),
        ("images.example, CDN.example.", ["images.example", "cdn.example"]),
        ("10.2.0.0/16,192.168.1.7", ["10.2.0.0/16", "192.168.1.7"]),
        ("169.253.255.255", ["169.253.255.255"]),
        ("fd00::1", ["fd00::1"]),
    ],
)
def test_hosts_and_networks_are_listed(text: str, hosts: list[str]) -> None:
    assert MEDIA_HOSTS.parse(text) == hosts


@pytest.mark.parametrize("text", ["0x7f.1", "a/b", "two words", "a,http://b.example", "1.2.3"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which is no host"):
        MEDIA_HOSTS.parse(text)


@pytest.mark.parametrize(
    "text", ["169.254.169.254", "a.example,169.254.0.0/16", "fd00:ec2::254", "0.0.0.0", "ff02::1"]
)
def test_what_may_hand_out_keys_cannot_be_listed(text: str) -> None:
    with pytest.raises(ValueError, match="media are never fetched from"):
        MEDIA_HOSTS.parse(text)
