"""`xdp`: ESP without UDP goes past the kernel's stack, at one end or both; IKE and all else goes through it."""

import pytest
from ends import esplanade_pair, establish, make_anew, set_queues
from harness.capture import packet_socket
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import Flow, assert_ping, ping, transfer

pytestmark = pytest.mark.esplanade_only

SIZE = 20_000_000
PACKETS = SIZE // 1400


def past_the_stack(topology, *, ends="ab", **options):
    settings = pair(topology, encap=False, **options)
    for end in ends:
        settings["ab".index(end)].gateway["xdp"] = "wan"
    return settings


def up(daemon, kinds, settings):
    try:
        return establish(daemon, kinds, settings)
    except HarnessError as error:
        if "CAP_BPF" in str(error):
            pytest.skip("no right to load programs for the kernel")
        raise


def io(gateway, name):
    return gateway.counter(f"io.{name}")


def exercise(topology, version=4):
    a, b = topology.host_a, topology.host_b
    assert_ping(a, topology.b.host(version), timeout=5)
    transfer(a, b, topology.b.host(version), size=SIZE)
    transfer(b, a, topology.a.host(version), size=SIZE)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
def test_both_ends_go_past_the_stack(outer, workers, topology, daemon):
    settings = past_the_stack(topology, outer=outer)
    for one in settings:
        one.gateway["workers"] = workers
    a, b = up(daemon, esplanade_pair, settings)
    for version in (4, 6):
        exercise(topology, version)
    for end in (a, b):
        assert "ESP without UDP goes past the kernel's stack" in end.logs()
        assert io(end, "link-sent") > PACKETS and io(end, "link-received") > PACKETS
        if workers == 1:
            # Only while the stack had to ask who the neighbour is.
            assert io(end, "link-sent") > io(end, "sent") * 0.99
        for reason in ("replayed", "before-window", "authentication-failed"):
            assert end.counter(f"drops.{reason}") == 0, reason
    a.command("rekey", "net")
    exercise(topology)


def test_one_end_alone(topology, daemon):
    a, b = up(daemon, esplanade_pair, past_the_stack(topology, ends="a"))
    exercise(topology)
    assert io(a, "link-sent") > PACKETS and io(a, "link-received") > PACKETS
    assert io(b, "link-sent") == 0


def test_udp_goes_through_the_stack(topology, daemon):
    settings = past_the_stack(topology)
    for one in settings:
        one.connections["site"]["encap"] = "yes"
    a, b = up(daemon, esplanade_pair, settings)
    exercise(topology)
    assert io(a, "link-sent") == io(b, "link-sent") == 0


def test_neighbours_and_paths_change(topology, daemon):
    """Another hardware address and a smaller MTU of the other end's link, while packets flow."""
    a, b = up(daemon, esplanade_pair, past_the_stack(topology))
    exercise(topology)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=200)
    topology.gw_b.run(["ip", "link", "set", "wan", "address", "02:00:00:00:77:01"])
    topology.gw_a.run(["ip", "neigh", "flush", "all"])
    wait_until("pings to the new address", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=10)
    flow.stop()
    exercise(topology)
    for space in (topology.gw_a, topology.gw_b):
        space.run(["ip", "link", "set", "wan", "mtu", "1300"])
    wait_until("pings that were too long", lambda: ping(
        topology.host_a, topology.b.host4, count=2, size=1300, timeout=3) == 2, timeout=20)
    exercise(topology)


def test_a_link_goes_down_and_up(topology, daemon):
    a, b = up(daemon, esplanade_pair, past_the_stack(topology))
    exercise(topology)
    for space in (topology.gw_a, topology.gw_b):
        routes = [line for line in space.run(["ip", "route", "show", "dev", "wan"]).stdout.splitlines() if " via " in line]
        space.run(["ip", "link", "set", "wan", "down"])
        ping(topology.host_a, topology.b.host4, count=2, timeout=1)
        space.run(["ip", "link", "set", "wan", "up"])
        # The kernel forgets what leads by the link.
        for route in routes:
            space.run(["ip", "route", "add", *route.split(), "dev", "wan"])
        wait_until("pings again", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=20)

        def grew(end):
            """By what a file takes: while the stack asks for the neighbour, it does the work."""
            before = io(end, "link-sent")
            exercise(topology)
            return io(end, "link-sent") - before > PACKETS

        for end in (a, b):
            wait_until("a file goes past the stack again", lambda: grew(end), timeout=30)
    for end in (a, b):
        assert "goes through the kernel's stack until" not in end.logs()


def test_a_link_that_is_gone_is_told(topology, daemon):
    a, _ = up(daemon, esplanade_pair, past_the_stack(topology, ends="a"))
    assert a.status()["links"] == {"wan": {"attached": True, "queues": 1, "in-driver": True}}
    topology.gw_a.run(["ip", "link", "delete", "wan"])

    def told():
        # The worker looks when it has packets.
        ping(topology.host_a, topology.b.host4, count=1, timeout=1)
        return "goes through the kernel's stack until the link is made anew" in a.logs()

    wait_until("the loss is told", told)
    assert not a.status()["links"]["wan"]["attached"]
    assert "the link wan is gone" in a.command("status").stdout


