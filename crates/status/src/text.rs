//! Answers of the control socket as readable text.
//!
//! The command line has an answer as a section, perhaps from another version of the gateway. Missing keys are left out
//! of the text, and unknown keys are not shown.

use std::collections::BTreeSet;
use std::fmt::Write;

use esplanade_vici::Section;

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
/// are down.
pub fn render_down(name: &str, connection: &Section) -> String {
    let mut out = String::new();
    let children = connection.sub("children").into_iter();
    for (child, section) in children.flat_map(Section::sections) {
        let seconds = |key| section.text(key).and_then(|text| text.parse().ok());
        let attempt = seconds("next-attempt").map(human_duration);
        let state = match (section.text("state"), attempt) {
            (None | Some("UP"), _) => continue,
            (Some("CONNECTING"), _) => "connecting".to_owned(),
            (Some("CLOSED"), _) => "closed by command".to_owned(),
            (_, Some(attempt)) => format!("next attempt in {attempt}"),
            (_, None) => "waits for traffic, the peer or a command".to_owned(),
        };
        let _ = write!(
            out,
            "{:<10}{}/{}, {state}",
            "down",
            printable(name),
            printable(child)
        );
        if let Some(why) = section.text("last-error") {
            let age = seconds("last-error-age").map(human_duration);
            let age = age.map(|age| format!(" ({age} ago)")).unwrap_or_default();
            let _ = write!(out, ": {}{age}", printable(why));
        }
        out.push('\n');
    }
    out
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
        let _ = writeln!(out, "{label:<10}{} packets, {bytes}", number("packets-out"));
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
    Some(format!("has lost {lost} lines, {waiting} wait{error}"))
}

