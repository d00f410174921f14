"""Fixtures: every test builds its own namespaces and daemons and takes them down again."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import draw
import pytest
from ends import ids
from harness import capture, charon, libreswan, openiked
from harness.charon import Charon
from harness.esplanade import Esplanade, binary
from harness.namespaces import Topology, close_all, missing_privilege
from harness.pki import Authority

ESPLANADE, CHARON = "esplanade", "charon"
_FIRST = (ESPLANADE, CHARON)


def pytest_addoption(parser):
    parser.addoption("--peers-only", action="store_true",
                     help="strongSwan at both ends: shows that the harness itself passes")
    parser.addoption("--newest", action="store_true", help="Debian 13's strongSwan and libreswan for the installed ones")


def pytest_configure(config):
    config.addinivalue_line("markers", "esplanade_only: means nothing with another program in Esplanade's place")
    config.addinivalue_line("markers", "alone: measures time, or loads the machine")
    config.addinivalue_line("markers", "drawn: a part of the cases with Esplanade at both ends runs (draw.py)")
    config.addinivalue_line("markers", "one_direction: one of two cases with strongSwan runs (draw.py)")
    if not asked_by_name(config):
        draw.prepare()
    if (reason := missing_privilege()) is not None:
        config.stash[_NO_PRIVILEGE] = f"{reason}; run interop/run, which uses a user namespace"
    elif not config.getoption("--peers-only") and not binary().exists():
        raise pytest.UsageError(f"no program at {binary()}: build it, or set ESPLANADE_BIN")
    # A killed run must not leave namespaces behind.
    atexit.register(close_all)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_close_and(143)))


_NO_PRIVILEGE = pytest.StashKey[str]()
_DRAWN = pytest.StashKey[dict]()


def asked_by_name(config) -> bool:
    return bool(config.option.keyword) or any("::" in str(one) for one in config.args)


def _close_and(status: int) -> int:
    close_all()
    return status


def pytest_collection_modifyitems(config, items):
    reason = config.stash.get(_NO_PRIVILEGE, None)
    peers_only = config.getoption("--peers-only")
    if peers_only:
        # The pairs differ only in where Esplanade stands: one of them is enough.
        same = [item for item in items if hasattr(item, "callspec") and item.callspec.params.get("ends", _FIRST) != _FIRST]
        config.hook.pytest_deselected(items=same)
        items[:] = [item for item in items if item not in same]
    left_out, config.stash[_DRAWN] = ([], {}) if peers_only or asked_by_name(config) else draw.choose(items, ids)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        left_out = set(left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif peers_only and item.get_closest_marker("esplanade_only"):
            item.add_marker(pytest.mark.skip(reason="needs Esplanade (--peers-only)"))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["drawn"] = session.config.stash.get(_DRAWN, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[_DRAWN] = getattr(node, "workeroutput", {}).get("drawn", {})


def pytest_terminal_summary(terminalreporter, config):
    for marker, numbers in config.stash.get(_DRAWN, {}).items():
        terminalreporter.write_line(f"{marker}: {numbers} cases run, by seed {os.environ[draw.SEED]} "
                                    "(INTEROP_SEED); INTEROP_ALL=1 runs all")
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP {report.nodeid}: {reason.removeprefix('Skipped: ')}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
        for daemon in item.stash.get(_DAEMONS, []):
            text = daemon.logs()
            report.sections.append((f"log of {daemon.name}", text[-12000:]))
            if report.when == "call" and isinstance(daemon, Esplanade):
                report.sections.append((f"counters of {daemon.name}", daemon.counted()))
    return report


_FAILED = pytest.StashKey[bool]()
_DAEMONS = pytest.StashKey[list]()


@pytest.fixture
def folder(request):
    """Short, for the sockets in it; kept when the test fails."""
    path = Path(tempfile.mkdtemp(prefix="esp-"))
    yield path
    if request.node.stash.get(_FAILED, False):
        print(f"files kept in {path}")
    else:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def topology(request):
    built = Topology(**getattr(request, "param", {}))
    yield built
    built.close()


REFUSED = "the confinement refused a system call"


@pytest.fixture
def daemon(request, topology, folder):
    """Makes a daemon of a kind at one end: `daemon("charon", "a")`; or between both: `daemon("esplanade", "hub")`."""
    made = request.node.stash.setdefault(_DAEMONS, [])

    def make(kind: str, end: str, **options):
        if kind == ESPLANADE and request.config.getoption("--peers-only"):
            kind = CHARON
            options = {key: value for key, value in options.items() if key != "export_keys"}
        newest = request.config.getoption("--newest")
        space = topology.wan if end == "hub" else topology.spaces[f"gw_{end}"]
        if kind == CHARON:
            if reason := charon.missing(newest):
                pytest.skip(reason)
            new = Charon(end, space, folder / end, newest=newest, **options)
        else:
            new = Esplanade(end, space, folder / end, **options)
        made.append(new)
        return new

    yield make
    for one in made:
        one.stop()
    for one in made:
        assert REFUSED not in one.logs(), f"{one.name} needs a system call that it may not make"


@pytest.fixture
def pluto(request, topology, folder):
    """libreswan at end B."""
    newest = request.config.getoption("--newest")
    if reason := libreswan.missing(newest):
        pytest.skip(reason)
    peer = libreswan.Pluto("b", topology.gw_b, folder / "b", newest)
    request.node.stash.setdefault(_DAEMONS, []).append(peer)
    yield peer
    peer.stop()


@pytest.fixture(scope="session")
def pf_key(tmp_path_factory):
    """What stands in for the kernel of OpenIKED."""
    if reason := openiked.missing():
        pytest.skip(reason)
    return openiked.compile_kernel(tmp_path_factory.mktemp("pf_key"))


@pytest.fixture
def iked(request, topology, folder, pf_key):
    """OpenIKED at end B."""
    peer = openiked.Iked("b", topology.gw_b, folder / "b", pf_key)
    request.node.stash.setdefault(_DAEMONS, []).append(peer)
    yield peer
    peer.stop()


@pytest.fixture
def needs_capture():
    if reason := capture.missing():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def authorities(tmp_path_factory):
    """One certificate authority per kind of key, made when first asked for."""
    folder, made = tmp_path_factory.mktemp("pki"), {}

    def get(kind: str, name: str = "Interop CA") -> Authority:
        if (kind, name) not in made:
            made[kind, name] = Authority(folder / kind, kind, name.replace(" ", "-"))
        return made[kind, name]

    return get
