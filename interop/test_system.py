"""What the system refuses or breaks: documented exit codes, one clear message, no damage."""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from ends import esplanade_pair, establish
from harness.esplanade import binary
from harness.namespaces import SECOND_A4, SECOND_LAN_A4, SECOND_LAN_B4
from harness.process import HarnessError, run, wait_until
from harness.settings import PSK, add_second, pair, render
from harness.traffic import Flow, assert_ping, exercise, send

pytestmark = pytest.mark.esplanade_only
FAILURE, USAGE, CONFIGURATION, UNREACHABLE, FORBIDDEN = 1, 2, 3, 4, 5


def assert_ends(gateway, code: int, *words: str):
    """The daemon gives up by itself with this code; its last words hold all of these."""
    process = gateway._process
    wait_until("the daemon gives up", lambda: process.returncode is not None)
    text = gateway.logs()
    assert process.returncode == code, text
    for word in words:
        assert word.lower() in text.lower(), f"{word!r} is not in: {text}"
    assert "panicked" not in text


def test_port_in_use(topology, daemon):
    a = daemon("esplanade", "a")
    holder = topology.start("gw_a", ["python3", "-c", (
        "import socket,time\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\n"
        "t=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.setsockopt(41,26,1)\n"
        "s.bind(('::',500)); t.bind(('0.0.0.0',500))\nprint('ready',flush=True); time.sleep(60)")],
        stdout=subprocess.PIPE)
    assert holder.popen.stdout.readline() == b"ready\n"
    a.launch(pair(topology)[0])
    assert_ends(a, FAILURE, "500", "in use")


def test_second_daemon_on_the_same_control_socket(topology, daemon):
    """The first keeps running, and keeps its socket."""
    a, b = establish(daemon, esplanade_pair, pair(topology, inner=4))
    second = daemon("esplanade", "a")
    second.write(pair(topology)[0])
    process = subprocess.run(second.space.wrap([str(binary()), "run", "--config", str(second.config)]),
                             capture_output=True, text=True, timeout=20)
    assert process.returncode == FAILURE, process.stderr
    assert "in use" in process.stderr.lower() or "already" in process.stderr.lower()
    assert a.ready()
    assert_ping(topology.host_a, topology.b.host4)


def test_no_tun_device(topology, daemon):
    a = daemon("esplanade", "a")
    a.wrapper = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh"]
    a.launch(pair(topology)[0])
    assert_ends(a, FORBIDDEN, "/dev/net/tun")


def test_no_privilege(topology, daemon):
    """No CAP_NET_ADMIN: says what is missing."""
    a = daemon("esplanade", "a")
    a.wrapper = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--"]
    a.launch(pair(topology)[0])
    assert_ends(a, FORBIDDEN)


def test_unreadable_configuration(topology, daemon):
    a = daemon("esplanade", "a", export_keys=False)
    a.config = a.folder / "absent.conf"
    a.launch()
    assert_ends(a, CONFIGURATION, "absent.conf")


def test_wrong_configuration_names_every_error(topology, daemon):
    a = daemon("esplanade", "a", export_keys=False)
    settings = pair(topology)[0]
    settings.connections["site"]["remote_adrs"] = "10.0.0.1"
    settings.child()["esp_proposals"] = "aes128gmc16"
    settings.child()["mode"] = "tunel"
    a.launch(settings)
    assert_ends(a, CONFIGURATION, "remote_adrs", "remote_addrs", "aes128gmc16", "tunel", "esplanade.conf:")


def test_reload_of_a_wrong_configuration_changes_nothing(topology, daemon):
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, esplanade_pair, settings)
    broken = settings[0].copy()
    broken.connections["site"]["proposals"] = "nonsense"
    a.write(broken)
    refused = a.command("reload", check=False)
    assert refused.returncode == CONFIGURATION
    assert "nonsense" in refused.stderr and "error: error" not in refused.stderr, refused.stderr
    stays = "1 error in .*; configuration 1 stays in force, read .* ago"
    assert re.search(stays, refused.stderr) and re.search(f"ERROR.* not reloaded: {stays}", a.logs()), a.logs()
    assert re.search("ERROR.* configuration: .*:[0-9]+: .*nonsense", a.logs()), a.logs()
    assert_ping(topology.host_a, topology.b.host4)


