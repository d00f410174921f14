"""Finds benches by their names, leaves out parameter sets that are not drawn (drawing.py), and says which."""

import pickle
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "tb"))
import sources  # noqa: E402

sys.path[:1] = map(str, sources.python_path())
import drawing  # noqa: E402


def place(word):
    """The path of a bench, or of a test in it, which is named without the folder of its module."""
    bench, colons, test = word.partition("::")
    if bench in sources.benches():
        [file] = sources.benches()[bench].glob("test_*.py")
        return f"{file}{colons}{test}"
    if Path(bench).exists():
        return word
    raise pytest.UsageError(f"there is no bench {bench}")


def pytest_configure(config):
    config.addinivalue_line("markers", "parameter_sets(always): parametrised by the parameters of a module, the first so many run always")
    option = config.option
    config.args = [place(word) for word in config.args]
    if hasattr(config, "workerinput"):
        config.drawing = pickle.loads(config.workerinput["drawing"])
    else:
        config.drawing = drawing.drawing(named=bool(option.keyword or option.markexpr or option.file_or_dir))
    config.sets_run, config.sets_left_out = [], []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """The workers of pytest-xdist have the drawing of the one that starts them."""
    node.workerinput["drawing"] = pickle.dumps(node.config.drawing)


def pytest_report_header(config):
    return config.drawing.says()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    seen, kept = {}, []
    for item in items:
        if marks := list(item.iter_markers("parameter_sets")):
            test = item.nodeid.split("[")[0]
            at = seen[test] = seen.get(test, -1) + 1
            always = max(mark.args[0] for mark in marks)
            if not config.drawing.runs(Path(item.path), item.nodeid, at, always):
                config.sets_left_out.append(item.nodeid)
                continue
            if at >= always:
                config.sets_run.append(item.nodeid)
        kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    # Each test runs with one set at least.
    assert {item.nodeid.split("[")[0] for item in kept} >= seen.keys()


def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["sets"] = [config.sets_run, config.sets_left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if sets := getattr(node, "workeroutput", {}).get("sets"):
        node.config.sets_run, node.config.sets_left_out = sets


def pytest_terminal_summary(terminalreporter, config):
    say = terminalreporter.write_line
    say(config.drawing.says())
    say(f"parameter sets beside the first ones: {len(config.sets_run)} ran, {len(config.sets_left_out)} were left out")
    if config.sets_left_out:
        for name in config.sets_run:
            say(f"  drawn: {name.partition('::')[2]}")
