"""Private keys and certificates on PKCS#11 tokens. SoftHSM plays the token."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from ends import establish, esplanade_pair, start, with_peer
from harness.process import run, wait_until
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping

pytestmark = pytest.mark.esplanade_only

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN, HANDLE = "483920", "02a7"


class Token:
    """A token of its own, which holds keys and certificates."""

    def __init__(self, folder: Path):
        self.folder, self.store = folder, folder / "tokens"
        self.store.mkdir()
        config = folder / "softhsm2.conf"
        config.write_text(f"directories.tokendir = {self.store}\nobjectstore.backend = file\nlog.level = ERROR\n")
        self.environment = {"SOFTHSM2_CONF": str(config)}

    def init(self, pin: str = PIN) -> None:
        done = run(["softhsm2-util", "--init-token", "--free", "--label", "moon", "--pin", pin, "--so-pin", "12345678"])
        self.slot = int(re.search(r"slot (\d+)", done.stdout).group(1))

    def add(self, identity, handle: str = HANDLE, *, certificate: bool = False, key: bool = True) -> None:
        if key:
            run(["softhsm2-util", "--import", identity.key, "--slot", str(self.slot), "--label", handle, "--id", handle,
                 "--pin", PIN])
        if certificate:
            der = self.folder / f"{handle}.der"
            run(["openssl", "x509", "-in", identity.certificate, "-outform", "DER", "-out", der])
            run(["pkcs11-tool", "--module", MODULE, "--slot", str(self.slot), "--login", "--pin", PIN,
                 "--write-object", der, "--type", "cert", "--id", handle, "--label", handle])

    def leave(self) -> None:
        self.store.rename(self.folder / "away")
        self.store.mkdir()

    def come_back(self) -> None:
        self.store.rmdir()
        (self.folder / "away").rename(self.store)


@pytest.fixture
def token(tmp_path, monkeypatch):
    for tool in ("softhsm2-util", "pkcs11-tool"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: tools/deps.sh installs it")
    if not MODULE.exists():
        pytest.skip(f"no {MODULE}: tools/deps.sh installs it")
    token = Token(tmp_path)
    for name, value in token.environment.items():
        monkeypatch.setenv(name, value)
    token.init()
    return token


def with_token(topology, authority, end: int, *, certificate: bool = False, slot: int | None = None, pin: str = PIN,
               handle: str = HANDLE):
    """The key of the gateway at `end` is on its token, the other's in a file."""
    identities = authority.identity(ID_A), authority.identity(ID_B)
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    each = settings[end]
    place = {"handle": handle} | ({"slot": slot} if slot is not None else {})
    each.keys = []
    each.gateway["pkcs11"] = {"modules": {"softhsm": {"path": str(MODULE)}}}
    each.secrets["token-1"] = place | {"pin": pin}
    if certificate:
        del each.connections["site"]["local"]["certs"]
        each.connections["site"]["local"]["cert-1"] = place | {"module": "softhsm"}
    each.connections["site"]["keyingtries"] = 1
    return settings, identities[end]


def end_of(ends) -> int:
    return ends.index("esplanade")


@with_peer
@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ecdsa384", "ecdsa521"])
def test_a_key_on_a_token(ends, kind, topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities(kind), end_of(ends))
    token.add(identity)
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)


@with_peer
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_certificate_on_a_token(ends, kind, topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities(kind), end_of(ends), certificate=True, slot=token.slot)
    token.add(identity, certificate=True)
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)


@with_peer
def test_rsa_without_pss(ends, topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities("rsa"), end_of(ends))
    settings[end_of(ends)].connections["site"]["local"]["auth"] = "rsa-sha384"
    token.add(identity)
    establish(daemon, ends, settings)


@with_peer
def test_the_key_is_one_of_several(ends, topology, daemon, authorities, token):
    """The first secret names the key of another certificate, and nobody says which one is right."""
    settings, identity = with_token(topology, authorities("ecdsa"), end_of(ends))
    other = authorities("ecdsa").identity("other.esplanade.test")
    each = settings[end_of(ends)]
    each.secrets = {"token-0": {"handle": "01", "pin": PIN}} | each.secrets
    token.add(other, "01")
    token.add(identity)
    establish(daemon, ends, settings)




def test_a_wrong_pin_is_tried_once(topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities("ecdsa"), 0, pin="000000")
    token.add(identity)
    a, b = start(daemon, esplanade_pair, settings)
    first = a.up(check=False)
    assert first.returncode != 0 and "refused the PIN" in first.stdout + first.stderr
    for _ in range(2):
        again = a.up(check=False)
        assert again.returncode != 0 and "not tried again" in again.stdout + again.stderr
    assert a.logs().count("the token has refused the PIN, which is not tried again until") == 1
    assert "000000" not in a.logs() and "000000" not in str(a.status())
    # A reload brings another PIN.
    settings[0].secrets["token-1"]["pin"] = PIN
    a.load(settings[0])
    a.up()
    a.wait_installed()


@pytest.mark.parametrize("handle, says", [("77", "no private key with the handle 77"), ("01", "does not belong")])
def test_another_key_is_named(handle, says, topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities("ecdsa"), 0, handle=handle)
    token.add(identity)
    token.add(authorities("ecdsa").identity("other.esplanade.test"), "01")
    a, b = start(daemon, esplanade_pair, settings)
    done = a.up(check=False)
    assert done.returncode != 0 and says in done.stdout + done.stderr
    assert not b.installed()


@pytest.mark.parametrize("end", [0, 1], ids=["initiator", "responder"])
def test_a_token_goes_and_comes_back(end, topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities("rsa"), end, certificate=True)
    settings[0].connections["site"]["keyingtries"] = 1
    token.add(identity, certificate=True)
    a, b = establish(daemon, esplanade_pair, settings)
    a.down()
    b.wait_gone()
    token.leave()
    assert a.up(check=False).returncode != 0
    assert "there is no token" in (a, b)[end].logs()
    token.come_back()
    a.up()
    a.wait_installed()


def test_a_module_that_ends_is_started_again(topology, daemon, authorities, token):
    settings, identity = with_token(topology, authorities("ecdsa"), 0)
    token.add(identity)
    a, b = establish(daemon, esplanade_pair, settings)
    a.down()
    b.wait_gone()
    assert kill_children_of(a, b"token-module") == 1
    failed = a.up(check=False)
    assert failed.returncode != 0 and "process has ended" in failed.stdout + failed.stderr
    wait_until("the module runs again", lambda: a.up(check=False).returncode == 0, timeout=20, step=0.5)
    a.wait_installed()


def kill_children_of(gateway, command: bytes) -> int:
    """Kills the gateway's processes with this hidden command. They have its folder as their own."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if command in (process / "cmdline").read_bytes().split(b"\0") and (process / "cwd").resolve() == gateway.folder:
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed
