"""Which program stands at which end. A initiates, so the order says who does."""

import pytest
from harness.process import wait_until
from harness.traffic import ping

# With strongSwan both ways round, and with itself.
ENDS = [("esplanade", "charon"), ("charon", "esplanade"), ("esplanade", "esplanade")]
WITH_PEER = ENDS[:2]


def ids(ends):
    return f"{ends[0]}-to-{ends[1]}"


# Where the data plane is tested, both ends being Esplanade is a case of its own.
each_end = pytest.mark.parametrize("ends", ENDS, ids=ids)
with_peer = pytest.mark.parametrize("ends", WITH_PEER, ids=ids)
esplanade_pair = ("esplanade", "esplanade")


def every_end(test):
    """Where IKE is tested. Both ends being Esplanade is what the tests of crates/ike are about: a part of it is drawn."""
    return pytest.mark.drawn(each_end(test))


def start(daemon, ends, settings, **options):
    """Both daemons, started; B first, so that A may initiate at once."""
    a, b = (daemon(kind, end, **options) for kind, end in zip(ends, "ab"))
    b.start(settings[1])
    a.start(settings[0])
    return a, b


def establish(daemon, ends, settings, **options):
    a, b = start(daemon, ends, settings, **options)
    a.up()
    a.wait_installed()
    b.wait_installed()
    return a, b


def delete_device(topology):
    """Takes the TUN device away from a; the gateway makes it again."""
    there = ["ip", "link", "show", "esp0"]
    topology.gw_a.run(["ip", "link", "del", "esp0"])
    wait_until("it is there again", lambda: topology.gw_a.run(there, check=False).returncode == 0)
    wait_until("traffic goes on", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1))


def set_queues(topology, number):
    """Gives both ends of gateway A's link so many queues."""
    for space, link in ((topology.gw_a, "wan"), (topology.wan, "to_a")):
        space.run(["ethtool", "-L", link, "rx", str(number), "tx", str(number)])


def make_anew(topology, *, mtu=1500, queues=1):
    """Deletes the link of gateway A, and makes it again with its addresses and routes."""
    gateway, far = topology.gw_a, topology.wan
    gateway.run(["ip", "link", "delete", "wan"])
    gateway.run(["ip", "link", "add", "wan", "mtu", str(mtu), "type", "veth",
                 "peer", "name", "to_a", "netns", far.name, "mtu", str(mtu)])
    set_queues(topology, queues)
    ends = [(gateway, "wan", topology.a.wan4, topology.a.wan6), (far, "to_a", "172.16.1.1", "fd00:1::1")]
    for space, link, v4, v6 in ends:
        space.run(["ip", "link", "set", link, "up"])
        space.run(["ip", "address", "add", f"{v4}/24", "dev", link])
        space.run(["ip", "address", "add", f"{v6}/64", "dev", link, "nodad"])
    for via in ("172.16.1.1", "fd00:1::1"):
        gateway.run(["ip", "route", "add", "default", "via", via])
