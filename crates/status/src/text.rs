//! Answers of the control socket as readable text.
//!
//! The command line has an answer as a section, perhaps from another version of the gateway. Missing keys are left out
//! of the text, and unknown keys are not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use esplanade_vici::Section;

use super::printable::printable;

/// Writes out an IKE SA and its children, from a `list-sa` event.
pub fn render_sa(name: &str, sa: &Section) -> String {
    let mut out = String::new();
    let text = |key: &str| printable(sa.text(key).unwrap_or("-"));
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "{}: {}, IKEv{}",
        printable(name),
        text("state"),
        text("version")
    );
    times(&mut out, sa, "established", "up");
    out.push('\n');
    for what in ["reauth", "rekey"] {
        let Some(why) = sa.text(&format!("{what}-error")).map(printable) else {
            continue;
        };
        let age = sa.text(&format!("{what}-error-age"));
        let age = age.and_then(|age| age.parse().ok()).map(human_duration);
        let ago = age.map(|age| format!(" ({age} ago)")).unwrap_or_default();
        let _ = writeln!(out, "  {what:<8}failed: {why}{ago}");
    }
    if let Some(mtu) = sa.text("path-mtu").map(printable) {
        let by = match sa.text("path-mtu-by") {
            Some("probes") => "probes have found it: the path loses longer packets in silence",
            _ => "an ICMP error or the own kernel has told it",
        };
        let _ = writeln!(out, "  path MTU {mtu} bytes; {by}");
    }
    for side in ["local", "remote"] {
        let part = |what: &str| text(&format!("{side}-{what}"));
        let _ = writeln!(
            out,
            "  {side:<8}'{}' @ {}[{}]",
            part("id"),
            part("host"),
            part("port")
        );
    }
    let groups: Vec<String> = sa.items("groups").map(printable).collect();
    if !groups.is_empty() {
        let _ = writeln!(out, "  {:<8}{}", "groups", groups.join(", "));
    }
    if let Some(suite) = suite(sa) {
        let full = match sa.text("full-transcript") {
            Some("yes") => ", full transcript",
            _ => "",
        };
        let _ = writeln!(out, "  {:<8}{suite}{full}", "suite");
    }
    for (unique, child) in sa.sub("child-sas").into_iter().flat_map(Section::sections) {
        render_child(&mut out, unique, child);
    }
    out
}

/// Writes out the children of a connection that are not up, from a `list-conn` event: what they wait for, and why they
/// are down. Of a child that is up it is written what the peer has refused.
pub fn render_down(name: &str, connection: &Section) -> String {
    let mut out = String::new();
    let children = connection.sub("children").into_iter();
    for (child, section) in children.flat_map(Section::sections) {
        let seconds = |key| section.text(key).and_then(|text| text.parse().ok());
        let attempt = seconds("next-attempt").map(human_duration);
        let why = section.text("last-error");
        let (label, state) = match (section.text("state"), attempt) {
            (None, _) => continue,
            (Some("UP"), _) if why.is_none() => continue,
            (Some("UP"), _) => ("refused", "up".to_owned()),
            (state, attempt) => ("down", waits(state, attempt, section.sub("attempt"))),
        };
        let _ = write!(
            out,
            "{label:<10}{}/{}, {state}",
            printable(name),
            printable(child)
        );
        if let Some(why) = why {
            let age = seconds("last-error-age").map(human_duration);
            let age = age.map(|age| format!(" ({age} ago)")).unwrap_or_default();
            let _ = write!(out, ": {}{age}", printable(why));
        }
        out.push('\n');
    }
    if let Some(refusal) = connection.sub("last-refusal") {
        let line = format!("{}: {}", printable(name), refused(refusal));
        let _ = writeln!(out, "{:<10}{line}", "refused");
    }
    out
}

/// Writes one line for each child of a connection that has dropped packets, from a `list-conn` event.
pub fn render_drops(name: &str, connection: &Section) -> String {
    let mut out = String::new();
    let children = connection.sub("children").into_iter();
    for (child, section) in children.flat_map(Section::sections) {
        if let Some(line) = drops_line(&drops(section)) {
            let name = printable(&format!("{name}/{child}"));
            let _ = writeln!(out, "{:<10}{name}: {line}", "lost");
        }
    }
    out
}

