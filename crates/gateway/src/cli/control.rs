//! The commands that talk to a running gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use super::args::Control;
use super::print;
use crate::config::Subject;
use crate::failure::{Exit, Failure};
use crate::status::text;
use crate::vici::Section;
use crate::vici::client::{Client, Error};

pub(super) fn status(control: &Control, json: bool, check: bool) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let sas = list(&mut client, "list-sas", "list-sa")?;
    let counters = client
        .command("get-counters", Section::new())
        .map_err(failed)?;
    let connections = list(&mut client, "list-conns", "list-conn")?;
    let stats = client.command("stats", Section::new()).map_err(failed)?;
    let output = if json {
        let engine = stats.sub("engine");
        let report = serde_json::json!({
            "sas": sas, "connections": connections, "counters": counters, "engine": engine,
            "workers": stats.sub("workers"),
            "crls": stats.sub("crls"),
            "confinement": stats.sub("confinement"),
            "shield": stats.sub("shield")
        });
        format!("{report:#}\n")
    } else {
        let mut shown: String = sas
            .iter()
            .flat_map(Section::sections)
            .map(|(name, sa)| text::render_sa(name, sa))
            .collect();
        if shown.is_empty() {
            shown += "no security associations\n";
        }
        let known = || connections.iter().flat_map(Section::sections);
        shown += &text::render_names(known().map(|(_, connection)| connection));
        shown.extend(known().map(|(name, connection)| text::render_down(name, connection)));
        shown += &text::render_counters(&counters);
        shown += &text::render_workers(&stats);
        shown += &text::render_shield(&stats);
        shown + &text::render_engine(&stats) + &text::render_crls(&stats)
    };
    print(output.as_bytes())?;
    match check {
        true => shield_stands(&stats).and_then(|()| all_wanted_are_up(&connections)),
        false => Ok(()),
    }
}

/// Fails if the table of nf_tables is not what the policies say.
fn shield_stands(stats: &Section) -> Result<(), Failure> {
    let failure = stats
        .sub("shield")
        .and_then(|shield| shield.text("failure"));
    let Some(why) = failure else {
        return Ok(());
    };
    let what = format!("the nftables table does not stand: {why}");
    let help = "packets in the clear can pass for those of peers; the log says since when";
    Err(Failure::runtime(what).help(help))
}

/// Fails if a child that the gateway is to have up by itself is not up.
fn all_wanted_are_up(connections: &[Section]) -> Result<(), Failure> {
    let (mut wanted, mut down) = (0, Vec::new());
    for (name, connection) in connections.iter().flat_map(Section::sections) {
        let children = connection.sub("children").into_iter();
        for (child, state) in children.flat_map(Section::sections) {
            if state.text("wanted") != Some("yes") {
                continue;
            }
            wanted += 1;
            if state.text("state") != Some("UP") {
                down.push(format!("{name}/{child}"));
            }
        }
    }
    if down.is_empty() {
        return Ok(());
    }
    let what = format!("{} of {wanted} children are not up", down.len());
    Err(Failure::runtime(what).help(format!("look at {}", down.join(", "))))
}

pub(super) fn up(control: &Control, name: &str) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let targets = configured(&mut client, name)?;
    for target in targets {
        if target.child.is_none() {
            return Err(Failure::runtime(format!(
                "connection `{name}` has no children to establish"
            )));
        }
        let mut message = naming(&target);
        message.set("timeout", control.timeout * 1000);
        command(&mut client, "initiate", message)?;
        print(format!("{target} is up\n").as_bytes())?;
    }
    Ok(())
}

pub(super) fn down(control: &Control, name: &str) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let targets = match active(&mut client, name) {
        Ok(targets) => targets,
        // A child that is not up may be on its way, or wait for its next attempt.
        Err(none) => configured(&mut client, name).map_err(|_| none)?,
    };
    for target in targets {
        let mut message = naming(&target);
        message.set("timeout", control.timeout * 1000);
        command(&mut client, "terminate", message)?;
        print(format!("{target} is down\n").as_bytes())?;
    }
    Ok(())
}

pub(super) fn rekey(control: &Control, name: Option<&str>) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let targets = match name {
        Some(name) => active(&mut client, name)?,
        None => list(&mut client, "list-sas", "list-sa")?
            .iter()
            .flat_map(all_of)
            .collect(),
    };
    for target in targets {
        command(&mut client, "rekey", naming(&target))?;
        print(format!("{target}: rekeying\n").as_bytes())?;
    }
    Ok(())
}

/// Reauthenticates the connection, or all connections that are up.
pub(super) fn reauthenticate(control: &Control, name: Option<&str>) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let sas = list(&mut client, "list-sas", "list-sa")?;
    let up = (sas.iter().flat_map(Section::sections))
        .filter(|(_, sa)| sa.text("state") == Some("ESTABLISHED"))
        .map(|(connection, _)| connection);
    let chosen = up.filter(|connection| name.is_none_or(|name| *connection == name));
    let connections: BTreeSet<&str> = chosen.collect();
    if let Some(name) = name.filter(|_| connections.is_empty()) {
        let failure = Failure::runtime(format!("no IKE SA is of a connection `{name}`"));
        return Err(failure.help("name a connection: its children come along"));
    }
    for connection in connections {
        let mut message = Section::new();
        message.set("ike", connection).set("reauth", "yes");
        command(&mut client, "rekey", message)?;
        print(format!("{connection}: reauthenticating\n").as_bytes())?;
    }
    Ok(())
}

