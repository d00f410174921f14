//! The time that the CPU engine takes for a transform on this machine.

use std::time::Duration;

use crate::job::EspPacket;
use crate::key::KeyContext;
use crate::lookaside;
use crate::tier::Tier;
use crate::transform::Transform;

/// A payload as an Ethernet link has it.
const LARGE: [usize; 1] = [1398];
/// Payloads of IMIX: seven of 40 bytes, four of 576 and one of 1500.
pub(crate) const MIX: [usize; 12] = [40, 576, 40, 40, 1500, 40, 576, 40, 576, 40, 40, 576];
/// As many packets as keep every lane of the kernels busy.
const PACKETS: usize = 64;
const TRIES: usize = 3;
/// A transform that takes so long twice is not tried again. Once may be another program's fault.
const LONG: Duration = Duration::from_millis(20);

/// Seals and opens large packets with [`Tier::of`] the transform. Returns nanoseconds for a thousand bytes, or `None` if
/// this build cannot make the key. The transform is of ESP. `now` is the time since any fixed moment.
pub fn measure(transform: Transform, now: impl Fn() -> Duration) -> Option<u64> {
    cheapest_of_tries(&[Tier::of(transform)], transform, &LARGE, now)
        .first()
        .map(|(_, cost)| *cost)
}

/// Measures IMIX with each tier that has an own way to do the transform. Returns nanoseconds for a thousand bytes.
pub(crate) fn by_tier(
    tiers: &[Tier],
    transform: Transform,
    now: impl Fn() -> Duration,
) -> Vec<(Tier, u64)> {
    cheapest_of_tries(tiers, transform, &MIX, now)
}

/// Takes the fastest of a few tries: others use the processor too. The tiers take turns.
fn cheapest_of_tries(
    tiers: &[Tier],
    transform: Transform,
    payloads: &[usize],
    now: impl Fn() -> Duration,
) -> Vec<(Tier, u64)> {
    let material: Vec<u8> = (1..).take(transform.key_material_len()).collect();
    let key = |tier| KeyContext::for_tier(tier, transform, false, &material);
    let keys = tiers
        .iter()
        .filter_map(|tier| Some((*tier, key(*tier).ok()?)));
    let mut best: Vec<_> = keys.map(|key| (key, Duration::MAX)).collect();
    let lens = payloads.iter().map(|len| transform.sealed_len(*len));
    let lens: Vec<usize> = lens.cycle().take(PACKETS).collect();
    for attempt in 0..TRIES {
        for ((_, key), best) in &mut best {
            if attempt < 2 || *best < LONG {
                *best = (*best).min(seal_and_open(key, &lens, &now));
            }
        }
    }
    let bytes = 2 * lens.iter().sum::<usize>() as u128;
    let cost = |best: Duration| u64::try_from(best.as_nanos() * 1000 / bytes).unwrap_or(u64::MAX);
    best.into_iter()
        .map(|((tier, _), best)| (tier, cost(best)))
        .collect()
}

/// Works in the caller's thread.
fn seal_and_open(key: &KeyContext, lens: &[usize], now: &impl Fn() -> Duration) -> Duration {
    let mut buffers: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
    let begun = now();
    for work in [lookaside::seal_esp, lookaside::open_esp] {
        let packets = buffers.iter_mut().zip(1..);
        let mut packets: Vec<_> = packets
            .map(|(bytes, at)| EspPacket::new(key, at, bytes))
            .collect();
        work(&mut packets);
    }
    now().saturating_sub(begun)
}
