"""A gateway whose own certificate peers refuse, or will refuse soon, says so before they do."""

import json
import time

import pytest
from harness.process import run
from harness.settings import ID_A, ID_B, pair

DAY = 24 * 3600


def stamp(seconds: float) -> str:
    return time.strftime("%y%m%d%H%M%SZ", time.gmtime(seconds))


@pytest.mark.parametrize("begin, end, state, says", [
    (-400, -332, "expired", ["expired 332 days ago", "is this machine's clock right?"]),
    (10, 400, "not-yet-valid", ["is valid in 9 days", "is this machine's clock right?"]),
    (-300, 3, "ends-soon", ["ends in 2 days", "have the authority issue a new one"]),
    (-300, 60, "valid", []),
])
@pytest.mark.esplanade_only
def test_its_validity(begin, end, state, says, topology, daemon, authorities):
    now = time.time() - 60
    authority = authorities("ecdsa")
    own = authority.reissue(authority.identity(ID_A), stamp(now + begin * DAY), stamp(now + end * DAY))
    settings, _ = pair(topology, identities=(own, authority.identity(ID_B)), authority=authority.certificate)
    gateway = daemon("esplanade", "a")
    gateway.write(settings)
    checked = run([gateway.program, "check", gateway.config])
    gateway.start(settings)
    for text in checked.stderr, gateway.logs():
        for part in ["the own certificate", *says] if says else []:
            assert part in text, text
        assert says or "own certificate" not in text, text
    listed = json.loads(gateway.command("status", "--json").stdout)["certificates"]
    assert [one["state"] for one in listed.values()] == [state], listed
    assert listed["0"]["connections"] == ["site"], listed
    shown = "own certificate" in gateway.command("status").stdout
    assert shown == bool(says)