# RFC 4301 R11
def test_reload_adds_a_connection(topology, daemon):
    settings = pair(topology, inner=4)
    a, b = establish(daemon, esplanade_pair, settings)
    old = a.sas()["site"][0]["initiator-spi"]
    add_second(*settings)
    a.load(settings[0])
    b.load(settings[1])
    a.up("second-net")
    assert_ping(topology.host_b, SECOND_A4)
    assert a.sas()["site"][0]["initiator-spi"] == old
    assert_ping(topology.host_a, topology.b.host4)


def test_reload_adds_and_removes_a_child_beside_another(topology, daemon):
    settings = pair(topology, inner=4)
    a, b = establish(daemon, esplanade_pair, settings)
    first = a.sas()["site"][0]["initiator-spi"], [child["spi-in"] for child in a.installed()]
    for one, local, remote in zip(settings, (SECOND_LAN_A4, SECOND_LAN_B4), (SECOND_LAN_B4, SECOND_LAN_A4)):
        second = one.child() | {"local_ts": local, "remote_ts": remote}
        one.connections["site"]["children"]["second"] = second
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4)
    a.write(settings[0])
    assert a.command("reload").stdout == "added: site/second\npolicies have changed\n"
    b.load(settings[1])
    a.up("second")
    assert_ping(topology.host_b, SECOND_A4)
    for one in settings:
        del one.connections["site"]["children"]["second"]
    a.load(settings[0])
    b.load(settings[1])
    wait_until("the second child is gone", lambda: len(b.children()) == 1 == len(a.children()))
    assert (a.sas()["site"][0]["initiator-spi"], [child["spi-in"] for child in a.installed()]) == first
    report = flow.stop()
    assert report.sent > 20 and report.lost == 0, report


def test_reload_says_what_differs(topology, daemon):
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, esplanade_pair, settings)
    assert a.command("reload").stdout == "nothing has changed\n"
    changed = settings[0].copy()
    changed.child()["priority"] = "3"
    a.write(changed)
    said = a.command("reload").stdout
    assert "changed: site/net\n" in said and "policies have changed\n" in said, said


def test_a_machine_that_does_not_forward_is_told(topology, daemon):
    a = daemon("esplanade", "a")
    words = "net.ipv4.ip_forward=1"
    for forwards in (0, 1):
        a.space.sysctl(ipv4__ip_forward=forwards)
        a.start(pair(topology, inner=4)[0])
        checked = a.space.run([str(binary()), "check", str(a.config)])
        warned = [line for line in a.logs().splitlines() if "WARN" in line and words in line]
        assert (len(warned), checked.stderr.count(words)) == (1 - forwards, 1 - forwards), a.logs() + checked.stderr
        assert a.stop() == 0
        a.log.unlink()


def test_key_file_cannot_be_opened(topology, daemon, folder):
    a = daemon("esplanade", "a")
    a.keys = folder / "absent" / "keys"
    a.launch(pair(topology)[0])
    assert_ends(a, FAILURE, str(a.keys))


def test_export_of_keys_is_announced(topology, daemon):
    a = daemon("esplanade", "a")
    a.start(pair(topology)[0])
    assert any("WARN" in line and "keys" in line for line in a.logs().splitlines())


