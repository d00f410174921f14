"""`engine = gpu` on PoCL, which runs the kernels on the CPU: nothing is lost, and the CPU does what the device cannot."""

import re
import subprocess

import pytest
from ends import each_end, esplanade_pair, establish
from harness.esplanade import binary
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import Flow, assert_ping, assert_whole, transfer

# Every kind of kernel.
CIPHERS = [
    "aes128gcm16", "aes192gcm12", "aes256gcm8", "aes256gmac", "chacha20poly1305", "aes128-sha1", "aes256-sha256",
    "aes256ctr-sha256", "null-sha256",
]
# Packets a second: so few that PoCL keeps up with them on a busy machine.
RATE = 300
# The CPU carries this one.
LACKING = "aes128ccm16"


@pytest.fixture(autouse=True, scope="module")
def opencl():
    """PoCL makes the kernels once, which takes half a minute, and keeps them."""
    listed = subprocess.run([binary(), "gpu"], capture_output=True, text=True)
    if "Portable Computing Language" not in listed.stdout:
        pytest.skip(f"there is no OpenCL for the CPU (pocl-opencl-icd): {listed.stderr}")
    tested = subprocess.run([binary(), "gpu", "portable"], capture_output=True, text=True, timeout=300)
    assert re.search(r"^seals     38 transforms of ESP\nopens     41 transforms of ESP\n$", tested.stdout, re.MULTILINE), tested


def gpus(topology, *, workers=1, fail_after=None, tables=None, **options):
    settings = pair(topology, **options)
    trial = "gpu-residue" + (f",gpu-fail-after={fail_after}" if fail_after else "")
    for one in settings:
        gpu = {"device": "portable"} | ({"tables": tables} if tables else {})
        one.gateway.update(engine="gpu", workers=workers, gpu=gpu, trial=trial)
    return settings


def gateways(*ends):
    return [end for end in ends if "esplanade" in type(end).__name__.lower()]


def gpu(end):
    return end.status()["engine"]["gpu"]


def assert_clean(*ends):
    for end in gateways(*ends):
        for reason in ("engine-failed", "before-window", "replayed", "authentication-failed"):
            assert end.counter(f"drops.{reason}") == 0, reason


@pytest.mark.parametrize("workers", [1, 2])
@each_end
def test_traffic(ends, workers, topology, daemon):
    a, b = establish(daemon, ends, gpus(topology, workers=workers))
    assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.01)
    assert_ping(topology.host_a, topology.b.host6, size=1200)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    assert_ping(topology.host_b, topology.a.host4, count=20, interval=0.05)
    assert_whole(topology, flow.stop())
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=2_000_000)
    transfer(topology.host_b, topology.host_a, topology.a.host6, size=2_000_000)
    assert_clean(a, b)
    for end in gateways(a, b):
        stats = gpu(end)
        assert stats["device-packets"] > 500 and stats["checked"] > 0, stats
        # PoCL's device has the host's memory.
        assert stats["launches-in-place"] == stats["launches"], stats
        assert (stats["cpu-packets"], stats["disabled"], "failed" in stats) == (0, [], False), stats
        assert "engine    gpu (OpenCL: Portable Computing Language" in end.command("status").stdout


@pytest.mark.esplanade_only
@pytest.mark.parametrize("esp", CIPHERS)
def test_ciphers(esp, topology, daemon):
    settings = gpus(topology)
    for one in settings:
        one.child()["esp_proposals"] = f"{esp}-esn"
    a, b = establish(daemon, esplanade_pair, settings)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    assert_clean(a, b)
    for end in (a, b):
        assert gpu(end)["device-packets"] > 100


@pytest.mark.esplanade_only
def test_3des_is_opened_by_the_device(topology, daemon):
    settings = gpus(topology)
    for one in settings:
        one.connections["site"]["legacy"] = "yes"
        one.child()["esp_proposals"] = "3des-sha1"
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.01)
    for end in (a, b):
        wait_until("20 packets are counted", lambda: gpu(end)["device-packets"] == 20)
        assert gpu(end)["cpu-packets"] == 0


