//! Inputs that come as far as their names say.

use super::setup::knob;
use super::step;

/// The high bit of a step: it is B's.
const OF_B: u8 = 128;
/// Commands of [`step::COMMAND`].
const INITIATE: u8 = 0;
const REKEY: u8 = 3;
const TERMINATE: u8 = 6;
/// Parameters of [`step::RUN`]: some ten seconds, and some minutes.
const SHORT: u8 = 10;
const LONG: u8 = 15;
/// Values of [`knob::PROOF`].
pub(super) const EXTERNAL_KEY: u8 = 1;
const RSA: u8 = 2;
const RAW_KEY: u8 = 10;
const OCSP_LEAF: u8 = 17;
const MEMBER: u8 = 18;

/// Parameters of [`step::OF_SA`]: packets go out.
const OUT: u8 = 1;

/// Packets go out, and ten seconds pass, some times.
fn traffic(times: usize) -> Vec<u8> {
    [step::OF_SA, OUT, step::RUN, SHORT].repeat(times)
}

const UP: [u8; 4] = [step::COMMAND, INITIATE, step::RUN, SHORT];

/// An input of knobs and steps.
fn script(knobs: &[(u8, u8)], steps: &[u8]) -> Vec<u8> {
    let knobs = knobs.iter().flat_map(|(knob, value)| [*knob, *value]);
    knobs
        .chain([knob::END])
        .chain(steps.iter().copied())
        .collect()
}

/// Inputs with packets that go out, by their names.
fn of_traffic() -> [(&'static str, Vec<u8>); 3] {
    let narrow = [step::PATH, 100];
    let later = [step::PATH, 0, step::RUN, LONG, step::RUN, LONG];
    let then = |more: &[&[u8]]| script(&[], &[&UP[..], &more.concat()].concat());
    [
        ("narrow-path", then(&[&narrow, &traffic(4)])),
        (
            "wider-path",
            then(&[&narrow, &traffic(4), &later, &traffic(4)]),
        ),
        ("one-way", then(&[&traffic(12)])),
    ]
}

/// The inputs by their names.
pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let own = |proof| (knob::PROOF | knob::OF_A, proof);
    let then = |more: &[u8]| [&UP[..], more].concat();
    let mut scripts = vec![
        ("up", script(&[], &UP)),
        ("certificate", script(&[own(RSA)], &UP)),
        ("raw-key", script(&[own(RAW_KEY)], &UP)),
        (
            "member",
            script(&[own(MEMBER), (knob::HOST | knob::OF_B, 0)], &UP),
        ),
        (
            "external-key",
            script(
                &[own(EXTERNAL_KEY)],
                &then(&[step::SIGN, 0, step::RUN, SHORT]),
            ),
        ),
        (
            // B fetches: the second store, under `strict`.
            "status-is-fetched",
            script(
                &[own(OCSP_LEAF), (knob::REVOCATION | knob::OF_B, 1 << 2 | 1)],
                &then(&[step::STATUS_IS_THERE | OF_B, 0, step::RUN, SHORT]),
            ),
        ),
        (
            "rekeys",
            script(
                &[],
                &then(&[
                    step::COMMAND,
                    REKEY,
                    step::COMMAND | OF_B,
                    REKEY | 0x10,
                    step::RUN,
                    LONG,
                ]),
            ),
        ),
        ("late-jobs", script(&[own(RSA), (knob::HOST, 1)], &UP)),
        (
            "by-name",
            script(
                &[(knob::ADDRESSES | knob::OF_A, 2)],
                &then(&[step::NAMES, 0, step::RUN, SHORT]),
            ),
        ),
        (
            "restart",
            script(
                &[],
                &then(&[
                    step::RESTART | OF_B,
                    0,
                    step::RUN,
                    SHORT,
                    1 | OF_B,
                    0,
                    step::RUN,
                    SHORT,
                ]),
            ),
        ),
        (
            "another-address",
            script(
                &[
                    (knob::ADDRESSES | knob::OF_A, 0x10),
                    (knob::ADDRESSES | knob::OF_B, 1),
                ],
                &then(&[step::ADDRESS, 2, step::RUN, SHORT]),
            ),
        ),
        (
            "down",
            script(&[], &then(&[step::COMMAND, TERMINATE, step::RUN, SHORT])),
        ),
        (
            // The insider empties B's first response.
            "insider",
            script(
                &[],
                &[&[step::INSIDER | OF_B, 2 << 3, 0, 7][..], &UP].concat(),
            ),
        ),
    ];
    scripts.extend(of_traffic());
    scripts
}