def test_nothing_secret_is_logged(topology, daemon):
    """At the most talkative level: neither secrets nor session keys."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.gateway["log_level"] = "trace"
    a, b = establish(daemon, esplanade_pair, settings)
    a.rekey_ike()
    a.rekey_child()
    assert_ping(topology.host_a, topology.b.host4)
    text = a.logs() + b.logs()
    assert len(text) > 1000
    assert PSK not in text and PSK.encode().hex() not in text
    for line in a.key_lines():
        for word in line.replace('"', ",").replace("0x", ",").split(","):
            if len(word) >= 32:
                assert word.lower() not in text.lower(), "a session key stands in the log"


def test_one_packet_does_not_log(topology, daemon):
    """What any stranger can send leaves no line above TRACE, but for a bounded number of auditable events."""
    a = daemon("esplanade", "a")
    a.start(pair(topology)[0])
    before, begun = a.logs(), time.monotonic()
    for _ in range(40):
        for port in (500, 4500):
            send(topology.wan, topology.a.wan4, port, [b"\x5a" * size for size in (0, 1, 27, 28, 100, 1400)])
    assert a.ready()
    wait_until("an auditable event", lambda: " INFO audit: " in a.logs()[len(before):])
    # Control requests may log; the datagrams may not.
    new, took = a.logs()[len(before):], time.monotonic() - begun
    lines = [line for line in new.splitlines() if "control" not in line and "vici" not in line]
    audit = [line for line in lines if " INFO audit: " in line]
    assert lines == audit, new
    # Of each kind ten at once and one a second, of 160 packets without an SA.
    kinds = {re.search(r'kind="([^"]*)"', line)[1] for line in audit}
    assert 1 <= len(audit) <= (11 + took) * len(kinds), new


def test_commands_without_a_daemon(folder):
    for verb in (["status"], ["up", "x"], ["down", "x"], ["reload"]):
        done = run([binary(), verb[0], "--socket", folder / "none", *verb[1:]], check=False)
        assert done.returncode == UNREACHABLE
        assert "error:" in done.stderr and "help:" in done.stderr


def test_idle_clients_lock_no_command_out(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    idle = []
    for _ in range(400):
        idle.append(socket.socket(socket.AF_UNIX))
        idle[-1].connect(str(a.socket))
    assert "site" in a.command("status", "--timeout", "5").stdout
    assert "site" in a.swanctl("--list-sas").stdout
    for one in idle:
        one.close()


def test_clients_that_never_read_take_no_memory(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    register, ask = b"\3\7list-sa", b"\0\x08list-sas"
    before, clients = _memory(a), []
    for _ in range(60):
        clients.append(socket.socket(socket.AF_UNIX))
        clients[-1].connect(str(a.socket))
        clients[-1].sendall(struct.pack(">I", len(register)) + register)
        clients[-1].setblocking(False)
    for _ in range(40):
        for one in clients:
            with contextlib.suppress(OSError):
                one.send((struct.pack(">I", len(ask)) + ask) * 500)
        time.sleep(0.05)
    assert "site" in a.command("status", "--timeout", "5").stdout
    assert _memory(a) - before < 16 << 10
    for one in clients:
        one.close()


def _memory(gateway) -> int:
    """Resident, in KiB."""
    with open(f"/proc/{gateway._process.popen.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_unknown_names_are_refused(topology, daemon):
    a = daemon("esplanade", "a")
    a.start(pair(topology)[0])
    for verb in ("up", "down"):
        done = a.command(verb, "nosuch", check=False)
        assert done.returncode == FAILURE
        assert "nosuch" in done.stderr


def test_status_is_json(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    status = a.status()
    assert "site" in json.dumps(status["sas"])
    assert status["counters"]["ike"]["child-sas-installed"] == 1
    assert "site" in a.command("status").stdout
    # Counters that are zero are there; others, and names that two of them have, are errors.
    assert a.counter("drops.no-sa") == a.counter("no-sa") == 0
    for name in ("no_sa", "drops.nosuch", "authentication-failed"):
        with pytest.raises(HarnessError, match=f"{name}' names [02] counters"):
            a.counter(name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda number: number.name)
def test_ends_cleanly(number, topology, daemon):
    """A signal takes down what the daemon made: interface, routes, rules, socket. Unless told so it leaves routes that
    keep traffic in (test_closed.py)."""
    before = _network(topology.gw_a)
    settings = pair(topology)
    settings[0].gateway["on_stop"] = "open"
    a, b = establish(daemon, esplanade_pair, settings)
    assert _network(topology.gw_a) != before
    assert a._process.stop(number) == 0
    assert _network(topology.gw_a) == before
    assert not a.socket.exists()


def _network(space) -> str:
    return "".join(space.run(["ip", *what]).stdout for what in (
        ["-br", "link"], ["-4", "rule"], ["-6", "rule"], ["-4", "route", "show", "table", "all"],
        ["-6", "route", "show", "table", "all", "proto", "static"]))


def test_starts_again_after_a_crash(topology, daemon):
    """What a killed daemon left behind does not stop the next one."""
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, esplanade_pair, settings)
    a.kill()
    a.start(settings[0])
    a.up()
    assert_ping(topology.host_a, topology.b.host4)


def test_uninstalling_leaves_nothing_that_holds_traffic_back(topology, daemon, folder):
    """No tool is left that could let it out."""
    settings = pair(topology)
    settings[0].gateway["on_stop"] = "closed"
    a = daemon("esplanade", "a")
    a.start(settings[0])
    program, conf = folder / "usr/sbin/esplanade", folder / "etc/esplanade/esplanade.conf"
    for path, target in ((program, binary()), (conf, a.config)):
        path.parent.mkdir(parents=True)
        path.symlink_to(target)
    command = ["make", "-s", "-C", Path(__file__).parents[1], "uninstall", f"PREFIX={folder}/usr", f"SYSCONFDIR={folder}/etc"]

    def held():
        return "lookup 220" in topology.gw_a.run(["ip", "rule"]).stdout

    refused = topology.gw_a.run(command, check=False)
    assert refused.returncode != 0 and "a gateway runs" in refused.stderr and "OPEN=no" in refused.stderr, refused.stderr
    assert program.exists() and held()
    a.stop()
    assert held()
    topology.gw_a.run(command)
    assert not program.is_symlink() and not held()
    assert "esplanade" not in topology.gw_a.run(["nft", "list", "tables"]).stdout


def test_an_administrators_swanctl_conf_works(topology, daemon, folder):
    """Sections, includes, references, comments, quotes and units as swanctl has them."""
    a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
    settings = pair(topology, inner=4)
    b.start(settings[1])
    a.write(settings[0])
    site = settings[0].connections["site"]
    (a.folder / "conf.d").mkdir()
    (a.folder / "conf.d" / "site.conf").write_text(f"""