@pytest.fixture
def tables():
    """PoCL makes the kernels with tables once, too."""
    tested = subprocess.run([binary(), "gpu", "portable", "--tables"], capture_output=True, text=True, timeout=300)
    assert re.search(r"^seals     41 transforms of ESP\nopens     41 transforms of ESP\n$", tested.stdout, re.MULTILINE), tested


@pytest.mark.esplanade_only
@pytest.mark.parametrize("esp", ["3des-sha1", "aes128-sha1", "aes256gcm16"])
def test_tables(esp, tables, topology, daemon):
    """The kernels with tables carry all that the others do, and seal 3DES."""
    settings = gpus(topology, tables="force")
    for one in settings:
        one.connections["site"]["legacy"] = "yes"
        one.child()["esp_proposals"] = esp
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.01)
    for end in (a, b):
        # An end seals twenty packets, and opens as many.
        wait_until("40 packets are counted", lambda: gpu(end)["device-packets"] == 40)
        assert (gpu(end)["cpu-packets"], gpu(end)["tables"]) == (0, True)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=500_000)
    assert_clean(a, b)


@pytest.mark.esplanade_only
def test_tables_are_refused_on_a_cpu(topology, daemon):
    settings = gpus(topology, tables="yes")
    a = daemon("esplanade", "a")
    with pytest.raises(HarnessError) as failed:
        a.start(settings[0])
    assert "kernels with tables are refused on OpenCL: Portable Computing" in str(failed.value)
    assert "tables = force" in str(failed.value)


@pytest.mark.esplanade_only
def test_what_the_kernels_lack(topology, daemon):
    settings = gpus(topology)
    for one in settings:
        one.child()["esp_proposals"] = LACKING
    a, b = establish(daemon, esplanade_pair, settings)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    for end in (a, b):
        (sa,) = end.status()["sas"]
        (child,) = sa["site"]["child-sas"].values()
        assert (child["engine"], gpu(end)["launches"]) == ("cpu", 0)


@each_end
def test_rekeys_under_load(ends, topology, daemon):
    settings = gpus(topology)
    for one in settings:
        # A worker that searches fewer flows gives up the keys of former SAs sooner.
        one.gateway["flow_cache_size"] = 1024
    a, b = establish(daemon, ends, settings)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    for _ in range(3):
        old = {child["spi-in"] for child in a.children()}
        a.rekey_child()
        wait_until("the new child SA", lambda: len(a.children()) == 1
                   and a.children()[0]["spi-in"] not in old and int(a.children()[0]["packets-out"]))
    assert_whole(topology, flow.stop())
    assert_clean(a, b)
    for end in gateways(a, b):
        # The keys of SAs that are gone are wiped.
        wait_until("the keys of one child SA", lambda: gpu(end)["keys"] <= 2, timeout=60)


