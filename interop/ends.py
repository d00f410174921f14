"""Which program stands at which end. A initiates, so the order says who does."""

import pytest

# With strongSwan both ways round, and with itself.
ENDS = [("esplanade", "charon"), ("charon", "esplanade"), ("esplanade", "esplanade")]
WITH_PEER = ENDS[:2]


def ids(ends):
    return f"{ends[0]}-to-{ends[1]}"


every_end = pytest.mark.parametrize("ends", ENDS, ids=ids)
with_peer = pytest.mark.parametrize("ends", WITH_PEER, ids=ids)
esplanade_pair = ("esplanade", "esplanade")


def start(daemon, ends, settings, **options):
    """Both daemons, started; B first, so that A may initiate at once."""
    a, b = (daemon(kind, end, **options) for kind, end in zip(ends, "ab"))
    b.start(settings[1])
    a.start(settings[0])
    return a, b


def establish(daemon, ends, settings, **options):
    a, b = start(daemon, ends, settings, **options)
    a.up()
    a.wait_installed()
    b.wait_installed()
    return a, b