/// Returns the packets that a child, or a child SA, has dropped.
pub(crate) fn drops(section: &Section) -> BTreeMap<String, u64> {
    let reasons = texts(section.sub("drops"));
    let counts =
        reasons.filter_map(|(reason, count)| Some((reason.to_owned(), count.parse().ok()?)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Says how many packets were dropped, and why. A peer sends dummies to be dropped: they are not told.
pub(crate) fn drops_line(drops: &BTreeMap<String, u64>) -> Option<String> {
    let told = drops.iter().filter(|(reason, _)| *reason != "dummy");
    let all = told
        .clone()
        .fold(0u64, |all, (_, count)| all.saturating_add(*count));
    let reasons = told.map(|(reason, count)| format!("{} {count}", printable(reason)));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    (all > 0).then(|| format!("{} dropped ({reasons})", plural(all, "packet")))
}

/// Writes out the peers that were refused and that no connection is known for, from the answer to `stats`.
pub fn render_refusals(stats: &Section) -> String {
    let all = stats.sub("refusals").into_iter();
    all.flat_map(Section::sections)
        .map(|(_, refusal)| format!("{:<10}{}\n", "refused", refused(refusal)))
        .collect()
}

/// Says who was refused, why, and when.
pub(crate) fn refused(refusal: &Section) -> String {
    let text = |key: &str| refusal.text(key).map(printable);
    let mut line = format!(
        "{} '{}': {}",
        text("remote-host").unwrap_or_default(),
        text("remote-id").unwrap_or_else(|| "%any".to_owned()),
        text("why").unwrap_or_default()
    );
    for key in ["offered", "configured"] {
        if let Some(what) = text(key) {
            line += &format!("; {key}: {what}");
        }
    }
    let age = refusal.text("age").and_then(|text| text.parse().ok());
    if let Some(age) = age {
        line += &format!(" ({} ago)", human_duration(age));
    }
    line
}

/// Says what a child that is not up waits for.
pub(crate) fn waits(
    state: Option<&str>,
    attempt: Option<String>,
    under_way: Option<&Section>,
) -> String {
    match (state, attempt) {
        (Some("CONNECTING"), _) => connects(under_way),
        (Some("CLOSED"), _) => "closed by command".to_owned(),
        (_, Some(attempt)) => format!("next attempt in {attempt}"),
        (_, None) => "waits for traffic, the peer or a command".to_owned(),
    }
}

/// Says how an attempt goes.
fn connects(under_way: Option<&Section>) -> String {
    let mut line = "connecting".to_owned();
    let Some(attempt) = under_way else {
        return line;
    };
    let number = |key| attempt.text(key).and_then(|text| text.parse::<u64>().ok());
    if let Some(seconds) = number("for") {
        line += &format!(" for {}", human_duration(seconds));
    }
    if let Some(requests) = number("unanswered").filter(|requests| *requests > 1) {
        line += &format!(", {requests} requests unanswered");
        let texts = [(", ", "seen"), ("; ", "hint"), (": ", "remedy")].into_iter();
        for (before, text) in texts.filter_map(|(before, key)| Some((before, attempt.text(key)?))) {
            line += &format!("{before}{}", printable(text));
        }
    }
    line
}

/// Writes out the host names of connections and their addresses, each name once, from `list-conn` events.
pub fn render_names<'a>(connections: impl IntoIterator<Item = &'a Section>) -> String {
    let names = connections.into_iter().filter_map(|one| one.sub("names"));
    let lines = names.flat_map(Section::sections).map(|(name, section)| {
        let addresses: Vec<_> = section.items("addresses").collect();
        let found = match section.text("error") {
            Some(why) => format!(" has no address: {why}"),
            None => format!(": {}", addresses.join(", ")),
        };
        format!("{:<10}{}{}\n", "name", printable(name), printable(&found))
    });
    let unique: BTreeSet<_> = lines.collect();
    unique.into_iter().collect()
}

/// Writes out the traffic that was moved, and the drops with their reasons, from the answer to `get-counters`.
pub fn render_counters(counters: &Section) -> String {
    let mut out = String::new();
    for (label, section) in [("sent", "outbound"), ("received", "inbound")] {
        let number = |key: &str| {
            let text = counters.sub(section).and_then(|walk| walk.text(key));
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        let bytes = human_bytes(number("bytes-out"));
        let packets = plural(number("packets-out"), "packet");
        let _ = writeln!(out, "{label:<10}{packets}, {bytes}");
    }
    let refused = counters.sub("ike").and_then(|ike| ike.sub("refused"));
    for (label, reasons) in [("dropped", counters.sub("drops")), ("refused", refused)] {
        let counts = counted(reasons);
        if !counts.is_empty() {
            let _ = writeln!(out, "{label:<10}{}", printable(&counts));
        }
    }
    for lane in ["outbound", "inbound"] {
        let counts = counted(counters.sub("core").and_then(|core| core.sub(lane)));
        if !counts.is_empty() {
            let line = format!("{lane} {counts}");
            let _ = writeln!(out, "{:<10}{}", "core", printable(&line));
        }
    }
    for (what, section) in [("the log", "log"), ("the key export", "key-export")] {
        if let Some(trouble) = counters.sub(section).and_then(output_trouble) {
            let line = format!("{what} {trouble}");
            let _ = writeln!(out, "{:<10}{}", "warning", printable(&line));
        }
    }
    out
}

/// Writes out the counters of a section that are not zero.
fn counted(section: Option<&Section>) -> String {
    let entries = section.into_iter().flat_map(Section::entries);
    let counts = entries.filter_map(|(name, _)| {
        let count = section?.text(name)?;
        (count != "0").then(|| format!("{name} {count}"))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// Says what is wrong with the log or the key export. A few waiting lines are usual.
fn output_trouble(output: &Section) -> Option<String> {
    const WAITING_USUALLY: u64 = 64;
    let number = |key: &str| output.text(key).and_then(|text| text.parse().ok());
    let (lost, waiting) = (number("lost").unwrap_or(0), number("waiting").unwrap_or(0));
    let error = output.text("error");
    if lost == 0 && waiting <= WAITING_USUALLY && error.is_none() {
        return None;
    }
    let error = error.map_or(String::new(), |error| {
        format!(", cannot be written: {error}")
    });
    let (lost, wait) = (
        plural(lost, "line"),
        if waiting == 1 { "waits" } else { "wait" },
    );
    Some(format!("has lost {lost}, {waiting} {wait}{error}"))
}

/// Writes out the load of each worker, from the answer to `stats`.
pub fn render_workers(stats: &Section) -> String {
    let mut out = String::new();
    let workers = stats.sub("workers").into_iter();
    for (index, worker) in workers.flat_map(Section::sections) {
        let text = |key: &str| worker.text(key).unwrap_or("0");
        let line = format!(
            "{index}: sent {}, received {}, {} % busy",
            plural(text("packets-out").parse().unwrap_or(0), "packet"),
            text("packets-in"),
            text("busy-percent")
        );
        let _ = writeln!(out, "{:<10}{}", "worker", printable(&line));
        if let Some(seconds) = worker.text("busy-for") {
            let line = format!(
                "worker {index} has been busy for {seconds} s and may lose packets: set more `workers`"
            );
            let _ = writeln!(out, "{:<10}{}", "warning", printable(&line));
        }
    }
    out
}

/// Writes out that the table of nf_tables is not as it should be, from the answer to `stats`.
pub fn render_shield(stats: &Section) -> String {
    let failure = stats
        .sub("shield")
        .and_then(|shield| shield.text("failure"));
    let line = |why| {
        let line = format!("the nftables table does not stand: {why}");
        format!("{:<10}{}\n", "warning", printable(&line))
    };
    failure.map(line).unwrap_or_default()
}

/// Writes out the links on which ESP goes past the kernel's stack, from the answer to `stats`.
pub fn render_links(stats: &Section) -> String {
    let mut out = String::new();
    let links = stats.sub("links").into_iter().flat_map(Section::sections);
    for (name, link) in links {
        let (title, line) = match link.text("attached") {
            Some("yes") => {
                let queues = link.text("queues").and_then(|queues| queues.parse().ok());
                let queues = plural(queues.unwrap_or(0), "queue");
                (
                    "link",
                    format!("{name}: ESP goes past the kernel's stack, {queues}"),
                )
            }
            _ => (
                "warning",
                format!(
                    "the link {name} is gone, or was made anew and cannot be opened: the log says why"
                ),
            ),
        };
        let _ = writeln!(out, "{title:<10}{}", printable(&line));
    }
    out
}

/// Writes out the engines that seal and open packets, from the answer to `stats`.
pub fn render_engine(stats: &Section) -> String {
    let mut out = String::new();
    let Some(engine) = stats.sub("engine") else {
        return out;
    };
    let mut push = |title: &str, line: &str| {
        let _ = writeln!(out, "{title:<10}{}", printable(line));
    };
    if let (Some(name), Some(tier)) = (engine.text("name"), engine.text("tier")) {
        let usual = engine.text("usual").unwrap_or(name);
        let mut line = format!("{usual}, tier {tier}");
        let tiers: Vec<_> = texts(engine.sub("tiers"))
            .map(|(transform, tier)| format!("{tier} for {transform}"))
            .collect();
        if !tiers.is_empty() {
            line += &format!(" ({})", tiers.join(", "));
        }
        for other in engine.items("also") {
            line += &format!("; also {other}");
        }
        push("engine", &line);
    }
    if let Some(line) = engine.sub("share").map(share_line) {
        push("share", &line);
    }
    let lines = engine.sub("lines");
    for (name, _) in lines.into_iter().flat_map(Section::entries) {
        for line in lines.into_iter().flat_map(|lines| lines.items(name)) {
            push(name, line);
        }
    }
    for (name, state) in texts(engine.sub("states")) {
        match state {
            "lost" => push(
                "warning",
                &format!("the engine {name} is lost, and the CPU is in its place"),
            ),
            "suspect" => push("warning", &format!("the engine {name} is late")),
            _ => {}
        }
    }
    for why in engine.items("warnings").chain(engine.items("disabled")) {
        push("warning", why);
    }
    out
}

/// Returns the values of a section that are texts, with their names.
fn texts(section: Option<&Section>) -> impl Iterator<Item = (&str, &str)> {
    let names = section.into_iter().flat_map(Section::entries);
    names.filter_map(move |(name, _)| Some((name, section?.text(name)?)))
}

fn share_line(share: &Section) -> String {
    let text = |key: &str| share.text(key).unwrap_or("-");
    let late = share.text("p99-us").map(|p99| {
        let limit = text("latency-us");
        format!("; batches take {p99} us, {limit} at most")
    });
    let lost = match share.text("in-service") {
        Some("no") => "; it is out of service",
        _ => "",
    };
    format!(
        "{} carries {} % of the load, {} of {} halves{lost}; the busiest worker is {} % busy, threshold {} %{}; moves: {}",
        text("with"),
        text("percent"),
        text("gpu-halves"),
        text("halves"),
        text("busy-percent"),
        text("threshold"),
        late.unwrap_or_default(),
        text("moves")
    )
}

/// Writes out the certificates that peers refuse or will refuse soon, from the answer to `stats`.
pub fn render_certificates(stats: &Section) -> String {
    let mut out = String::new();
    let all = stats.sub("certificates").into_iter();
    for (_, certificate) in all.flat_map(Section::sections) {
        let text = |key: &str| certificate.text(key).unwrap_or("-");
        let what = match text("state") {
            "expired" => format!("expired at {}", text("not-after")),
            "ends-soon" => format!("ends at {}", text("not-after")),
            "not-yet-valid" => format!("is valid from {} on", text("not-before")),
            _ => continue,
        };
        let line = format!("the own certificate {} {what}", text("subject"));
        let _ = writeln!(out, "{:<10}{}", "warning", printable(&line));
    }
    out
}

/// Writes out the CRLs, from the answer to `stats`.
pub fn render_crls(stats: &Section) -> String {
    let mut out = String::new();
    let crls = stats.sub("crls").into_iter().flat_map(Section::sections);
    for (_, crl) in crls {
        let text = |key: &str| crl.text(key).unwrap_or("-");
        let kind = match crl.text("delta") {
            Some("yes") => "delta CRL",
            _ => "CRL",
        };
        let entries = plural(text("entries").parse().unwrap_or(0), "entry");
        let mut line = format!(
            "{kind} {} with {entries}, next update {}",
            text("number"),
            text("next-update")
        );
        if let Some(why) = crl.text("unusable") {
            line += &format!("; it cannot be used: {why}");
        }
        let _ = writeln!(
            out,
            "{:<10}{}: {}",
            "crl",
            printable(text("issuer")),
            printable(&line)
        );
    }
    out
}

fn render_child(out: &mut String, unique: &str, child: &Section) {
    let text = |key: &str| printable(child.text(key).unwrap_or("-"));
    let name = printable(child.text("name").unwrap_or(unique));
    let encap = if child.text("encap") == Some("yes") {
        " in UDP"
    } else {
        ""
    };
    let one_way = child.sub("one-way");
    let way = one_way.map_or("", |_| ", one-way");
    let state = text("state");
    let _ = write!(out, "  {name}: {state}{way}, {}{encap}", text("mode"));
    times(out, child, "install-time", "up");
    out.push('\n');
    let selectors = |key: &str| printable(&child.items(key).collect::<Vec<_>>().join(" "));
    let _ = writeln!(
        out,
        "    {:<8}{} <-> {}",
        "traffic",
        selectors("local-ts"),
        selectors("remote-ts")
    );
    if let Some(suite) = suite(child) {
        let _ = writeln!(out, "    {:<8}{} {suite}", "suite", text("protocol"));
    }
    if let Some(engine) = child.text("engine") {
        let halves = [child.text("engine-in"), child.text("engine-out")];
        let halves = match halves {
            [Some(inbound), Some(outbound)] => Some(format!("{inbound} in, {outbound} out")),
            _ => None,
        };
        let why = child.text("engine-reason").map(str::to_owned);
        let parts = [Some(engine.to_owned()), halves, why].into_iter().flatten();
        let line = parts.collect::<Vec<_>>().join(": ");
        let _ = writeln!(out, "    {:<8}{}", "engine", printable(&line));
    }
    for (label, side) in [("in", "in"), ("out", "out")] {
        let number = |what: &str| {
            child
                .text(&format!("{what}-{side}"))
                .and_then(|text| text.parse::<u64>().ok())
        };
        let spi = text(&format!("spi-{side}"));
        let bytes = human_bytes(number("bytes").unwrap_or(0));
        let packets = number("packets").unwrap_or(0);
        let _ = write!(
            out,
            "    {label:<8}{spi:<8} {bytes:>10} {packets:>12} {}",
            if packets == 1 { "packet" } else { "packets" }
        );
        if let Some(seconds) = number("use") {
            let _ = write!(out, ", last {} ago", human_duration(seconds));
        }
        out.push('\n');
    }
    if let Some(one_way) = one_way {
        out.push_str(&render_one_way(one_way));
    }
}

/// Writes out that nothing comes back, and the likely causes.
fn render_one_way(one_way: &Section) -> String {
    let seconds = one_way.text("for").and_then(|text| text.parse().ok());
    let lasts = human_duration(seconds.unwrap_or(0));
    let mut out = format!(
        "    {:<8}for {lasts}: packets go out, none comes in, and the peer answers IKE",
        "one-way"
    );
    match one_way.text("udp-trial") {
        Some("under-way") => out.push_str("; ESP in UDP is being tried"),
        Some("in-vain") => out.push_str("; ESP in UDP was tried in vain"),
        _ => {}
    }
    out.push_str("; likely causes:\n");
    for (index, cause) in one_way.items("causes").enumerate() {
        let _ = writeln!(out, "    {:>6}. {}", index + 1, printable(cause));
    }
    out
}

fn times(out: &mut String, message: &Section, since: &str, word: &str) {
    let seconds = |key: &str| {
        message
            .text(key)
            .and_then(|text| text.parse().ok())
            .map(human_duration)
    };
    if let Some(time) = seconds(since) {
        let _ = write!(out, ", {word} {time}");
    }
    if let Some(time) = seconds("rekey-time") {
        let _ = write!(out, ", rekey in {time}");
    }
    if let Some(time) = seconds("reauth-time") {
        let _ = write!(out, ", reauthentication in {time}");
    }
    if let Some(time) = seconds("life-time") {
        let _ = write!(out, ", expires in {time}");
    }
}

fn suite(message: &Section) -> Option<String> {
    let text = |key: &str| message.text(key).map(printable);
    let sized = |algorithm: &str, size: &str| match (text(algorithm), text(size)) {
        (Some(algorithm), Some(size)) => Some(format!("{algorithm}-{size}")),
        (algorithm, _) => algorithm,
    };
    let mut parts: Vec<String> = [
        sized("encr-alg", "encr-keysize"),
        sized("integ-alg", "integ-keysize"),
        text("prf-alg"),
        text("dh-group"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if matches!(message.text("esn"), Some("1" | "yes")) {
        parts.push("ESN".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Writes a duration in its two largest units: `2h 05m`.
pub fn human_duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Writes a number of things: `1 child`, `2 children`, `2 policies`.
pub fn plural(count: u64, one: &str) -> String {
    match (count, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if one == "child" => format!("{count} children"),
        _ => format!("{count} {one}s"),
    }
}

/// Writes a number of bytes in units of 1024 with one decimal: `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    scaled(bytes, "B", 1024.0, &UNITS)
}

/// Writes a number with one decimal in the unit in which it is below `base`, and with none in `smallest`.
pub(crate) fn scaled(number: u64, smallest: &str, base: f64, larger: &[&str]) -> String {
    let mut value = number as f64;
    let mut unit = None;
    for next in larger {
        if value < base {
            break;
        }
        value /= base;
        unit = Some(next);
    }
    match unit {
        None => format!("{number} {smallest}"),
        Some(unit) => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests;
