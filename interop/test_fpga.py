"""`engine = fpga`: Esplanade negotiates, and the FPGA core, simulated cycle by cycle, carries the packets both ways."""

import pytest
from ends import WITH_PEER, esplanade_pair, ids, start
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import Flow, assert_ping, assert_whole, ping, transfer

pytestmark = pytest.mark.esplanade_only

SIZE = 150_000


def with_core(daemon, ends, settings, at):
    """The daemons, with the core in the gateway at the end `at`, and that gateway."""
    settings["ab".index(at)].gateway["engine"] = "fpga"
    try:
        daemons = start(daemon, ends, settings)
    except HarnessError as error:
        if "no FPGA device" in str(error):
            pytest.skip("the program was built without the simulated core")
        raise
    return *daemons, daemons["ab".index(at)]


def connect(a, b, initiator):
    initiator.up(timeout=30)
    a.wait_installed()
    b.wait_installed()


def exercise(topology, version=4):
    a, b = topology.host_a, topology.host_b
    to_b, to_a = topology.b.host(version), topology.a.host(version)
    wait_until(f"first ping to {to_b}", lambda: ping(a, to_b, count=1, timeout=2), timeout=10)
    assert_ping(a, to_b, timeout=5)
    assert_ping(b, to_a, timeout=5)
    # Fragments inside the tunnel.
    wait_until("pings of 4000 bytes", lambda: ping(a, to_b, count=2, size=4000, timeout=3) == 2, timeout=20)
    transfer(a, b, to_b, size=SIZE)
    transfer(b, a, to_a, size=SIZE)


def lanes(gateway):
    """Packets that each lane of the core let out, and everything that it dropped."""
    counters = gateway.status()["counters"]
    core = counters["core"]
    dropped = {(lane, reason): count for lane, section in core.items() for reason, count in section.items()
               if reason not in ("packets", "bytes") and count}
    return core["outbound"]["packets"], core["inbound"]["packets"], dropped, counters


def assert_carried(gateway):
    """Core, software and SA agree on who has carried the packets, and that these are enough for the files."""
    child = gateway.installed()[0]
    assert child["engine"] == "fpga", child

    def agree():
        now = lanes(gateway)
        return now if now[1] == now[3]["inbound"]["packets-out"] else None

    # The last packets of a connection may come between the two.
    outbound, inbound, dropped, counters = wait_until("the core's count of opened packets is the software's", agree)
    assert not dropped
    assert outbound >= counters["outbound"]["packets-out"]
    assert min(outbound, inbound) > SIZE // 1400
    return outbound, inbound


@pytest.mark.parametrize("ends, esp", [
    (WITH_PEER[0], "aes256gcm16"), (WITH_PEER[0], "aes128gcm16"), (WITH_PEER[0], "aes256ctr-sha256"),
    (WITH_PEER[0], "aes128ctr-sha256"), (WITH_PEER[1], "aes256gcm16"),
    (WITH_PEER[1], "aes256ctr-sha256")], ids=lambda value: value if isinstance(value, str) else ids(value))
def test_the_core_carries_a_tunnel(ends, esp, topology, daemon):
    """strongSwan at the other end: IKE, keys through registers, pings and files; then new keys. ESP is in UDP, as
    strongSwan's user-space ESP wants it."""
    settings = pair(topology, esp=esp)
    a, b, gateway = with_core(daemon, ends, settings, "ab"[ends.index("esplanade")])
    connect(a, b, a)
    for version in (4, 6):
        exercise(topology, version)
    outbound, inbound = assert_carried(gateway)
    status = gateway.status()
    assert status["engine"]["name"] == "fpga" and status["engine"]["installed-out"] == 1
    text = gateway.command("status").stdout
    assert "engine  fpga" in text and "fpga (simulated)" in text, text
    old = {child["spi-in"] for child in a.children()}
    a.rekey_child()
    wait_until("the new child SA alone", lambda: len(a.installed()) == 1 and len(a.children()) == 1
               and a.installed()[0]["spi-in"] not in old)
    exercise(topology)
    again = assert_carried(gateway)
    assert again[0] > outbound and again[1] > inbound


