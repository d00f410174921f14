"""What the gateway gives up, and that it works without: rights, and ways to see its memory."""

from pathlib import Path

import pytest
from ends import esplanade_pair, establish
from harness.namespaces import SECOND_A4
from harness.settings import PSK, add_second, pair
from harness.traffic import assert_ping

pytestmark = pytest.mark.esplanade_only

NET_ADMIN, NET_RAW = 1 << 12, 1 << 13


def pid_of(gateway) -> int:
    """nsenter and setpriv execute what they start: the process is the gateway."""
    return gateway._process.popen.pid


def status(folder: Path) -> dict[str, str]:
    lines = (folder / "status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def threads(pid: int) -> dict[str, dict[str, str]]:
    found = [status(task) for task in Path(f"/proc/{pid}/task").iterdir()]
    return {thread["Name"]: thread for thread in found}


def test_no_thread_has_rights_that_it_does_not_use(topology, daemon):
    settings = pair(topology, inner=4)
    # The end too: rules and routes are taken back.
    settings[0].gateway["on_stop"] = "open"
    a, b = establish(daemon, esplanade_pair, settings)
    found = threads(pid_of(a))
    assert {"worker-0", "log"} <= found.keys(), found.keys()
    for name, thread in found.items():
        rights = {key: int(value, 16) for key, value in thread.items() if key.startswith("Cap")}
        allowed = 0 if name in ("log", "keys") else NET_ADMIN | NET_RAW
        assert rights["CapEff"] == rights["CapPrm"] == allowed, (name, thread)
        assert rights["CapBnd"] & ~(NET_ADMIN | NET_RAW) == 0 == rights["CapInh"] | rights["CapAmb"], (name, thread)
        assert thread["NoNewPrivs"] == "1", (name, thread)
    limits = Path(f"/proc/{pid_of(a)}/limits").read_text().splitlines()
    assert [line.split()[4:6] for line in limits if line.startswith("Max core")] == [["0", "0"]]
    # All that the control thread does later works with what is left: routes, marks, new policies, the end.
    add_second(*settings)
    a.load(settings[0])
    b.load(settings[1])
    a.up("second-net")
    assert_ping(topology.host_b, SECOND_A4)
    a.rekey_ike()
    a.rekey_child()
    assert_ping(topology.host_a, topology.b.host4)
    assert a.stop() == 0
    assert "Operation not permitted" not in a.logs() and "Permission denied" not in a.logs()
    assert a.space.run(["ip", "rule"]).stdout.count("lookup 220") == 0


def memory(pid: int) -> bytes:
    """All that the process can write to."""
    parts = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, mode, *rest = line.split()
            if not mode.startswith("rw") or rest[-1] in ("[vvar]", "[vsyscall]"):
                continue
            first, last = (int(end, 16) for end in place.split("-"))
            file.seek(first)
            while first < last and (part := file.read(min(last - first, 1 << 24))):
                parts.append(part)
                first += len(part)
    return b"\0".join(parts)


def test_a_secret_is_in_memory_once(topology, daemon):
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, esplanade_pair, settings)
    a.rekey_ike()
    a.command("reload")
    pid = pid_of(a)
    # A part is enough: buffers that grow leave the beginning behind.
    assert memory(pid).count(PSK[:16].encode()) == 1
    other = "another secret of many letters"
    settings[0].secrets["ike-1"]["secret"] = other
    a.load(settings[0])
    assert (memory(pid).count(PSK[:16].encode()), memory(pid).count(other[:16].encode())) == (0, 1)
    settings[0].secrets["ike-1"]["secret"] = other + "#"
    settings[0].connections["site"]["proposals"] = "nonsense"
    a.write(settings[0])
    assert a.command("reload", check=False).returncode != 0
    assert memory(pid).count(other[:16].encode()) == 1, "a configuration that is refused leaves nothing"
