"""Classes with the methods of vLLM 0.11 to 0.16 and of 0.17, as their sources have them."""

from lmi_backend.engines.vllm.cpu import rename


def test_until_0_16_the_name_is_changed_before_it_is_used() -> None:
    class Shared:
        def __init__(self) -> None:
            self.group_name = "//-tp:0-[0-1]-cpushm"
            self.handle = self._init_cpu_shm()

        def _init_cpu_shm(self) -> str:
            return self.group_name

    rename(Shared, "group7-host")
    assert Shared().handle == "group7-host--tp:0-[0-1]-cpushm"


def test_since_0_17_it_is_made_so() -> None:
    class Shared:
        def __init__(self) -> None:
            self.group_name = self.make_group_name("tp:0")

        @staticmethod
        def make_group_name(communicator: str) -> str:
            return f"//-{communicator}-cpushm"

    rename(Shared, "group7-host")
    assert Shared().group_name == "group7-host--tp:0-cpushm"
    assert Shared.make_group_name("pp:0") == "group7-host--pp:0-cpushm"