pub(super) fn engine(control: &Control, name: &str, engine: &str) -> Result<(), Failure> {
    let mut message = Section::new();
    match name.split_once('/') {
        Some((connection, child)) => message.set("ike", connection).set("child", child),
        None => message.set("child", name),
    };
    message.set("engine", engine);
    let answer = ask(control, "set-engine", message)?;
    let up = match (answer.text("matches"), answer.text("renewed")) {
        (None | Some("0"), _) => "none of its SAs is up",
        (_, None | Some("0")) => "its SAs go on there",
        _ => "its SAs are renewed for it",
    };
    print(format!("{name}: engine {engine}, {up}\n").as_bytes())
}

pub(super) fn reload(control: &Control) -> Result<(), Failure> {
    let mut client = connect(control)?;
    let answer = command(&mut client, "reload", Section::new())?;
    let mut text = String::new();
    for what in ["added", "changed", "removed"] {
        let names: Vec<&str> = answer.items(what).collect();
        if !names.is_empty() {
            text += &format!("{what}: {}\n", names.join(", "));
        }
    }
    for other in answer.items("others") {
        text += match other {
            "gateway" => "the gateway section has changed: that takes effect at the next start\n",
            "secrets" => "secrets have changed: they count from the next authentication on\n",
            "crls" => "CRLs have changed: they count from the next authentication on\n",
            "attributes" => {
                "attribute certificates have changed: they count from the next authentication on\n"
            }
            _ => "policies have changed\n",
        };
    }
    if text.is_empty() {
        text += "nothing has changed\n";
    }
    print(text.as_bytes())
}

/// Asks the gateway about this connection or child.
fn naming(subject: &Subject) -> Section {
    let mut message = Section::new();
    message.set("ike", &subject.connection);
    if let Some(child) = &subject.child {
        message.set("child", child);
    }
    message
}

/// The configured children that `name` stands for.
fn configured(client: &mut Client, name: &str) -> Result<Vec<Subject>, Failure> {
    let connections = list(client, "list-conns", "list-conn")?;
    let mut found = Vec::new();
    for (connection, content) in connections.iter().flat_map(Section::sections) {
        let children = content
            .sub("children")
            .into_iter()
            .flat_map(Section::sections);
        let mut children = children
            .map(|(child, _)| Subject {
                connection: connection.to_owned(),
                child: Some(child.to_owned()),
            })
            .filter(|target| selected(target, name))
            .peekable();
        if connection == name && children.peek().is_none() {
            found.push(Subject {
                connection: connection.to_owned(),
                child: None,
            });
        }
        found.extend(children);
    }
    if found.is_empty() {
        let known: Vec<&str> = connections
            .iter()
            .flat_map(Section::sections)
            .map(|(name, _)| name)
            .collect();
        let failure = Failure::runtime(format!("no connection or child is called `{name}`"));
        return Err(match known.as_slice() {
            [] => failure.help("the gateway has no connections; check its configuration"),
            known => failure.help(format!("the connections are {}", known.join(", "))),
        });
    }
    Ok(found)
}

/// The security associations that `name` stands for; a whole connection is one target.
fn active(client: &mut Client, name: &str) -> Result<Vec<Subject>, Failure> {
    let sas = list(client, "list-sas", "list-sa")?;
    let mut found: Vec<Subject> = Vec::new();
    for target in sas.iter().flat_map(all_of) {
        let whole = target.child.is_none() && target.connection == name;
        if (whole || target.child.is_some() && target.connection != name && selected(&target, name))
            && !found.contains(&target)
        {
            found.push(target);
        }
    }
    if found.is_empty() {
        let failure = Failure::runtime(format!("no security association is called `{name}`"));
        return Err(failure.help("`esplanade status` lists them"));
    }
    Ok(found)
}

/// The IKE SA of one `list-sa` event and its children.
fn all_of(event: &Section) -> Vec<Subject> {
    let mut found = Vec::new();
    for (connection, sa) in event.sections() {
        found.push(Subject {
            connection: connection.to_owned(),
            child: None,
        });
        for (unique, child) in sa.sub("child-sas").into_iter().flat_map(Section::sections) {
            let child = child.text("name").unwrap_or(unique);
            found.push(Subject {
                connection: connection.to_owned(),
                child: Some(child.to_owned()),
            });
        }
    }
    found
}

fn selected(target: &Subject, name: &str) -> bool {
    match (name.split_once('/'), &target.child) {
        (Some((connection, child)), Some(own)) => target.connection == connection && own == child,
        (None, Some(own)) => own == name || target.connection == name,
        _ => false,
    }
}

/// Sends one command and returns its answer.
pub(super) fn ask(control: &Control, name: &str, message: Section) -> Result<Section, Failure> {
    command(&mut connect(control)?, name, message)
}

fn connect(control: &Control) -> Result<Client, Failure> {
    Client::connect(&control.socket, Duration::from_secs(control.timeout)).map_err(|error| {
        let what = format!("{error} ({})", control.socket.display());
        let help = "start one with `esplanade run`, or name its socket with --socket";
        Failure::new(Exit::Unreachable, what).help(help)
    })
}

fn list(client: &mut Client, name: &str, event: &str) -> Result<Vec<Section>, Failure> {
    let mut events = Vec::new();
    client
        .streamed(name, Section::new(), Some(event), |message| {
            events.push(message)
        })
        .map_err(failed)?;
    Ok(events)
}

/// Gives a command and looks at its `success`.
fn command(client: &mut Client, name: &str, message: Section) -> Result<Section, Failure> {
    let answer = client.command(name, message).map_err(failed)?;
    match answer.text("success") {
        Some("no") => Err(Failure::runtime(
            answer
                .text("errmsg")
                .unwrap_or("the gateway refused without a reason"),
        )),
        _ => Ok(answer),
    }
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Unreachable(_) => Failure::new(Exit::Unreachable, error),
        Error::TimedOut(_) => {
            Failure::runtime(error).help("wait longer with --timeout; the gateway goes on trying")
        }
        _ => Failure::runtime(error),
    }
}
