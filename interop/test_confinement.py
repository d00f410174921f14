"""What the gateway gives up, and that it works without: rights, and ways to see its memory."""

import ctypes
import json
import shutil
import signal
from pathlib import Path

import pytest
from ends import esplanade_pair, establish
from harness.namespaces import SECOND_A4
from harness.process import run, wait_until
from harness.settings import ID_A, PSK, add_second, pair
from harness.traffic import assert_ping

pytestmark = pytest.mark.esplanade_only

NET_ADMIN, NET_RAW = 1 << 12, 1 << 13
# <linux/landlock.h>, and the number of the call that every machine has for it.
LANDLOCK_CREATE_RULESET, LANDLOCK_CREATE_RULESET_VERSION = 444, 1


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
    assert {"worker-0", "log", "keys", "ike-0", "spd"} <= found.keys(), found.keys()
    assert a.status()["confinement"] == {"landlock": min(landlock(), 6), "seccomp": True}
    for name, thread in found.items():
        rights = {key: int(value, 16) for key, value in thread.items() if key.startswith("Cap")}
        allowed = 0 if name in ("log", "keys", "spd") or name.startswith("ike-") else NET_ADMIN | NET_RAW
        assert rights["CapEff"] == rights["CapPrm"] == allowed, (name, thread)
        assert rights["CapBnd"] & ~(NET_ADMIN | NET_RAW) == 0 == rights["CapInh"] | rights["CapAmb"], (name, thread)
        assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "2"), (name, thread)
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


def landlock() -> int:
    """The version that the kernel has."""
    return max(ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION), 0)


needs_landlock = pytest.mark.skipif(landlock() == 0, reason="the kernel has no Landlock")
OUT_OF_REACH = "is out of the confined gateway's reach"


def include(a, settings, pattern) -> None:
    a.write(settings)
    a.config.write_text(a.config.read_text() + f"include {pattern}\n")


@needs_landlock
def test_a_reload_reads_what_is_new_where_it_may(topology, daemon, authorities, tmp_path):
    settings = pair(topology, inner=4)
    a, b = establish(daemon, esplanade_pair, settings)
    # Beside the configuration, a folder that was not there too.
    identity = authorities("ecdsa").identity(ID_A)
    for folder, file in (("x509", identity.certificate), ("private", identity.key)):
        (a.folder / folder).mkdir()
        shutil.copy(file, a.folder / folder / "new")
    add_second(*settings)
    settings[0].connections["second"]["local"] = {"auth": "pubkey", "id": ID_A, "certs": "new"}
    (a.folder / "more").mkdir()
    (a.folder / "more/secrets.conf").write_text('secrets { ike-more { secret = "a secret of another file" } }\n')
    include(a, settings[0], "more/*.conf")
    a.command("reload")
    assert "second" in json.dumps(a.status()["connections"])

    # Elsewhere: a file, a link's, what a pattern finds.
    (tmp_path / "elsewhere").mkdir()
    elsewhere = tmp_path / "elsewhere/secrets.conf"
    elsewhere.write_text('secrets { ike-elsewhere { secret = "a secret of another place" } }\n')
    (a.folder / "link.conf").symlink_to(elsewhere)
    del settings[0].connections["second"]
    for name in (elsewhere, elsewhere.parent / "*.conf", "link.conf"):
        include(a, settings[0], name)
        done = a.command("reload", check=False)
        assert done.returncode != 0 and OUT_OF_REACH in done.stderr and "readable" in done.stderr, done.stderr
        assert "second" in json.dumps(a.status()["connections"]), "the old configuration stays"
    assert_ping(topology.host_a, topology.b.host4)
    # A restart reads it, and then reloads do, in the form of another file as well.
    assert a.stop() == 0
    include(a, settings[0], "link.conf")
    a.launch()
    wait_until("the gateway is ready", a.ready)
    new = elsewhere.with_suffix(".new")
    new.write_text(elsewhere.read_text())
    new.rename(elsewhere)
    a.command("reload")


@needs_landlock
@pytest.mark.parametrize("key", ["readable", "confine"])
def test_the_configuration_widens_the_reach(topology, daemon, tmp_path, key):
    settings = pair(topology, inner=4)[0]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secrets.conf").write_text('secrets { ike-elsewhere { secret = "a secret of another place" } }\n')
    settings.gateway[key] = {"readable": str(folder), "confine": "no"}[key]
    a = daemon("esplanade", "a")
    a.start(settings)
    include(a, settings, folder / "*.conf")
    a.command("reload")
    seccomp = {"readable": "2", "confine": "0"}[key]
    assert {thread["Seccomp"] for thread in threads(pid_of(a)).values()} == {seccomp}
    assert {thread["NoNewPrivs"] for thread in threads(pid_of(a)).values()} == {"1"}


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


# A process of the same user, with the rights that the gateway needs, and not those to look into any process.
NEIGHBOUR = ["setpriv", "--bounding-set", "-all,+net_admin,+net_raw,+net_bind_service", "--inh-caps", "-all", "--"]
READS_MEMORY = """
import ctypes, sys
pid = int(sys.argv[1])
place = next(line.split("-")[0] for line in open(f"/proc/{pid}/maps") if " rw-p " in line)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
room = ctypes.create_string_buffer(16)
here, there = Vector(ctypes.addressof(room), 16), Vector(int(place, 16), 16)
libc = ctypes.CDLL(None, use_errno=True)
if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != 16:
    raise OSError(ctypes.get_errno(), "process_vm_readv")
print("read")
"""


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "unconfined"])
def test_no_other_process_of_its_user_reads_its_memory(topology, daemon, confined):
    a = daemon("esplanade", "a")
    a.wrapper = NEIGHBOUR
    a.arguments = [] if confined else ["--unconfined"]
    a.start(pair(topology, inner=4)[0])
    done = run([*NEIGHBOUR, "python3", "-c", READS_MEMORY, str(pid_of(a))], check=False)
    if confined:
        assert done.returncode != 0 and "Permission denied" in done.stderr, (done.stdout, done.stderr)
    else:
        assert done.stdout == "read\n", "the test reads what may be read: " + done.stderr


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "unconfined"])
def test_a_crash_leaves_no_core_file(topology, daemon, confined):
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"core dumps go elsewhere: {pattern}")
    a = daemon("esplanade", "a")
    a.wrapper = ["prlimit", "--core=unlimited", "--"]
    a.arguments = [] if confined else ["--unconfined"]
    a.start(pair(topology, inner=4)[0])
    assert a._process.stop(signal.SIGABRT) == -signal.SIGABRT
    cores = [file.name for file in a.folder.iterdir() if file.name.startswith("core")]
    assert bool(cores) != confined, "only the unconfined one leaves its memory"