@pytest.mark.esplanade_only
def test_swaps_under_load(topology, daemon):
    a, b = establish(daemon, esplanade_pair, gpus(topology))
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    back = Flow(topology.host_b, topology.host_a, topology.a.host6, rate=RATE)
    for swap in range(40):
        (a, b)[swap % 2].command("engine", "net", ("cpu", "gpu")[swap // 2 % 2])
        assert_ping(topology.host_a, topology.b.host4, count=4, interval=0.02)
    assert_whole(topology, flow.stop())
    assert_whole(topology, back.stop())
    assert_clean(a, b)


@pytest.mark.esplanade_only
def test_a_device_that_fails_under_load(topology, daemon):
    """The CPU repeats what the device had: with the same numbers, so that nothing is lost or doubled."""
    a, b = establish(daemon, esplanade_pair, gpus(topology, fail_after=100))
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    for end in (a, b):
        wait_until(f"the device of {end.name} fails", lambda: "failed" in gpu(end), timeout=30)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    assert_whole(topology, flow.stop())
    assert_clean(a, b)
    for end in (a, b):
        assert "the GPU is out of service: a launch fails: the trial wants it" in end.logs()
        assert end.counter("io.engines-lost") > 0
        assert "the engine gpu is lost, and the CPU is in its place" in end.command("status").stdout


def adaptives(topology, *, fail_after=None, **limits):
    settings = gpus(topology, fail_after=fail_after)
    for one in settings:
        one.gateway["engine"] = "adaptive"
        one.gateway["gpu"].update(limits)
    return settings


def share(end):
    return end.status()["engine"]["share"]


def child_of(end):
    (sa,) = end.status()["sas"]
    (child,) = sa["site"]["child-sas"].values()
    return child


# Any load is worth a trial, and no batch of this slow device is late.
EAGER = {"threshold": 1, "latency_us": 1_000_000}


def busy_until(topology, what, seen):
    """Carries much traffic, at least for so slow a device, until something is seen."""
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE, port=40200)
    back = Flow(topology.host_b, topology.host_a, topology.a.host6, rate=RATE, port=40200)
    wait_until(what, seen, timeout=90)
    assert_whole(topology, flow.stop())
    assert_whole(topology, back.stop())


@pytest.mark.esplanade_only
def test_a_load_is_shared(topology, daemon):
    """With much traffic SAs go to the device, with little they come back: in order, and without a loss."""
    a, b = establish(daemon, esplanade_pair, adaptives(topology, **EAGER))
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=10)
    back = Flow(topology.host_b, topology.host_a, topology.a.host6, rate=10)
    busy_until(topology, "halves move", lambda: all(share(end)["moves"] >= 2 for end in (a, b)))
    for end in (a, b):
        wait_until("the CPU carries a small load", lambda: share(end)["gpu-halves"] == 0, timeout=120)
        assert gpu(end)["device-packets"] > 0
    assert "the GPU carries a share of the load" in a.logs() and "the CPU carries the whole load" in a.logs()
    # By hand a child is bound to one engine, and given back.
    for engine in ("gpu", "cpu", "adaptive"):
        assert a.command("engine", "net", engine).stdout == f"net: engine {engine}, its SAs go on there\n"
        assert child_of(a)["engine"] == engine
        assert ("share" in a.status()["engine"]) == (engine == "adaptive")
        assert_ping(topology.host_a, topology.b.host4, count=10, interval=0.02)
    old = {child["spi-in"] for child in a.children()}
    a.rekey_child()
    wait_until("the new child SA", lambda: len(a.children()) == 1 and a.children()[0]["spi-in"] not in old)
    moves = share(a)["moves"]
    busy_until(topology, "halves of the new SA move", lambda: share(a)["moves"] > moves)
    assert_whole(topology, flow.stop())
    assert_whole(topology, back.stop())
    assert_clean(a, b)
    text = a.command("status").stdout
    assert "engine    adaptive (cpu and OpenCL: Portable Computing Language" in text
    assert "share     the GPU carries " in text and "threshold 1 %" in text


@pytest.mark.esplanade_only
def test_the_cpu_carries_a_small_load(topology, daemon):
    a, b = establish(daemon, esplanade_pair, adaptives(topology, threshold=100))
    assert_ping(topology.host_a, topology.b.host4, count=100, interval=0.01)
    assert_clean(a, b)
    for end in (a, b):
        stats, child = share(end), child_of(end)
        assert (stats["moves"], stats["percent"], stats["halves"]) == (0, 0, 2), stats
        assert (child["engine"], child["engine-in"], child["engine-out"]) == ("adaptive", "cpu", "cpu")
        assert gpu(end)["launches"] == 0
        assert "engine  adaptive: cpu in, cpu out" in end.command("status").stdout


@pytest.mark.esplanade_only
def test_a_device_that_fails_loses_its_share(topology, daemon):
    a, b = establish(daemon, esplanade_pair, adaptives(topology, fail_after=40, **EAGER))
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    for end in (a, b):
        wait_until(f"the device of {end.name} fails", lambda: "failed" in gpu(end), timeout=90)
        wait_until("the CPU carries all", lambda: share(end)["gpu-halves"] == 0)
        moves = share(end)["moves"]
        assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.05)
        assert share(end)["moves"] == moves
    assert_whole(topology, flow.stop())
    assert_clean(a, b)


@pytest.mark.esplanade_only
def test_a_device_that_is_not_there(topology, daemon):
    settings = gpus(topology)
    settings[0].gateway["gpu"] = {"device": "Voodoo"}
    a = daemon("esplanade", "a")
    with pytest.raises(HarnessError) as failed:
        a.start(settings[0])
    text = str(failed.value)
    assert 'the GPU cannot be used: no device has "Voodoo" in its name; there are: OpenCL: Portable Computing' in text
