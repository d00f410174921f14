"""Outputs that take nothing (a full disk, a pipe without a reader or with one that sleeps) hold up no packet and no IKE."""

import fcntl
import os
import re
import signal
import threading
from contextlib import contextmanager

import pytest
from ends import esplanade_pair, establish
from harness.esplanade import binary
from harness.process import run, wait_until
from harness.settings import pair
from harness.traffic import assert_ping, inject
from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP

pytestmark = pytest.mark.esplanade_only
SMALLEST_PIPE = 4096
# More than the log's queue has room for.
MANY = 6000


class Pipe:
    """The log goes into a pipe that is read when the test says so."""

    def __init__(self, end):
        self._read, self._write = os.pipe()
        fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
        end.stderr = self._write
        self._parts: list[bytes] = []
        self._thread: threading.Thread | None = None

    def hand_over(self) -> None:
        """Once the daemon has it, the pipe has no other writer."""
        os.close(self._write)

    def drain(self) -> None:
        def read() -> None:
            while part := os.read(self._read, 65536):
                self._parts.append(part)
        self._thread = threading.Thread(target=read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The reader goes away."""
        os.close(self._read)

    def text(self) -> str:
        return b"".join(self._parts).decode()


def strangers(topology, end, count: int = 1) -> None:
    """ESP packets that no SA is for: each is an event for the audit log."""
    stranger = IP(src=topology.b_seen_by_a.wan4, dst=topology.a.wan4)
    before = end.counter("drops.unknown-spi")
    inject(topology.wan, [bytes(stranger / ESP(spi=0xDEAD0000 + n, seq=1, data=bytes(32))) for n in range(count)])
    wait_until("the packets of strangers", lambda: end.counter("drops.unknown-spi") == before + count)


def chatter(end, count: int) -> None:
    """Lines in the log, one a command, at the level debug."""
    session = end.session()
    for _ in range(count):
        session.version()


def assert_works(topology, a, b) -> None:
    """Traffic, IKE in both directions, and no end of it."""
    assert_ping(topology.host_a, topology.b.host4)
    b.rekey_child()
    a.rekey_ike()
    strangers(topology, a)
    assert_ping(topology.host_a, topology.b.host4, count=5)
    assert a._process.returncode is None


@pytest.mark.parametrize("kind", ["full", "closed"])
def test_a_log_that_cannot_be_written(kind, topology, daemon):
    settings = pair(topology, inner=4)
    a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
    b.start(settings[1])
    if kind == "full":
        with open("/dev/full", "wb") as full:
            a.stderr = full.fileno()
            a.start(settings[0])
    else:
        pipe = Pipe(a)
        pipe.close()
        a.start(settings[0])
        pipe.hand_over()
    a.up()
    assert_works(topology, a, b)
    status = a.status()["counters"]["log"]
    assert status["waiting"] > 0
    assert status["error"].startswith({"full": "No space left", "closed": "Broken pipe"}[kind])
    assert "the log has lost 0 lines" in a.command("status").stdout
    assert a.stop() == 0


def test_a_reader_that_sleeps_hears_later_what_was_lost(topology, daemon):
    settings = pair(topology, inner=4)
    a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
    b.start(settings[1])
    pipe = Pipe(a)
    a.start(settings[0])
    pipe.hand_over()
    a.up()
    chatter(a, MANY)
    lost = a.status()["counters"]["log"]["lost"]
    assert lost > 0
    assert_works(topology, a, b)

    pipe.drain()
    wait_until("the queue is written", lambda: a.status()["counters"]["log"]["waiting"] < 10)
    chatter(a, 10)
    told = r"ERROR.*log lines were lost.* lost=(\d+)"
    lost = a.status()["counters"]["log"]["lost"]
    wait_until("the losses are told", lambda: sum(map(int, re.findall(told, pipe.text()))) == lost)
    lines = pipe.text().splitlines()
    assert any("the gateway is ready" in line for line in lines)
    note = next(number for number, line in enumerate(lines) if re.search(told, line))
    assert any("control command" in line for line in lines[note:]), "it stands where the lines are missing"
    assert a.stop() == 0
    wait_until("the last line", lambda: "the gateway stops" in pipe.text())


def test_the_end_does_not_wait_for_a_reader_that_sleeps(topology, daemon):
    a = daemon("esplanade", "a")
    pipe = Pipe(a)
    a.start(pair(topology)[0])
    pipe.hand_over()
    chatter(a, 100)
    assert a.stop() == 0


@contextmanager
def small_disk(folder):
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder])
    try:
        yield folder
    finally:
        run(["umount", "-l", folder], check=False)


def fill(path) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            pass


def test_a_disk_that_fills_up_and_is_cleared(topology, daemon, folder):
    """Nothing is missing afterwards, and no line is torn."""
    settings = pair(topology, inner=4)
    with small_disk(folder / "disk") as disk:
        a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
        a.log, a.keys = disk / "log", disk / "keys"
        b.start(settings[1])
        a.start(settings[0])
        a.up()
        fill(disk / "filler")
        assert_works(topology, a, b)
        chatter(a, 200)
        wait_until("the disk is full", lambda: "No space" in a.status()["counters"]["log"].get("error", ""))
        (disk / "filler").unlink()
        wait_until("all is written", lambda: a.status()["counters"]["log"]["waiting"] == 0)
        assert a.status()["counters"]["log"]["lost"] == 0
        assert a.stop() == 0
        text = a.logs()
        assert text.count('command="version"') == 200 and text.count("IKE SA rekeyed") == 1
        assert all(re.match(r"\S+ +(ERROR|WARN|INFO|DEBUG) ", line) for line in text.splitlines())
        assert len(a.key_lines()) >= 6


def test_a_limit_on_the_size_of_files(topology, daemon):
    """Without care the kernel ends the program with SIGXFSZ."""
    settings = pair(topology, inner=4)
    a, b = daemon("esplanade", "a", export_keys=False), daemon("esplanade", "b")
    a.wrapper = ["prlimit", "--fsize=2048", "--"]
    b.start(settings[1])
    a.start(settings[0])
    a.up()
    chatter(a, 100)
    assert_works(topology, a, b)
    assert "too large" in a.status()["counters"]["log"]["error"]


def test_keys_that_cannot_be_written(topology, daemon, folder):
    """Said once; the tunnel comes up all the same, and the keys are there when the disk has room again."""
    settings = pair(topology, inner=4)
    with small_disk(folder / "disk") as disk:
        fill(disk / "filler")
        a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
        a.keys = disk / "keys"
        b.start(settings[1])
        a.start(settings[0])
        a.up()
        assert_works(topology, a, b)
        wait_until("it is told", lambda: a.logs().lower().count("no space left") == 1)
        assert "the key export has lost 0 lines" in a.command("status").stdout
        (disk / "filler").unlink()
        wait_until("the keys are written", lambda: a.status()["counters"]["key-export"]["waiting"] == 0)
        wait_until("b has written them too", lambda: set(b.key_lines()) == set(a.key_lines()))
        assert a.logs().lower().count("no space left") == 1


def test_keys_go_into_no_file_of_others(topology, daemon, folder):
    """Neither through a symbolic link nor into what others can read."""
    a = daemon("esplanade", "a")
    target, link = folder / "target", folder / "link"
    target.write_text("mine")
    target.chmod(0o600)
    link.symlink_to(target)
    for path, why in ((link, "symbolic link"), (folder / "wide", "others may read")):
        if path != link:
            path.touch()
            path.chmod(0o644)
        a.write(pair(topology)[0])
        refused = run([binary(), "run", "--config", a.config, "--export-keys", path], check=False)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr
    assert target.read_text() == "mine"


def test_signals_without_a_meaning_end_nothing(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    ignored = [signal.SIGPIPE, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU, signal.SIGXCPU,
               signal.SIGXFSZ, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR, 16, signal.SIGRTMIN, signal.SIGRTMAX]
    for number in ignored:
        os.kill(a._process.popen.pid, number)
        assert_ping(topology.host_a, topology.b.host4, count=1)
        assert a._process.returncode is None, number
    os.kill(a._process.popen.pid, signal.SIGHUP)
    wait_until("a reload", lambda: "configuration reloaded" in a.logs())
    assert_ping(topology.host_a, topology.b.host4)
