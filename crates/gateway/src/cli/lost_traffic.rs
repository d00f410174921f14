//! The part of `status --check` that looks at traffic which gets no answer.

use crate::failure::Failure;
use crate::log::first_names;
use crate::vici::Section;

/// Most child SAs that are named.
const NAMES_MAX: usize = 5;

/// Fails if a child SA sends and receives nothing while its peer answers IKE. Traffic that may need no answer does not
/// count. `sas` are the entries of `list-sas`.
pub(super) fn comes_back<'a>(
    sas: impl Iterator<Item = (&'a str, &'a Section)>,
) -> Result<(), Failure> {
    let mut lost = Vec::new();
    let mut causes = None;
    for (connection, sa) in sas {
        let children = sa.sub("child-sas").into_iter().flat_map(Section::sections);
        for (unique, child) in children {
            let one_way = child.sub("one-way");
            let Some(one_way) = one_way.filter(|one| one.text("verdict") == Some("suspected"))
            else {
                continue;
            };
            let text = |key| child.text(key).unwrap_or("0");
            let name = child.text("name").unwrap_or(unique);
            lost.push(format!(
                "{connection}/{name} ({} packets out, {} in)",
                text("packets-out"),
                text("packets-in")
            ));
            causes = causes.or_else(|| one_way.items("causes").next());
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let what = format!(
        "one-way traffic, while the peer answers IKE: {}",
        first_names(&lost, NAMES_MAX)
    );
    let help = format!(
        "likely {}; `status` has further causes",
        causes.unwrap_or("-")
    );
    Err(Failure::runtime(what).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(verdict: Option<&str>) -> Section {
        let (mut event, mut sa, mut children) = (Section::new(), Section::new(), Section::new());
        let mut child = Section::new();
        child.set("name", "net").set("packets-out", 150);
        child.set("packets-in", 0);
        if let Some(verdict) = verdict {
            let mut one_way = Section::new();
            one_way.set("verdict", verdict);
            one_way.list("causes", &["a filter", "no route"]);
            child.section("one-way", one_way);
        }
        children.section("net-3", child);
        sa.section("child-sas", children);
        event.section("site", sa);
        event
    }

    fn judge(events: &[Section]) -> Result<(), Failure> {
        comes_back(events.iter().flat_map(Section::sections))
    }

    #[test]
    fn only_traffic_that_must_be_answered_counts() {
        assert!(judge(&[event(None), event(Some("possible"))]).is_ok());
        let failure = judge(&[event(None), event(Some("suspected"))]).unwrap_err();
        let text = format!("{failure:?}");
        for part in ["site/net (150 packets out, 0 in)", "likely a filter"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_few_of_many_are_named() {
        let events = vec![event(Some("suspected")); 1000];
        let what = judge(&events).unwrap_err().what;
        assert_eq!(what.matches("site/net").count(), NAMES_MAX);
        assert!(what.ends_with(" and 995 more"), "{what}");
    }
}
