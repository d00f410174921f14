"""What the log is in the journal of systemd: entries with priorities and fields."""

import json
import shutil
from pathlib import Path

import pytest
from harness.process import run, wait_until
from harness.settings import pair
from harness.traffic import assert_ping

pytestmark = pytest.mark.esplanade_only

JOURNALD = Path("/lib/systemd/systemd-journald")
# A journal of the test's own, and the gateway under `systemd-cat`, which leads standard error there. The journal
# becomes an orphan, so that the gateway has no child that it does not know.
BESIDE_A_JOURNAL = """
mkdir -p /run/systemd /run/log
mount -t tmpfs tmpfs /run/systemd
mount -t tmpfs tmpfs /run/log
mkdir /run/systemd/journal
(/lib/systemd/systemd-journald >/dev/null 2>&1 &)
until [ -S /run/systemd/journal/socket ] && [ -S /run/systemd/journal/stdout ]; do sleep 0.05; done
[ "$1" = fields ] || rm /run/systemd/journal/socket
shift
exec systemd-cat sh -euc 'export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); exec "$@"' sh "$@"
"""


@pytest.fixture
def journaled(daemon):
    """Returns the end that starts beside a journal, and what reads its entries."""
    if not JOURNALD.exists() or shutil.which("systemd-cat") is None:
        pytest.skip("systemd is not installed")
    a = daemon("esplanade", "a")

    def start(settings, socket="fields"):
        a.wrapper = ["unshare", "--mount", "sh", "-euc", BESIDE_A_JOURNAL, "sh", socket]
        a.start(settings)

        def entries(*matches):
            folder = f"/proc/{a._process.popen.pid}/root/run/log/journal"
            shown = run(["journalctl", "-q", "--no-pager", "-D", folder, "-o", "json", *matches]).stdout
            return [json.loads(line) for line in shown.splitlines()]

        return entries

    return a, start


def test_entries_have_fields(journaled, daemon, topology):
    settings = pair(topology, inner=4)
    a, start = journaled
    entries = start(settings[0])
    b = daemon("esplanade", "b")
    b.start(settings[1])
    a.up()
    assert_ping(topology.host_a, topology.b.host4)

    (child,) = wait_until("the child", lambda: entries("ESPLANADE_CONNECTION=site", "ESPLANADE_CHILD=net"))
    assert (child["PRIORITY"], child["SYSLOG_IDENTIFIER"]) == ("6", "esplanade")
    assert child["MESSAGE"].startswith("esplanade::daemon: child SA installed connection=")
    assert child["ESPLANADE_SPI_IN"] == a.children()[0]["spi-in"]
    assert child["_TRANSPORT"] == "journal"
    (up,) = [one for one in entries("ESPLANADE_CONNECTION=site") if "established" in one["MESSAGE"]]
    assert up["ESPLANADE_REMOTE"] == f"{topology.b.wan4}:500"
    assert up["ESPLANADE_TARGET"] == "esplanade::daemon::log_lines"

    # The confined gateway still reaches the journal, and a text of several lines is one entry.
    a.config.write_text(a.config.read_text().replace("remote_addrs", "nonsense"))
    assert a.command("reload", check=False).returncode != 0
    errors = wait_until("the error", lambda: entries("-p", "err", "SYSLOG_IDENTIFIER=esplanade"))
    assert any("nonsense" in one["MESSAGE"] for one in errors), errors
    assert all(one["PRIORITY"] == "3" for one in errors)
    told = json.dumps(entries())
    for _, key in [(line, line.split()[-1]) for line in a.key_lines()]:
        assert key not in told, "no key is in the journal"
    assert a.counter("log.lost") == 0


def test_without_the_socket_lines_have_their_priority(journaled, topology):
    a, start = journaled
    entries = start(pair(topology, inner=4)[0], socket="none")
    assert a.up(check=False).returncode != 0
    (failed,) = wait_until("the warning", lambda: [
        one for one in entries("-p", "warning..warning") if "cannot establish" in str(one["MESSAGE"])])
    assert failed["_TRANSPORT"] == "stdout"
    assert "ESPLANADE_CONNECTION" not in failed