def attached(gateway):
    return gateway.status()["links"]["wan"]["attached"]


def assert_past_the_stack(gateway, topology):
    """Files go past the stack in both directions."""
    sent, received = io(gateway, "link-sent"), io(gateway, "link-received")
    exercise(topology)
    assert io(gateway, "link-sent") - sent > PACKETS and io(gateway, "link-received") - received > PACKETS


def on_the_link(topology):
    return topology.gw_a.run(["ip", "-details", "link", "show", "wan"]).stdout


def spis(gateway):
    return [sa["initiator-spi"] for sas in gateway.status()["sas"] for sa in sas.values()]


AGAIN = "the link was made anew, and ESP without UDP goes past the kernel's stack again"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_link_that_is_made_anew_is_opened_again(workers, topology, daemon):
    """As often as it is made anew, under a confined gateway and with the SAs that were there."""
    settings = past_the_stack(topology)
    settings[0].gateway["workers"] = workers
    set_queues(topology, workers)

    def with_little_locked_memory(*arguments):
        one = daemon(*arguments)
        one.wrapper = ["prlimit", "--memlock=65536:65536", "--"]
        return one

    a, b = up(with_little_locked_memory, esplanade_pair, settings)
    assert a.status()["confinement"]["seccomp"]
    assert a.status()["links"]["wan"]["queues"] == workers
    before = spis(a)
    assert_past_the_stack(a, topology)
    for times in (1, 2):
        make_anew(topology, queues=workers)
        with packet_socket(topology.wan, "to_a", "net 10.0.0.0/8 or net fd00:a::/64") as clear:
            wait_until("the link is opened again", lambda: attached(a) and a.logs().count(AGAIN) == times, timeout=10)
            wait_until("pings", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=20)
            assert_past_the_stack(a, topology)
            clear.setblocking(False)
            with pytest.raises(BlockingIOError):
                clear.recv(100)
        shown = on_the_link(topology)
        assert "esplanade_esp" in shown and shown.count("altname esp0-xdp-") == 1, shown
    assert "the link was made anew, and its ESP goes through" not in a.logs()
    assert spis(a) == before
    for end in (a, b):
        for reason in ("replayed", "before-window", "authentication-failed"):
            assert end.counter(f"drops.{reason}") == 0, reason
    assert a.stop() == 0
    shown = on_the_link(topology)
    assert "esplanade_esp" not in shown and "altname" not in shown, shown


def test_a_new_link_that_cannot_be_opened(topology, daemon):
    """It is told once, and the stack carries the packets. The next new link is another matter."""
    a, _ = up(daemon, esplanade_pair, past_the_stack(topology, ends="a"))
    exercise(topology)
    make_anew(topology, mtu=9000)
    refused = "goes through the kernel's stack until it is made anew again or the gateway starts again: its MTU is 9000"
    wait_until("the refusal is told", lambda: refused in a.logs(), timeout=10)
    before = io(a, "link-sent")
    wait_until("pings", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=20)
    exercise(topology)
    assert io(a, "link-sent") == before and not attached(a) and a.logs().count(refused) == 1
    make_anew(topology)
    wait_until("the link is opened again", lambda: attached(a), timeout=10)
    wait_until("pings", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=20)
    assert_past_the_stack(a, topology)


def test_the_next_gateway_takes_what_a_killed_one_left(topology, daemon):
    """The kernel does not detach the program from a link that was made anew. A link that another has is left alone."""
    settings = past_the_stack(topology, ends="a")
    a, b = up(daemon, esplanade_pair, settings)
    make_anew(topology)
    wait_until("the link is opened again", lambda: attached(a), timeout=10)
    a.kill()
    assert "esplanade_esp" in on_the_link(topology)
    a.start(settings[0])
    assert "the program of an earlier gateway was left on the link" in a.logs()
    assert "altname" not in on_the_link(topology)
    b.down()
    a.up()
    assert_past_the_stack(a, topology)


def test_the_link_is_given_back(topology, daemon):
    """The program is gone with its gateway."""
    settings = past_the_stack(topology, ends="a")
    a, b = up(daemon, esplanade_pair, settings)
    shown = topology.gw_a.run(["ip", "-details", "link", "show", "wan"]).stdout
    assert "xdp" in shown and "esplanade_esp" in shown, shown
    a.stop()
    shown = topology.gw_a.run(["ip", "-details", "link", "show", "wan"]).stdout
    assert "esplanade_esp" not in shown


@pytest.mark.parametrize("link, why", [
    ("nowhere", "ESP cannot go past the kernel's stack on nowhere"),
    ("lo", "it is no Ethernet link"),
], ids=["no-link", "no-ethernet"])
def test_what_cannot_be_opened(link, why, topology, daemon):
    settings = past_the_stack(topology, ends="a")
    settings[0].gateway["xdp"] = link
    with pytest.raises(HarnessError) as raised:
        up(daemon, esplanade_pair, settings)
    assert why in str(raised.value), raised.value
