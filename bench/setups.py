"""The setups to compare: two gateways in two namespaces, joined by one veth pair, with iperf3 at both ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "interop"))

from harness import charon  # noqa: E402
from harness.charon import Charon  # noqa: E402
from harness.esplanade import Esplanade  # noqa: E402
from harness.namespaces import Namespace  # noqa: E402
from harness.process import HarnessError, Process, run, wait_until  # noqa: E402
from harness.settings import ID_A, ID_B, PSK, Settings  # noqa: E402

OUTER_A, OUTER_B = "172.16.1.1", "172.16.1.2"
INNER_A, INNER_B = "10.1.0.1", "10.2.0.1"


class Unavailable(Exception):
    """The reason why a setup cannot be measured here."""


class Setup:
    """A tunnel. `start()` brings it up; traffic goes from `address_a` to `address_b`."""

    name = ""
    label = ""
    cipher = ""
    address_a, address_b = INNER_A, INNER_B

    def __init__(self, folder: Path):
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        prefix = f"esb{os.getpid():x}-{self.name}"
        self.a, self.b = Namespace(f"{prefix}-a"), Namespace(f"{prefix}-b")
        self.processes: list[Process] = []
        self.device: str | None = None

    def link(self) -> None:
        """Makes the two namespaces and what joins them."""
        Path("/run/netns").mkdir(exist_ok=True)
        run(["ip", "-batch", "-"], stdin=(
            f"netns add {self.a.name}\nnetns add {self.b.name}\n"
            f"link add wan netns {self.a.name} type veth peer name wan netns {self.b.name}\n"))
        for space, outer, inner in ((self.a, OUTER_A, INNER_A), (self.b, OUTER_B, INNER_B)):
            space.sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0, ipv4__conf__default__rp_filter=0)
            run(["ip", "-n", space.name, "-batch", "-"], stdin=(
                f"link set lo up\nlink set wan up\naddress add {outer}/24 dev wan\n"
                f"address add {inner}/32 dev lo\n"))

    def start(self) -> None:
        self.link()
        self.tunnel()
        self.b.run(["ping", "-c", "1", "-W", "2", "-I", self.address_b, self.address_a])
        self.processes.append(self.b.start(["iperf3", "-s", "-B", self.address_b]))
        wait_until("iperf3 listens", lambda: ":5201" in self.b.run(["ss", "-ltn"]).stdout)

    def tunnel(self) -> None:
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    def mtu(self) -> int | None:
        """The MTU of the device that the traffic enters."""
        found = self.a.run(["ip", "-o", "route", "get", self.address_b, "from", self.address_a], check=False).stdout
        device = found.split(" dev ")[1].split()[0] if " dev " in found else None
        if not device:
            return None
        return int(self.a.run(["ip", "-o", "link", "show", device]).stdout.split(" mtu ")[1].split()[0])

    def cpu_seconds(self) -> float:
        """The CPU time so far of all processes in the two namespaces other than iperf3."""
        total = 0
        for space in (self.a, self.b):
            for pid in run(["ip", "netns", "pids", space.name], check=False).stdout.split():
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text()
                except OSError:
                    continue
                name, fields = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
                if name != "iperf3":
                    total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def iperf3(self, seconds: float, *arguments: str) -> dict:
        """Runs iperf3 and returns the report of the near end."""
        done = self.a.run(["iperf3", "-J", "-c", self.address_b, "-B", self.address_a, "-t", seconds, *arguments],
                          check=False, timeout=seconds + 30)
        try:
            report = json.loads(done.stdout)
            end = report["end"]
        except (ValueError, KeyError):
            raise HarnessError(f"iperf3 for {self.label}: {done.stdout[-500:]}{done.stderr}") from None
        if "error" in report:
            raise HarnessError(f"iperf3 for {self.label}: {report['error']}")
        return end

    def stop(self) -> None:
        for process in self.processes:
            process.stop()
        for space in (self.a, self.b):
            for pid in run(["ip", "netns", "pids", space.name], check=False).stdout.split():
                run(["kill", "-9", pid], check=False)
            run(["ip", "netns", "del", space.name], check=False)


class Bare(Setup):
    name, label, cipher = "veth", "bare veth pair", "none"
    address_a, address_b = OUTER_A, OUTER_B

    def tunnel(self) -> None:
        pass

    def version(self) -> str:
        return f"Linux {os.uname().release}"


def _settings(local: str, remote: str, local_id: str, remote_id: str, local_ts: str, remote_ts: str, encap: str) -> Settings:
    settings = Settings()
    settings.connections["site"] = {
        "version": 2, "local_addrs": local, "remote_addrs": remote, "proposals": "aes128gcm16-prfsha256-x25519",
        "encap": encap, "mobike": "no",
        "local": {"auth": "psk", "id": local_id}, "remote": {"auth": "psk", "id": remote_id},
        "children": {"net": {"local_ts": f"{local_ts}/32", "remote_ts": f"{remote_ts}/32",
                             "esp_proposals": "aes128gcm16", "rekey_time": "0s", "life_time": "0s"}}}
    settings.secrets["ike-1"] = {"id-a": ID_A, "id-b": ID_B, "secret": PSK}
    return settings


class _Ike(Setup):
    cipher = "AES-128-GCM, UDP encapsulation"
    encap = "yes"
    # Further keys of the child.
    child: dict[str, object] = {}

    def make(self, end: str, space: Namespace):
        raise NotImplementedError

    def tunnel(self) -> None:
        self.daemons = [self.make("a", self.a), self.make("b", self.b)]
        b = _settings(OUTER_B, OUTER_A, ID_B, ID_A, INNER_B, INNER_A, self.encap)
        a = _settings(OUTER_A, OUTER_B, ID_A, ID_B, INNER_A, INNER_B, self.encap)
        for daemon, settings in zip(self.daemons[::-1], (b, a)):
            settings.child().update(self.child)
            daemon.start(settings)
        self.daemons[0].up()

    def stop(self) -> None:
        for daemon in getattr(self, "daemons", []):
            daemon.stop()
        super().stop()


class StrongSwan(_Ike):
    name, label = "strongswan", "strongSwan kernel-libipsec"

    def make(self, end: str, space: Namespace):
        if reason := charon.missing():
            raise Unavailable(reason)
        return Charon(end, space, self.folder / end)

    def version(self) -> str:
        return run([charon.CHARON, "--version"], check=False).stdout.strip()


def release_program() -> Path:
    if chosen := os.environ.get("ESPLANADE_BIN"):
        return Path(chosen)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "esplanade"


class EsplanadePair(_Ike):
    name, label = "esplanade", "Esplanade"
    workers: int | None = None

    def program(self) -> Path:
        return release_program()

    def make(self, end: str, space: Namespace):
        program = self.program()
        if not program.exists():
            raise Unavailable(f"no program at {program}: cargo build --release")
        made = Esplanade(end, space, self.folder / end, export_keys=False)
        made.program = program
        made.gateway["log_level"] = "info"
        if self.workers:
            made.gateway["workers"] = self.workers
        return made

    def version(self) -> str:
        return run([self.program(), "--version"]).stdout.strip()


class EsplanadeRaw(EsplanadePair):
    name, label = "esplanade-raw", "Esplanade, raw ESP"
    cipher, encap = "AES-128-GCM, ESP as protocol 50", "no"


class EsplanadeXdp(EsplanadeRaw):
    """The outer link is a veth pair, which AF_XDP serves with copies."""
    name, label = "esplanade-xdp", "Esplanade, raw ESP by `xdp`"

    def make(self, end: str, space: Namespace):
        made = super().make(end, space)
        made.gateway["xdp"] = "wan"
        return made


class _Before:
    """Another build of the program, to compare with this one."""

    def program(self) -> Path:
        if chosen := os.environ.get("ESPLANADE_BEFORE"):
            return Path(chosen)
        raise Unavailable("ESPLANADE_BEFORE names no program")


class EsplanadeBefore(_Before, EsplanadePair):
    name, label = "esplanade-before", "Esplanade before"


class EsplanadeBeforeRaw(_Before, EsplanadeRaw):
    name, label = "esplanade-before-raw", "Esplanade before, raw ESP"


class _WireGuard(Setup):
    cipher = "ChaCha20-Poly1305"

    def command(self, interface: str) -> list[str]:
        raise NotImplementedError

    def tunnel(self) -> None:
        if not shutil.which("wg"):
            raise Unavailable("wireguard-tools is not installed (tools/deps.sh --bench)")
        command = self.command("probe")
        if not shutil.which(command[0]):
            raise Unavailable(f"{command[0]} is not installed")
        keys = {}
        for end in "ab":
            private = run(["wg", "genkey"]).stdout
            (self.folder / f"{end}.key").write_text(private)
            keys[end] = run(["wg", "pubkey"], stdin=private).stdout.strip()
        for end, other, space, outer, inner in (("a", "b", self.a, OUTER_B, INNER_B),
                                                ("b", "a", self.b, OUTER_A, INNER_A)):
            # The control sockets share a directory, so the name must be unique on the machine.
            interface = f"w{os.getpid():x}{self.name[0]}{end}"
            self.processes.append(space.start(self.command(interface), log=self.folder / f"{end}.log"))
            control = Path(f"/var/run/wireguard/{interface}.sock")
            wait_until(f"{self.label} starts", control.exists)
            space.run(["wg", "set", interface, "listen-port", "51820", "private-key", str(self.folder / f"{end}.key"),
                       "peer", keys[other], "endpoint", f"{outer}:51820", "allowed-ips", f"{inner}/32"])
            run(["ip", "-n", space.name, "-batch", "-"], stdin=(
                f"link set {interface} mtu 1420 up\nroute add {inner}/32 dev {interface} "
                f"src {INNER_A if end == 'a' else INNER_B}\n"))


class WireGuardGo(_WireGuard):
    name, label = "wireguard-go", "wireguard-go"

    def command(self, interface: str) -> list[str]:
        return ["wireguard-go", "-f", interface]

    def version(self) -> str:
        return run(["wireguard-go", "--version"], check=False).stdout.splitlines()[0]


class WireGuardGoOfTailscale(_WireGuard):
    """Tailscale's fork of wireguard-go, in which segmentation offload began."""
    name, label = "tailscale", "wireguard-go of Tailscale"
    program = ROOT / "target/tools/tailscale/wireguard-go"

    def command(self, interface: str) -> list[str]:
        if not self.program.exists():
            raise Unavailable("there is no target/tools/tailscale/wireguard-go: see bench/README.md")
        return [str(self.program), "-f", interface]

    def version(self) -> str:
        built = run(["go", "version", "-m", str(self.program)], check=False).stdout
        found = re.search(r"\tmod\s+github.com/tailscale/wireguard-go\s+(\S+)", built)
        return found[1] if found else "of an unknown version"


class BoringTun(_WireGuard):
    name, label = "boringtun", "boringtun"

    def command(self, interface: str) -> list[str]:
        return ["boringtun-cli", "-f", "--disable-drop-privileges", interface]

    def version(self) -> str:
        return run(["boringtun-cli", "--version"], check=False).stdout.strip()


class GotaTun(_WireGuard):
    """Mullvad's fork of boringtun."""
    name, label = "gotatun", "gotatun"

    def command(self, interface: str) -> list[str]:
        return ["gotatun", "-f", "--disable-drop-privileges", interface]

    def version(self) -> str:
        return run(["gotatun", "--version"], check=False).stdout.strip()


ALL: list[type[Setup]] = [
    Bare, EsplanadePair, EsplanadeRaw, EsplanadeXdp, StrongSwan, WireGuardGo, WireGuardGoOfTailscale, BoringTun, GotaTun,
]
# These setups are measured only if they are named.
BEFORE: list[type[Setup]] = [EsplanadeBefore, EsplanadeBeforeRaw]
