import typing

import msgspec
import pytest

from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc import rejoining

TO_WORKER = typing.get_args(msg.ToWorker)
FROM_WORKER = typing.get_args(msg.FromWorker)
FROM_CLIENT = typing.get_args(msg.FromClient)
TO_CLIENT = typing.get_args(msg.ToClient)


def test_each_message_goes_one_way_and_none_is_forgotten() -> None:
    declared = {
        kind
        for module in (msg, rejoining)
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and name[0] != "_"
        # Parts of others.
        and kind not in (rejoining.Keep, rejoining.Before)
    }
    assert {*TO_WORKER, *FROM_WORKER, *FROM_CLIENT, *TO_CLIENT} == declared
    assert not set(TO_WORKER) & set(FROM_WORKER)


@pytest.mark.parametrize("kind", [*TO_WORKER, *FROM_WORKER])
def test_a_message_is_a_frozen_tagged_array(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.array_like, config.tag) == (True, True, kind.__name__)


def test_a_message_in_the_wrong_direction_is_refused() -> None:
    data = msgspec.msgpack.encode(msg.Stop())
    assert msgspec.msgpack.decode(data, type=msg.ToWorker) == msg.Stop()
    with pytest.raises(msgspec.ValidationError, match="Stop"):
        msgspec.msgpack.decode(data, type=msg.FromWorker)


def test_a_field_that_was_appended_later_may_be_missing() -> None:
    data = msgspec.msgpack.encode(["Output", 7, ["text", 1]])
    assert msgspec.msgpack.decode(data, type=msg.FromWorker) == msg.Output(7, Delta("text", 1))
