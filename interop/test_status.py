"""What `status` says to programs: JSON as docs/status.schema.json describes it."""

import copy
import json

import pytest
from ends import esplanade_pair, establish
from harness.esplanade import ROOT
from harness.process import wait_until
from harness.settings import ID_A, pair
from harness.traffic import assert_ping
from jsonschema import Draft202012Validator, ValidationError

pytestmark = pytest.mark.esplanade_only

SCHEMA = json.loads((ROOT / "docs" / "status.schema.json").read_text())


def strict(schema):
    """The schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    tight = {key: strict(one) for key, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        tight.setdefault("additionalProperties", False)
    return tight


def report(end, *arguments, check=True):
    """Returns a report, which must be as described."""
    shown = json.loads(end.command("status", "--json", *arguments, check=check).stdout)
    assert_described(shown, "brief" if "--brief" in arguments else "report")
    return shown


def assert_described(shown, form):
    tight = strict(SCHEMA) | {"$ref": f"#/$defs/{form}"}
    del tight["oneOf"]
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(tight).iter_errors(shown)]
    assert not errors, "\n".join(errors)
    Draft202012Validator(SCHEMA).validate(shown)


def test_reports_are_as_described(topology, daemon):
    Draft202012Validator.check_schema(SCHEMA)
    settings = pair(topology, inner=4)
    connections = settings[0].connections
    connections["other"] = copy.deepcopy(connections["site"])
    connections["other"]["remote_addrs"] = "192.0.2.77"
    child = connections["other"]["children"].pop("net")
    connections["other"]["children"]["far"] = child | {"start_action": "start", "remote_ts": "10.77.0.0/16"}
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4)

    whole = report(a)
    (sa,) = [sa for event in whole["sas"] for name, sa in event.items() if name == "site"]
    (net,) = sa["child-sas"].values()
    assert net["packets-in"] == net["packets-out"] == 3 and sa["initiator"] is True
    report(b)
    # A report of another form is refused.
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(whole | {"schema": 2})
    with pytest.raises(AssertionError, match="packets-in"):
        net["packets-in"] = "1"
        assert_described(whole, "report")

    old = net["spi-in"]
    a.rekey_child()
    wait_until("the new child SA", lambda: old not in {child["spi-in"] for child in a.children()})
    assert_ping(topology.host_a, topology.b.host4)
    (child,) = [one["site"]["children"]["net"] for one in report(a)["connections"] if "site" in one]
    assert child["packets-in"] == child["packets-out"] == 6, "the counts go on through a rekey"
    # An auditor sees the devices by their names.
    assert '"esp0"' in topology.gw_a.run(["nft", "list", "table", "inet", "esplanade-220"]).stdout
    worst, site = report(a, "--brief")["tunnels"]
    assert (worst["connection"], worst["wanted"], worst["peer"]) == ("other", True, "192.0.2.77")
    assert (site["child"], site["state"], site["packets-in"]) == ("net", "UP", 6)
    assert [one["child"] for one in report(a, "--brief", "--down", "--check", check=False)["tunnels"]] == ["far"]
    chosen = report(a, "site")
    assert [list(one) for one in chosen["connections"] + chosen["sas"]] == [["site"], ["site"]]


def test_what_a_child_loses_and_carries_is_told(topology, daemon):
    settings = pair(topology, inner=4)
    for own in settings:
        own.connections["site"]["children"]["net"]["start_action"] = "none"
    a, b = (daemon("esplanade", side) for side in "ab")
    for end, own in zip((a, b), settings):
        end.start(own)
    assert "lost" not in a.command("status").stdout
    send = ["ping", "-c", "5", "-i", "0.1", "-W", "1", topology.b.host4]
    assert topology.host_a.run(send, check=False).returncode != 0

    def lost():
        child = report(a)["connections"][0]["site"]["children"]["net"]
        return child.get("drops", {}).get("no-sa", 0)

    assert lost() == 5
    assert "site/net: 5 packets dropped (no-sa 5)" in a.command("status", "site").stdout
    assert report(a, "--brief")["tunnels"][0]["drops"] == {"no-sa": 5}
    a.up()
    assert_ping(topology.host_a, topology.b.host4)
    old = {child["spi-in"] for child in a.children()}
    a.rekey_child()
    wait_until("the new child SA", lambda: old.isdisjoint({child["spi-in"] for child in a.children()}))
    assert lost() == 5, "the counts go on"

    # 20 packets a second of 828 bytes each, in both directions.
    traffic = ["ping", "-q", "-c", "100", "-i", "0.05", "-s", "800", topology.b.host4]
    ping = topology.host_a.start(traffic)
    measured = report(a, "--rate", "2")
    (tunnel,) = report(b, "--rate", "1", "--brief")["tunnels"]
    ping.stop()
    assert 2000 <= measured["rate-window-ms"] < 4000
    child = measured["connections"][0]["site"]["children"]["net"]
    for rates in (child["rates"], tunnel["rates"]):
        for way in ("in", "out"):
            assert 15 <= rates[f"packets-per-second-{way}"] <= 21
            assert 15 * 828 * 8 <= rates[f"bits-per-second-{way}"] <= 21 * 828 * 8


def test_an_end_that_answers_says_whom_it_refused(topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].secrets["ike-1"]["secret"] = "not the one"
    a, b = (daemon("esplanade", side) for side in "ab")
    for end, own in zip((a, b), settings):
        end.start(own)
    assert a.up(check=False).returncode != 0
    refusal = report(b)["connections"][0]["site"]["last-refusal"]
    assert (refusal["remote-host"], refusal["remote-id"]) == (topology.a.wan4, ID_A)
    assert refusal["reason"] == "authentication-failed"
    told = f"refused {topology.a.wan4} '{ID_A}': {refusal['why']}"
    assert told in b.command("status", "--brief", "--down").stdout
    packet = f"udp {topology.b.host4}:1 -> {topology.a.host4}:2"
    assert refusal["why"] in b.command("explain", packet).stdout
    # The peer comes in, and nothing is left of it.
    a.load(pair(topology, inner=4)[0])
    a.up()
    assert "last-refusal" not in report(b)["connections"][0]["site"]
    assert b.command("status", "--down").stdout == ""


def test_many_children_of_a_connection_are_all_there(topology, daemon):
    """One message of the control socket does not hold them, as their names are long."""
    settings = pair(topology, inner=4)[0]
    children = settings.connections["site"]["children"]
    net = children["net"] | {"start_action": "none"}
    for number in range(1000):
        children[f"net{number}-{'x' * 240}"] = net | {"remote_ts": f"10.{100 + number // 250}.{number % 250}.0/24"}
    a = daemon("esplanade", "a")
    a.start(settings)
    shown = json.loads(a.command("status", "--json").stdout)
    (connection,) = shown["connections"]
    assert len(connection["site"]["children"]) == 1001
    assert len(a.command("status", "--brief").stdout.splitlines()) == 1001
