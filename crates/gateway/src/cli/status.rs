//! `esplanade status`: what the running gateway says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::args::StatusOptions;
use super::control::{connect, failed_command, list, selected};
use super::{lost_traffic, print, takes_colours};
use crate::config::{Subject, nearest};
use crate::failure::{Exit, Failure};
use crate::log::first_names;
use crate::status::json;
use crate::status::rates::{Change, Rates, Sample, render_rates};
use crate::status::text::{self, plural};
use crate::status::tunnels::{
    self, Chosen, Tunnel, append_children, render_brief, same_entry, tunnels,
};
use crate::vici::Section;

/// Most tunnels that the verdict of `--check` names with their reasons.
const REASONS_MAX: usize = 5;
/// Most known names that are listed beside a name that is not known.
const NAMES_MAX: usize = 10;

/// The rates of children by their names, and the time over which they were measured.
type MeasuredRates = (BTreeMap<(String, String), Rates>, Duration);

/// An answer of the gateway.
struct Answer {
    section: Section,
    /// The same with types, if JSON is wanted.
    json: Value,
}

/// The answers of the gateway.
struct Answers {
    sas: Vec<Answer>,
    connections: Vec<Answer>,
    counters: Answer,
    stats: Answer,
}

impl Answers {
    fn ask(options: &StatusOptions) -> Result<Self, Failure> {
        let mut client = connect(&options.control)?;
        let message = match options.json {
            true => Section::json_wanted(),
            false => Section::new(),
        };
        let read = |message: Section| Answer::read(message, options.json);
        let mut all = |name, event| -> Result<Vec<Answer>, Failure> {
            let events = list(&mut client, name, &message, event)?;
            let answers: Result<Vec<_>, _> = events.into_iter().map(read).collect();
            Ok(united(answers?))
        };
        let (sas, connections) = (all("list-sas", "list-sa")?, all("list-conns", "list-conn")?);
        let mut one = |name| {
            let answer = client
                .command(name, message.clone())
                .map_err(failed_command)?;
            read(answer)
        };
        Ok(Self {
            sas,
            connections,
            counters: one("get-counters")?,
            stats: one("stats")?,
        })
    }

    /// Leaves out the SAs and connections that are not to be shown.
    fn filter(&mut self, chosen: &Chosen) {
        for answer in &mut self.sas {
            chosen.filter_sa(&mut answer.section);
            json::prune(&mut answer.json, &answer.section);
        }
        for answer in &mut self.connections {
            chosen.filter_connection(&mut answer.section);
            json::prune(&mut answer.json, &answer.section);
        }
    }
}

impl Answer {
    fn read(section: Section, typed: bool) -> Result<Self, Failure> {
        if !typed {
            let json = Value::Null;
            return Ok(Self { section, json });
        }
        let unreadable = |why: &dyn std::fmt::Display| {
            Failure::runtime(format!("the gateway's answer cannot be read: {why}"))
        };
        let json = section.to_json().map_err(|error| unreadable(&error))?;
        let section = Section::of(&json).map_err(|error| unreadable(&error))?;
        Ok(Self { section, json })
    }
}

/// Puts the events together that have the children of one connection, or of one IKE SA: not all fit into one message.
fn united(mut answers: Vec<Answer>) -> Vec<Answer> {
    answers.dedup_by(|next, kept| {
        let same = same_entry(&kept.section, &next.section);
        if same {
            append_children(&mut kept.section, &next.section);
            json::append_children(&mut kept.json, next.json.take());
        }
        same
    });
    answers
}

/// The counts of a first answer, and when they were taken.
struct FirstSample {
    counts: Sample,
    at: Instant,
}

impl FirstSample {
    fn take(options: &StatusOptions) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut client = connect(&options.control)?;
        let mut all = |name, event| -> Result<Vec<Section>, Failure> {
            Ok(tunnels::united(list(
                &mut client,
                name,
                &Section::new(),
                event,
            )?))
        };
        let (sas, connections) = (all("list-sas", "list-sa")?, all("list-conns", "list-conn")?);
        let (sas, connections) = (sas.iter(), connections.iter());
        let counts = Sample::of(
            sas.flat_map(Section::sections),
            connections.flat_map(Section::sections),
        );
        // The answers to many tunnels take a while.
        let at = begun + begun.elapsed() / 2;
        Ok(Self { counts, at })
    }
}

/// Asks the gateway, and with `--rate` twice.
fn ask(options: &StatusOptions) -> Result<(Answers, Option<Change>), Failure> {
    let Some(seconds) = options.rate else {
        return Ok((Answers::ask(options)?, None));
    };
    let first = FirstSample::take(options)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let begun = Instant::now();
    let answers = Answers::ask(options)?;
    let change = Change {
        before: first.counts,
        after: Sample::of(sections(&answers.sas), sections(&answers.connections)),
        window: (begun + begun.elapsed() / 2).saturating_duration_since(first.at),
    };
    Ok((answers, Some(change)))
}