/// Writes out the load of each worker, from the answer to `stats`.
pub fn render_workers(stats: &Section) -> String {
    let mut out = String::new();
    let workers = stats.sub("workers").into_iter();
    for (index, worker) in workers.flat_map(Section::sections) {
        let text = |key: &str| worker.text(key).unwrap_or("0");
        let line = format!(
            "{index}: sent {} packets, received {}, {} % busy",
            text("packets-out"),
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
        let mut line = format!(
            "{kind} {} with {} entries, next update {}",
            text("number"),
            text("entries"),
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
    let _ = write!(out, "  {name}: {}, {}{encap}", text("state"), text("mode"));
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
            "    {label:<8}{spi:<8} {bytes:>10} {packets:>12} packets"
        );
        if let Some(seconds) = number("use") {
            let _ = write!(out, ", last {} ago", human_duration(seconds));
        }
        out.push('\n');
    }
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

/// Writes a number of bytes in units of 1024 with one decimal: `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// Makes a text safe to print. Identities come from peers: nothing in them may steer the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_name_their_reasons() {
        let (mut walk, mut drops, mut counters) = (Section::new(), Section::new(), Section::new());
        walk.set("packets-out", 3).set("bytes-out", 2048);
        drops
            .set("no-sa", 0)
            .set("replayed", 2)
            .set("unknown-spi", 1);
        counters.section("outbound", walk).section("drops", drops);
        let text = render_counters(&counters);
        assert!(text.contains("sent      3 packets, 2.0 KiB\n"), "{text}");
        assert!(text.contains("received  0 packets, 0 B\n"), "{text}");
        assert!(
            text.ends_with("dropped   replayed 2, unknown-spi 1\n"),
            "{text}"
        );
    }

    #[test]
    fn workers_have_a_line_each() {
        let (mut stats, mut workers, mut second) = (Section::new(), Section::new(), Section::new());
        second.set("packets-out", 7).set("packets-in", 5);
        second.set("busy-percent", 93).set("busy-for", 12);
        workers.set("total", 2).section("0", Section::new());
        workers.section("1", second);
        stats.section("workers", workers);
        let expected = "worker    0: sent 0 packets, received 0, 0 % busy
worker    1: sent 7 packets, received 5, 93 % busy
warning   worker 1 has been busy for 12 s and may lose packets: set more `workers`
";
        assert_eq!(render_workers(&stats), expected);
    }

    #[test]
    fn the_share_has_a_line() {
        let mut share = Section::new();
        share.set("with", "the GPU");
        for (key, value) in [
            ("percent", 37),
            ("halves", 12),
            ("gpu-halves", 3),
            ("busy-percent", 62),
            ("threshold", 80),
            ("latency-us", 1000),
            ("moves", 9),
        ] {
            share.set(key, value);
        }
        let render = |share: &Section| {
            let (mut stats, mut engine) = (Section::new(), Section::new());
            engine.section("share", share.clone());
            stats.section("engine", engine);
            render_engine(&stats)
        };
        let begin = "share     the GPU carries 37 % of the load, 3 of 12 halves; the busiest worker is 62 % busy, threshold 80 %";
        assert_eq!(render(&share), format!("{begin}; moves: 9\n"));
        share.set("p99-us", 310);
        let late = "; batches take 310 us, 1000 at most; moves: 9\n";
        assert_eq!(render(&share), format!("{begin}{late}"));
    }

    #[test]
    fn crls_have_a_line_each() {
        let (mut stats, mut crls) = (Section::new(), Section::new());
        let mut crl = Section::new();
        crl.set("issuer", "CN=ca\n")
            .set("number", "0a")
            .set("entries", 2);
        crl.set("delta", "yes").set("unusable", "why");
        crls.section("0", crl);
        stats.section("crls", crls);
        assert_eq!(
            render_crls(&stats),
            "crl       CN=ca\u{fffd}: delta CRL 0a with 2 entries, next update -; it cannot be used: why\n"
        );
    }

    #[test]
    fn names_have_a_line_each() {
        let named = |name: &str, addresses: &[&str], error: Option<&str>| {
            let (mut connection, mut names) = (Section::new(), Section::new());
            let mut section = Section::new();
            section.list("addresses", addresses);
            if let Some(error) = error {
                section.set("error", error);
            }
            names.section(name, section);
            connection.section("names", names);
            connection
        };
        let connections = [
            named("sun.example", &["192.0.2.1", "2001:db8::1"], None),
            named("moon.example", &[], Some("why\n")),
            named("sun.example", &["192.0.2.1", "2001:db8::1"], None),
            Section::new(),
        ];
        assert_eq!(
            render_names(&connections),
            "name      moon.example has no address: why\u{fffd}\n\
             name      sun.example: 192.0.2.1, 2001:db8::1\n"
        );
    }

    #[test]
    fn children_that_are_down_say_why() {
        let (mut connection, mut children) = (Section::new(), Section::new());
        let of = |entries: &[(&str, &str)]| {
            let mut child = Section::new();
            for (key, value) in entries {
                child.set(key, value);
            }
            child
        };
        children
            .section("up", of(&[("state", "UP")]))
            .section(
                "net",
                of(&[
                    ("state", "WAITING"),
                    ("next-attempt", "65"),
                    ("last-error", "the peer\u{1b} does not answer"),
                    ("last-error-age", "3"),
                ]),
            )
            .section("old", of(&[("state", "CLOSED")]))
            .section("trap", of(&[("state", "DOWN")]));
        connection.section("children", children);
        assert_eq!(
            render_down("site", &connection),
            "down      site/net, next attempt in 1m 05s: the peer\u{fffd} does not answer (3s ago)\n\
             down      site/old, closed by command\n\
             down      site/trap, waits for traffic, the peer or a command\n"
        );
    }

    #[test]
    fn human_units() {
        assert_eq!(human_duration(59), "59s");
        assert_eq!(human_duration(3725), "1h 02m");
        assert_eq!(human_duration(90_000), "1d 01h");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(u64::MAX), "16.0 EiB");
    }
}
