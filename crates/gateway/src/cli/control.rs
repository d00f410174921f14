//! The commands that talk to a running gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use super::args::Control;
use super::print;
use crate::config::Subject;
use crate::failure::{Exit, Failure};
use crate::log;
use crate::status::tunnels::united;
use crate::vici::Section;
use crate::vici::client::{Client, Error};

/// The time that the gateway has for its answer when a wait is over.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn up(control: &Control, name: &str) -> Result<(), Failure> {
    let mut client = connect_to_wait(control)?;
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
    let mut client = connect_to_wait(control)?;
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

/// How SAs are to be renewed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    /// The peers authenticate again. Otherwise they only make fresh keys.
    pub reauth: bool,
    pub no_wait: bool,
}

impl Renewal {
    fn word(self) -> &'static str {
        match (self.reauth, self.no_wait) {
            (false, false) => "rekeyed",
            (false, true) => "rekeying",
            (true, false) => "reauthenticated",
            (true, true) => "reauthenticating",
        }
    }
}

/// Renews the SAs that `name` stands for, or all. All of them are renewed at the same time.
pub(super) fn renew(
    control: &Control,
    name: Option<&str>,
    renewal: Renewal,
) -> Result<(), Failure> {
    let mut client = connect_to_wait(control)?;
    let (targets, messages) = match (name, renewal.reauth) {
        (None, reauth) => {
            let targets = match reauth {
                true => authenticated(&mut client, None)?,
                false => everything(&mut client)?,
            };
            let mut all = Section::new();
            all.set("all", "yes");
            let messages = if targets.is_empty() {
                vec![]
            } else {
                vec![all]
            };
            (targets, messages)
        }
        (Some(name), true) => {
            let targets = authenticated(&mut client, Some(name))?;
            let messages = targets.iter().map(naming).collect();
            (targets, messages)
        }
        (Some(name), false) => {
            let targets = active(&mut client, name)?;
            let messages = named(&targets, name);
            (targets, messages)
        }
    };
    let mut failed = Vec::new();
    for mut message in messages {
        if renewal.reauth {
            message.set("reauth", "yes");
        }
        if !renewal.no_wait {
            message.set("timeout", control.timeout * 1000);
        }
        let answer = client.command("rekey", message).map_err(failed_command)?;
        for renewed in answer.items("renewed") {
            print(format!("{renewed}: {}\n", renewal.word()).as_bytes())?;
        }
        if let Some(more) = answer.text("renewed-more") {
            print(format!("and {more} more: {}\n", renewal.word()).as_bytes())?;
        }
        failed.extend(refusal(&answer));
    }
    if !failed.is_empty() {
        return Err(Failure::runtime(format!(
            "not {}: {}",
            renewal.word(),
            failed.join("; ")
        )));
    }
    if renewal.no_wait {
        for target in targets {
            print(format!("{target}: {}\n", renewal.word()).as_bytes())?;
        }
    }
    Ok(())
}

/// One command for a whole connection, and one for the children of a name: many wait together.
fn named(targets: &[Subject], name: &str) -> Vec<Section> {
    let mut messages: Vec<Section> = Vec::new();
    let whole = |target: &&Subject| target.child.is_none();
    messages.extend(targets.iter().find(whole).map(naming));
    let mut children = targets.iter().filter(|target| target.child.is_some());
    match (children.next(), name.split_once('/')) {
        (Some(_), None) => {
            let mut message = Section::new();
            message.set("child", name);
            messages.push(message);
        }
        (child, _) => messages.extend(child.map(naming)),
    }
    messages
}

/// The connections that are up: the one of this name, or all.
fn authenticated(client: &mut Client, name: Option<&str>) -> Result<Vec<Subject>, Failure> {
    let sas = sas(client)?;
    let up = (sas.iter().flat_map(Section::sections))
        .filter(|(_, sa)| sa.text("state") == Some("ESTABLISHED"))
        .map(|(connection, _)| connection);
    let chosen = up.filter(|connection| name.is_none_or(|name| *connection == name));
    let connections: BTreeSet<&str> = chosen.collect();
    if let Some(name) = name.filter(|_| connections.is_empty()) {
        let failure = Failure::runtime(format!("no IKE SA is of a connection `{name}`"));
        return Err(failure.help("name a connection: its children come along"));
    }
    let subject = |connection: &str| Subject {
        connection: connection.to_owned(),
        child: None,
    };
    Ok(connections.into_iter().map(subject).collect())
}