@pytest.mark.parametrize("topology", [{"nat": True}], indirect=True, ids=["nat"])
def test_the_core_behind_a_nat(topology, daemon):
    """NAT traversal: B, with the core, lives behind a masquerading router and initiates."""
    a, b, gateway = with_core(daemon, ("charon", "esplanade"), pair(topology, inner=4), "b")
    connect(a, b, b)
    exercise(topology)
    assert_carried(gateway)
    assert gateway.installed()[0]["encap"] == "yes"
    assert gateway.sas()["site"][0].get("nat-local") == "yes"


@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
def test_the_core_carries_protocol_50(outer, topology, daemon):
    """Without UDP, between the core and the CPU engine; with extended sequence numbers."""
    settings = pair(topology, outer=outer, inner=4, esp="aes256gcm16-esn")
    a, b, gateway = with_core(daemon, esplanade_pair, settings, "a")
    connect(a, b, a)
    exercise(topology)
    assert_carried(gateway)
    assert "encap" not in gateway.installed()[0]
    assert "engine" not in b.installed()[0]
    assert b.counter("drops.authentication-failed") == 0


def test_what_the_core_cannot_do_the_cpu_does(topology, daemon):
    """An SA that the core has no cipher for, beside one that it carries."""
    settings = pair(topology, inner=4, esp="aes128-sha256")
    a, b, gateway = with_core(daemon, esplanade_pair, settings, "a")
    connect(a, b, a)
    exercise(topology)
    child = gateway.installed()[0]
    assert child["engine"] == "cpu" and "algorithms" in child["engine-reason"]
    assert "engine  cpu: the FPGA core cannot do" in gateway.command("status").stdout
    assert "the CPU carries the child SA" in gateway.logs()
    # The core saw every packet from inside and gave it back.
    outbound, inbound, dropped, _ = lanes(gateway)
    assert outbound > SIZE // 1400 and inbound == 0 and not dropped


def test_traffic_asks_for_an_sa_through_the_core(topology, daemon):
    """What finds no SA comes back to software, which negotiates one."""
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "trap"
    a, b, gateway = with_core(daemon, ("esplanade", "charon"), settings, "a")
    wait_until("ping through the trap", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=2), timeout=20)
    b.wait_installed()
    exercise(topology)
    assert_carried(gateway)


def test_a_narrow_path_is_told_by_the_core(topology, daemon):
    """What is too long for its path comes back to software: its sender learns the size, or it is cut."""
    settings = pair(topology, inner=4)
    a, b, gateway = with_core(daemon, esplanade_pair, settings, "a")
    connect(a, b, a)
    exercise(topology)
    for space in (topology.gw_a, topology.gw_b):
        space.run(["ip", "link", "set", "wan", "mtu", "1300"])
    wait_until("pings that were too long", lambda: ping(
        topology.host_a, topology.b.host4, count=2, size=1300, timeout=3) == 2, timeout=20)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=SIZE)
    assert gateway.installed()[0]["engine"] == "fpga"


def test_a_child_goes_into_the_core_and_out_of_it(topology, daemon):
    """Its SAs are renewed while packets flow, between two engines of the workers and the core: none is lost or overtaken."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.child()["engine"] = "cpu"
    settings[0].gateway["pool_threads"] = 1
    a, b, gateway = with_core(daemon, esplanade_pair, settings, "a")
    connect(a, b, a)
    exercise(topology)
    assert gateway.installed()[0]["engine"] == "cpu"
    assert "fpga (simulated), else cpu, tier" in gateway.command("status").stdout
    assert "; also pool (threads: 1)" in gateway.command("status").stdout
    flows = [Flow(topology.host_a, topology.host_b, topology.b.host4, rate=50),
             Flow(topology.host_b, topology.host_a, topology.a.host4, rate=50)]
    for engine in ["fpga", "cpu", "fpga", "pool", "fpga"]:
        answer = gateway.command("engine", "net", engine).stdout
        assert answer == f"net: engine {engine}, its SAs are renewed for it\n"
        wait_until(f"the SA is with {engine}", lambda: [child["engine"] for child in gateway.installed()] == [engine])
        # Nothing may be lost while an engine has the SA.
        for flow in flows:
            flow.go_on(25)
    assert gateway.command("engine", "net", "fpga").stdout == "net: engine fpga, its SAs go on there\n"
    assert gateway.status()["engine"]["installed-out"] == 1
    assert_whole(topology, *(flow.stop() for flow in flows))
    for end in (a, b):
        for reason in ("engine-failed", "before-window", "replayed", "authentication-failed", "unknown-spi"):
            assert end.counter(f"drops.{reason}") == 0, reason
