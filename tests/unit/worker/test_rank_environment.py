import ipaddress
import socket

from lmi_backend.worker.starting import network_variables, own_address


def test_ranks_on_one_machine_need_nothing() -> None:
    assert network_variables({}) == {}
    assert network_variables({"MASTER_ADDR": "127.0.0.1"}) == {}
    assert network_variables({"MASTER_ADDR": "localhost"}) == {}


def test_the_way_to_another_machine_has_an_address_and_an_interface() -> None:
    # A documentation network (RFC 5737): no packet is sent.
    try:
        address = own_address("192.0.2.1")
    except OSError:
        # No route leads out of here, which is an answer too.
        return
    made = network_variables({"MASTER_ADDR": "192.0.2.1"})
    assert made["VLLM_HOST_IP"] == address
    assert not ipaddress.ip_address(address).is_loopback
    assert made["GLOO_SOCKET_IFNAME"] in [name for _, name in socket.if_nameindex()]