fn everything(client: &mut Client) -> Result<Vec<Subject>, Failure> {
    let sas = sas(client)?;
    Ok(sas.iter().flat_map(all_of).collect())
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
    let answer = client
        .command("reload", Section::new())
        .map_err(failed_command)?;
    if let Some(why) = refusal(&answer) {
        let diagnostics: Vec<&str> = answer.items("diagnostics").collect();
        if !diagnostics.is_empty() {
            log::write_text(
                tracing::Level::ERROR,
                &format!("{}\n\n", diagnostics.join("\n")),
            );
        }
        let failure = Failure::new(Exit::numbered(answer.text("exit").unwrap_or_default()), why);
        return Err(match answer.text("help") {
            Some(help) => failure.help(help),
            None => failure,
        });
    }
    let mut text = String::new();
    for what in ["added", "changed", "removed"] {
        let names: Vec<&str> = answer.items(what).collect();
        if !names.is_empty() {
            let more = answer.text(&format!("{what}-more"));
            let more = more
                .map(|more| format!(" and {more} more"))
                .unwrap_or_default();
            text += &format!("{what}: {}{more}\n", names.join(", "));
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
    let connections = connections(client)?;
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
    let sas = sas(client)?;
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

pub(super) fn selected(target: &Subject, name: &str) -> bool {
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

pub(super) fn connect(control: &Control) -> Result<Client, Failure> {
    connect_for(control, Duration::from_secs(control.timeout))
}

/// Connects for commands that wait for a peer. The gateway keeps the time, and says what is missing when it is up.
fn connect_to_wait(control: &Control) -> Result<Client, Failure> {
    connect_for(control, Duration::from_secs(control.timeout) + GRACE)
}

fn connect_for(control: &Control, timeout: Duration) -> Result<Client, Failure> {
    Client::connect(&control.socket, timeout).map_err(|error| {
        let what = format!("{error} ({})", control.socket.display());
        let help = "start one with `esplanade run`, or name its socket with --socket";
        Failure::new(Exit::Unreachable, what).help(help)
    })
}

fn sas(client: &mut Client) -> Result<Vec<Section>, Failure> {
    list(client, "list-sas", &Section::new(), "list-sa").map(united)
}

fn connections(client: &mut Client) -> Result<Vec<Section>, Failure> {
    list(client, "list-conns", &Section::new(), "list-conn").map(united)
}

/// Gives a command and returns its events.
pub(super) fn list(
    client: &mut Client,
    name: &str,
    message: &Section,
    event: &str,
) -> Result<Vec<Section>, Failure> {
    let mut events = Vec::new();
    let answer = client.streamed(name, message.clone(), Some(event), |message| {
        events.push(message)
    });
    match refusal(&answer.map_err(failed_command)?) {
        Some(why) => Err(Failure::runtime(why)),
        None => Ok(events),
    }
}

/// Gives a command and looks at its `success`.
fn command(client: &mut Client, name: &str, message: Section) -> Result<Section, Failure> {
    let answer = client.command(name, message).map_err(failed_command)?;
    match refusal(&answer) {
        Some(why) => Err(Failure::runtime(why)),
        None => Ok(answer),
    }
}

/// The reason why a command was refused.
fn refusal(answer: &Section) -> Option<String> {
    let why = answer.text("errmsg");
    let why = why.unwrap_or("the gateway refused without a reason");
    (answer.text("success") == Some("no")).then(|| why.to_owned())
}

pub(super) fn failed_command(error: Error) -> Failure {
    match error {
        Error::Unreachable(_) => Failure::new(Exit::Unreachable, error),
        Error::TimedOut(_) => {
            Failure::runtime(error).help("wait longer with --timeout; the gateway goes on trying")
        }
        _ => Failure::runtime(error),
    }
}