pub(super) fn status(options: &StatusOptions) -> Result<(), Failure> {
    let (mut answers, change) = ask(options)?;
    let mut found = tunnels(sections(&answers.sas), sections(&answers.connections));
    if let Some(change) = &change {
        found.iter_mut().for_each(|tunnel| tunnel.measure(change));
    }
    let known = sections(&answers.connections).chain(sections(&answers.sas));
    let known: BTreeSet<String> = known.map(|(name, _)| name.to_owned()).collect();
    if !options.names.is_empty() {
        found = named(found, &options.names, &known)?;
        let named = options.names.iter().filter(|name| known.contains(*name));
        answers.filter(&Chosen::of(&found, named.cloned().collect()));
    }
    let verdict = match options.check {
        true => shield_stands(&answers.stats.section)
            .and_then(|()| all_wanted_are_up(&found))
            .and_then(|()| lost_traffic::comes_back(sections(&answers.sas))),
        false => Ok(()),
    };
    if options.down {
        found.retain(Tunnel::is_amiss);
        answers.filter(&Chosen::of(&found, BTreeSet::new()));
    }
    let some = options.down || !options.names.is_empty();
    let rates = change.map(|change| {
        let rates = change.by_child(sections(&answers.connections));
        (rates, change.window)
    });
    let output = match (options.json, options.brief) {
        (true, brief) => {
            let mut report = match brief {
                true => json::brief(&found),
                false => in_json(answers),
            };
            if let Some((rates, window)) = &rates {
                json::add_rates(&mut report, rates, *window);
            }
            json::lines(&report)
        }
        (false, true) => render_brief(&found, takes_colours(&std::io::stdout())),
        (false, false) => in_full(&answers, rates.as_ref(), some),
    };
    print(output.as_bytes())?;
    verdict
}

/// Returns the entries of events, by their names.
fn sections(answers: &[Answer]) -> impl Iterator<Item = (&str, &Section)> {
    answers.iter().flat_map(|answer| answer.section.sections())
}

/// Returns the tunnels that the names stand for.
fn named(
    found: Vec<Tunnel>,
    names: &[String],
    connections: &BTreeSet<String>,
) -> Result<Vec<Tunnel>, Failure> {
    let is_meant = |one: &Tunnel, name: &String| {
        let subject = Subject {
            connection: one.connection.clone(),
            child: Some(one.child.clone()),
        };
        selected(&subject, name)
    };
    for name in names {
        // A connection may have no children.
        if !connections.contains(name) && !found.iter().any(|one| is_meant(one, name)) {
            return Err(unknown(name, &found, connections));
        }
    }
    let mut found = found;
    found.retain(|one| names.iter().any(|name| is_meant(one, name)));
    Ok(found)
}

fn unknown(name: &str, found: &[Tunnel], connections: &BTreeSet<String>) -> Failure {
    let what = format!("no connection or child is called `{name}`");
    let tunnels = found.iter().map(Tunnel::name);
    let children = found.iter().map(|one| one.child.clone());
    let known: BTreeSet<String> = match name.contains('/') {
        true => tunnels.collect(),
        false => connections.iter().cloned().chain(children).collect(),
    };
    let connections = connections.iter().cloned().collect::<Vec<_>>();
    let help = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if connections.is_empty() => {
            "the gateway has no connections; check its configuration".to_owned()
        }
        None => format!(
            "the connections are {}",
            first_names(&connections, NAMES_MAX)
        ),
    };
    Failure::new(Exit::Usage, what).help(help)
}

fn in_json(answers: Answers) -> Value {
    let all = |answers: Vec<Answer>| answers.into_iter().map(|one| one.json).collect();
    let (sas, connections) = (all(answers.sas), all(answers.connections));
    json::report(sas, connections, answers.counters.json, answers.stats.json)
}

/// Writes out everything, what is down first. If only some tunnels are to be shown, the rest of the gateway is not.
fn in_full(answers: &Answers, rates: Option<&MeasuredRates>, some: bool) -> String {
    let stats = &answers.stats.section;
    let known = || sections(&answers.connections);
    let mut shown: String = known()
        .map(|(name, connection)| text::render_down(name, connection))
        .collect();
    let mut sas: Vec<_> = sections(&answers.sas).collect();
    sas.sort_by_key(|(name, _)| *name);
    shown.extend(sas.iter().map(|(name, sa)| text::render_sa(name, sa)));
    if sas.is_empty() && !some {
        shown += "no security associations\n";
    }
    let drops = known().map(|(name, connection)| text::render_drops(name, connection));
    shown.extend(drops);
    shown += &rates.map_or(String::new(), |(rates, window)| {
        render_rates(rates, *window)
    });
    shown += &text::render_names(known().map(|(_, connection)| connection));
    if some {
        return shown;
    }
    shown += &text::render_counters(&answers.counters.section);
    shown += &text::render_workers(stats);
    shown += &text::render_refusals(stats);
    shown += &text::render_shield(stats);
    shown += &text::render_links(stats);
    shown += &text::render_certificates(stats);
    shown + &text::render_engine(stats) + &text::render_crls(stats)
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
fn all_wanted_are_up(tunnels: &[Tunnel]) -> Result<(), Failure> {
    let wanted = tunnels.iter().filter(|one| one.wanted);
    let wanted = wanted.map(Tunnel::name).collect::<BTreeSet<_>>().len();
    let missing = tunnels.iter().filter(|one| one.is_missing());
    let reasons: Vec<String> = missing
        .map(|one| format!("{}: {}", one.name(), one.why()))
        .collect();
    let is = match reasons.len() {
        0 => return Ok(()),
        1 => "is",
        _ => "are",
    };
    let wanted = plural(u64::try_from(wanted).unwrap_or(u64::MAX), "child");
    let mut what = format!("{} of {wanted} {is} not up", reasons.len());
    for reason in reasons.iter().take(REASONS_MAX) {
        what += &format!("\n  {reason}");
    }
    if let Some(more @ 1..) = reasons.len().checked_sub(REASONS_MAX) {
        what += &format!("\n  and {more} more");
    }
    Err(Failure::runtime(what).help("`esplanade status --down` shows all of them"))
}
