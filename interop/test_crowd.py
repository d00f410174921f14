"""Many IKE SAs that are begun at once, with default timers.

`CROWD=1000 interop/run -n0 -s test_crowd.py` also begins so many between two gateways, and of so many gateways with one, and
says how long that takes.
"""

import copy
import os
import signal
import time

import pytest
from ends import esplanade_pair, ids, start
from harness.esplanade import Esplanade
from harness.namespaces import Namespace
from harness.process import run, wait_until
from harness.settings import PSK, Settings, pair

# Those of both kinds of daemon.
TIMERS = {"retransmit_timeout": 4.0, "retransmit_tries": 5}
CROWD = int(os.environ.get("CROWD", "0"))


def connections(topology, count: int) -> tuple[Settings, Settings]:
    """`count` connections between the same two addresses, told apart by their identities. A is to have all of them up."""
    pairs = pair(topology, inner=4)
    for settings, (own, peer) in zip(pairs, ("ab", "ba")):
        site = settings.connections.pop("site")
        for number in range(count):
            one = settings.connections[f"site-{number}"] = copy.deepcopy(site)
            # charon has an address in what is B's.
            net = {"a": f"10.{64 + number // 256}.{number % 256}.0/24", "b": topology.b.lan4}
            one["local"]["id"], one["remote"]["id"] = (f"{end}{number}.esplanade.test" for end in (own, peer))
            child = one["children"].pop("net") | {"local_ts": net[own], "remote_ts": net[peer]}
            one["children"] = {f"net-{number}": child}
            if own == "a":
                child["start_action"] = "start"
        settings.secrets = {"ike-all": {"secret": PSK}}
    return pairs


def up(end) -> int:
    states = [child["state"] for sas in end.sas().values() for sa in sas for child in sa.get("child-sas", {}).values()]
    return states.count("INSTALLED")


def wait_for_all(ends, count: int, timeout: float) -> None:
    for end in ends:
        wait_until(f"{count} at {end.name}", lambda: up(end) >= count, timeout, step=0.2)
        assert up(end) == count
        assert len(end.sas()) == count


@pytest.mark.parametrize("ends", [("esplanade", "charon"), esplanade_pair], ids=ids)
def test_a_hundred_connections_with_a_peer_that_takes_few_half_open(ends, topology, daemon):
    settings_a, settings_b = connections(topology, 100)
    # As many as strongSwan takes of one address (`block_threshold`); what is more it drops without a word.
    settings_b.gateway |= {"half_open_per_source_max": 5, "half_open_per_network_max": 5}
    wait_for_all(start(daemon, ends, (settings_a, settings_b), **TIMERS), 100, 50)


if CROWD:

    @pytest.mark.esplanade_only
    @pytest.mark.alone
    def test_a_crowd_of_connections_with_default_limits(topology, daemon):
        settings_a, settings_b = connections(topology, CROWD)
        started = copy.deepcopy(settings_a)
        for number in range(CROWD):
            del settings_a.child(f"site-{number}", f"net-{number}")["start_action"]
        a, b = start(daemon, esplanade_pair, (settings_a, settings_b), **TIMERS)
        begun = time.monotonic()
        a.load(started)
        wait_for_all((b, a), CROWD, 300)
        print(f"{CROWD} connections: all up after {time.monotonic() - begun:.1f} s, load {os.getloadavg()[0]:.1f}")

    class Peer(Esplanade):
        """One of many, in a namespace of its own behind `wan`."""

        def __init__(self, number: int, topology, folder):
            self.number = number
            self.address = f"172.20.{number // 250}.{1 + number % 250}"
            space = Namespace(f"{topology.wan.name}-{number}")
            super().__init__(f"peer {number}", space, folder / str(number), export_keys=False,
                             retransmit_timeout=4.0, retransmit_tries=5)
            self.gateway |= {"log_level": "warn", "workers": 1}

        def answers(self) -> bool:
            """Before that a SIGHUP is lost."""
            try:
                return self.sas() == {}
            except OSError:
                return False

        def settings(self, site, start_action: str) -> Settings:
            one = copy.deepcopy(site) | {"local_addrs": self.address}
            one["local"]["id"] = f"{self.number}.rw.esplanade.test"
            net = f"10.{64 + self.number // 256}.{self.number % 256}.0/24"
            one["children"]["net"] |= {"local_ts": net, "start_action": start_action}
            return Settings(connections={"site": one}, secrets={"ike-all": {"secret": PSK}})

    def connect(peers, topology) -> None:
        """Neighbours are fixed: the kernel keeps few others for all namespaces together."""
        hub, router, peer = topology.b.wan4, "02:00:00:00:00:01", "02:00:00:00:00:02"

        def batch(lines, *options):
            run(["ip", *options, "-batch", "-"], stdin="".join(f"{line}\n" for line in lines), timeout=300)

        batch(f"netns add {one.space.name}" for one in peers)
        batch(f"link add p{one.number} address {router} netns {topology.wan.name} type veth "
              f"peer name wan address {peer} netns {one.space.name}" for one in peers)
        batch([line for one in peers for line in (
            f"link set p{one.number} addrgenmode none up", f"route add {one.address}/32 dev p{one.number}",
            f"neigh add {one.address} lladdr {peer} dev p{one.number} nud permanent")], "-n", topology.wan.name)
        for one in peers:
            batch(["link set lo up", "link set wan addrgenmode none up", f"address add {one.address}/32 dev wan", "route add default dev wan",
                   f"neigh add {hub} lladdr {router} dev wan nud permanent"], "-n", one.space.name)

    @pytest.mark.esplanade_only
    @pytest.mark.alone
    def test_a_crowd_of_gateways_with_default_limits(topology, daemon, folder):
        settings_a, settings_b = pair(topology, inner=4)
        at_b = settings_b.connections["site"]
        at_b["remote_addrs"], at_b["remote"]["id"] = "%any", "*.rw.esplanade.test"
        at_b["children"]["net"]["remote_ts"] = "10.64.0.0/10"
        settings_b.secrets = {"ike-all": {"secret": PSK}}
        hub = daemon("esplanade", "b", **TIMERS)
        hub.start(settings_b)
        peers = [Peer(number, topology, folder) for number in range(CROWD)]
        connect(peers, topology)
        try:
            processes = [peer.launch(peer.settings(settings_a.connections["site"], "none")) for peer in peers]
            for peer in peers:
                wait_until(f"{peer.name} answers", peer.answers, 300)
            for peer in peers:
                peer.write(peer.settings(settings_a.connections["site"], "start"))
            begun = time.monotonic()
            for process in processes:
                process.send_signal(signal.SIGHUP)
            wait_until(f"{CROWD} at the hub", lambda: up(hub) >= CROWD, 300, step=0.5)
            print(f"{CROWD} gateways: all up after {time.monotonic() - begun:.1f} s, load {os.getloadavg()[0]:.1f}")
        finally:
            for peer in peers:
                peer.kill()
