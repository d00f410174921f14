//! The JSON of `status`, which `docs/status.schema.json` describes.

use std::collections::BTreeMap;
use std::time::Duration;

use esplanade_pki::text::steers;
use esplanade_vici::Section;
use serde_json::{Map, Value, json};

use super::rates::Rates;
use super::tunnels::{CHILDREN, Tunnel};

/// The version of the form. It grows when a key goes, or when its meaning or type changes; not when a key is added.
pub const SCHEMA: u64 = 1;

/// Returns what the gateway says of itself. The arguments are the gateway's answers in JSON.
pub fn report(
    sas: Vec<Value>,
    connections: Vec<Value>,
    counters: Value,
    mut stats: Value,
) -> Value {
    let connections = connections.into_iter().map(with_hyphens).collect();
    let mut report = json!({
        "schema": SCHEMA,
        "sas": without_empty(sas),
        "connections": without_empty(connections),
        "counters": counters,
    });
    for part in [
        "certificates",
        "confinement",
        "control",
        "crls",
        "engine",
        "links",
        "refusals",
        "shield",
        "workers",
    ] {
        // An older gateway may lack a part.
        if let Some(content) = stats.get_mut(part) {
            report[part] = content.take();
        }
    }
    report
}

/// Returns one entry for each tunnel.
pub fn brief(tunnels: &[Tunnel]) -> Value {
    json!({ "schema": SCHEMA, "tunnels": tunnels })
}

/// Adds the time over which rates were measured, and the rates of the children of [`report`].
pub fn add_rates(report: &mut Value, rates: &BTreeMap<(String, String), Rates>, window: Duration) {
    report["rate-window-ms"] = json!(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
    let listed = report.get_mut("connections").and_then(Value::as_array_mut);
    let listed = listed
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut);
    for (connection, content) in listed.flatten() {
        let children = content.get_mut("children").and_then(Value::as_object_mut);
        for (child, content) in children.into_iter().flatten() {
            let key = (connection.clone(), child.clone());
            if let (Some(rates), Value::Object(content)) = (rates.get(&key), content) {
                content.insert("rates".to_owned(), json!(rates));
            }
        }
    }
}

/// Writes out JSON in lines. Texts come from peers: nothing in them may steer a terminal.
pub fn lines(value: &Value) -> String {
    let mut out = String::new();
    for c in format!("{value:#}").chars() {
        match c {
            '\n' => out.push(c),
            // It is in a text.
            _ if steers(c) => out += &format!("\\u{:04x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// Adds the children of an event about the same IKE SA, or the same connection.
pub fn append_children(to: &mut Value, from: Value) {
    let Value::Object(entries) = from else { return };
    for (name, mut entry) in entries {
        for key in CHILDREN {
            let all = to.get_mut(&name).and_then(|entry| entry.get_mut(key));
            if let (Some(Value::Object(all)), Some(Value::Object(more))) =
                (all, entry.get_mut(key).map(Value::take))
            {
                all.extend(more);
            }
        }
    }
}

/// Removes the objects that are not in a section. It is the section of this value, with sections left out.
pub fn prune(value: &mut Value, section: &Section) {
    let Value::Object(entries) = value else {
        return;
    };
    entries.retain(|name, entry| !entry.is_object() || section.sub(name).is_some());
    for (name, entry) in entries {
        if let Some(section) = section.sub(name) {
            prune(entry, section);
        }
    }
}

fn without_empty(mut events: Vec<Value>) -> Vec<Value> {
    events.retain(|event| event.as_object().is_some_and(|entries| !entries.is_empty()));
    events
}

/// Spells the keys of a connection and of its children with hyphens, as all others are. vici's own have underscores.
/// Names stay as they are.
fn with_hyphens(event: Value) -> Value {
    let children = |(key, value): (String, Value)| match (key.as_str(), value) {
        ("children", Value::Object(children)) => (key, named(children, rename)),
        (_, value) => (key, value),
    };
    let connection = |value: Value| match rename(value) {
        Value::Object(entries) => Value::Object(entries.into_iter().map(children).collect()),
        other => other,
    };
    match event {
        Value::Object(connections) => named(connections, connection),
        other => other,
    }
}

fn named(entries: Map<String, Value>, change: impl Fn(Value) -> Value) -> Value {
    let changed = entries.into_iter().map(|(name, one)| (name, change(one)));
    Value::Object(changed.collect())
}

fn rename(value: Value) -> Value {
    let Value::Object(entries) = value else {
        return value;
    };
    let renamed = entries
        .into_iter()
        .map(|(key, value)| (key.replace('_', "-"), value));
    Value::Object(renamed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_hyphens_and_names_stay() {
        let connection = json!({
            "my_site": {
                "dpd_delay": 30,
                "local-1": { "id": "a_b" },
                "names": { "gw_a.example": { "addresses": [] } },
                "children": { "my_net": { "rekey_time": 3600, "wanted": true } },
            }
        });
        let report = report(
            vec![json!({}), json!({ "my_site": { "version": 2 } })],
            vec![connection],
            json!({ "drops": {} }),
            json!({ "engine": { "name": "cpu" }, "uptime": { "running": "3 s" } }),
        );
        let expected = json!({
            "schema": SCHEMA,
            "sas": [{ "my_site": { "version": 2 } }],
            "connections": [{
                "my_site": {
                    "dpd-delay": 30,
                    "local-1": { "id": "a_b" },
                    "names": { "gw_a.example": { "addresses": [] } },
                    "children": { "my_net": { "rekey-time": 3600, "wanted": true } },
                }
            }],
            "counters": { "drops": {} },
            "engine": { "name": "cpu" },
        });
        assert_eq!(report, expected);
    }

    #[test]
    fn children_of_several_events_are_put_together() {
        let mut first = json!({ "s1": { "state": "UP", "child-sas": { "a-1": { "n": 1 } } } });
        append_children(&mut first, json!({ "s1": { "child-sas": { "b-2": {} } } }));
        let all = json!({ "a-1": { "n": 1 }, "b-2": {} });
        assert_eq!(first, json!({ "s1": { "state": "UP", "child-sas": all } }));
    }

    #[test]
    fn texts_steer_no_terminal() {
        let value = json!({ "why": "a\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\n\u{e9}" });
        let expected = "{\n  \"why\": \"a\\u001b[2J\\u009b2J\\u007f\\u202e\\n\u{e9}\"\n}\n";
        assert_eq!(lines(&value), expected);
        assert_eq!(serde_json::from_str::<Value>(expected).unwrap(), value);
    }

    #[test]
    fn what_the_section_lacks_is_pruned() {
        let mut value =
            json!({ "s1": { "state": "UP", "children": { "a": { "n": 1 }, "b": {} } }, "s2": {} });
        let mut section = Section::of(&value).unwrap();
        section.retain_sections(|name, site| {
            if let Some(children) = site.sub_mut("children") {
                children.retain_sections(|name, _| name == "a");
            }
            name == "s1"
        });
        prune(&mut value, &section);
        let expected = json!({ "s1": { "state": "UP", "children": { "a": { "n": 1 } } } });
        assert_eq!(value, expected);
    }
}