# a comment
connections {{
  site : conn-defaults {{   # inherits
    local_addrs = {site["local_addrs"]}
    remote_addrs = {site["remote_addrs"]}
    local {{ auth = psk
      id = {site["local"]["id"]} }}
    remote {{ auth = psk
      id = "{site["remote"]["id"]}" }}
    children {{ net {{
        local_ts = {site["children"]["net"]["local_ts"]}
        remote_ts = {site["children"]["net"]["remote_ts"]}
        esp_proposals = aes128gcm16
        rekey_time = 1h
        rekey_bytes = 500000000
    }} }}
  }}
}}
""")
    a.config.write_text(render({"gateway": a.gateway, "secrets": settings[0].secrets})
                        + "conn-defaults {\n version = 2\n proposals = aes128gcm16-prfsha256-x25519\n"
                          " rekey_time = 4h\n dpd_delay = 30s\n}\ninclude conf.d/*.conf\n")
    a.launch()
    wait_until("ready", a.ready)
    a.up()
    assert_ping(topology.host_a, topology.b.host4)


def test_stock_swanctl_talks_to_the_daemon(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    assert "INSTALLED" in a.swanctl("--list-sas").stdout
    assert "site" in a.swanctl("--list-conns").stdout
    a.swanctl("--terminate", "--ike", "site")
    a.wait_gone()
    a.swanctl("--initiate", "--child", "net")
    a.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.skipif(bool(os.environ.get("INTEROP_NESTED")), reason="runs the suite once inside itself")
def test_in_a_user_namespace():
    """No privilege over the system at all: the gateway and its tunnel work in a user namespace."""
    done = subprocess.run([Path(__file__).with_name("run"), "--user", "-q", "-n", "0", "-k",
                           "test_psk and esplanade-to-esplanade-outer-v4"],
                          env={**os.environ, "INTEROP_NESTED": "1", "PYTEST_ADDOPTS": ""}, capture_output=True,
                          text=True, timeout=120)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("topology", [{"mtu": 1400}], indirect=True, ids=["mtu-1400"])
def test_small_mtu_on_the_path(topology, daemon):
    """A path below Ethernet's MTU and a tunnel interface set to fit it."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.gateway["mtu"] = 1300
    establish(daemon, esplanade_pair, settings)
    exercise(topology, versions=(4,))
