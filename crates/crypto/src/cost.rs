//! The time that the CPU engine takes for a transform on this machine.

use std::time::Duration;

use crate::job::EspPacket;
use crate::key::KeyContext;
use crate::lookaside;
use crate::transform::Transform;

/// A payload as an Ethernet link has it.
const PAYLOAD_LEN: usize = 1398;
/// As many packets as keep every lane of the kernels busy.
const PACKETS: usize = 64;
const TRIES: usize = 3;
/// A transform that takes so long is not tried again.
const LONG: Duration = Duration::from_millis(20);

/// Seals and opens packets in the caller's thread, and takes the fastest of a few tries: others use the processor too.
/// Returns nanoseconds for a thousand bytes, or `None` if this build cannot make the key. The transform is of ESP. `now`
/// is the time since any fixed moment.
pub fn measure(transform: Transform, now: impl Fn() -> Duration) -> Option<u64> {
    let material: Vec<u8> = (1..).take(transform.key_material_len()).collect();
    let key = KeyContext::new(transform, false, &material).ok()?;
    let len = transform.sealed_len(PAYLOAD_LEN);
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let mut buffers = vec![vec![0; len]; PACKETS];
        let begun = now();
        for work in [lookaside::seal_esp, lookaside::open_esp] {
            let packets = buffers.iter_mut().zip(1..);
            let mut packets: Vec<_> = packets
                .map(|(bytes, at)| EspPacket::new(&key, at, bytes))
                .collect();
            work(&mut packets);
        }
        best = best.min(now().saturating_sub(begun));
        if best > LONG {
            break;
        }
    }
    let bytes = 2 * (PACKETS * len) as u128;
    u64::try_from(best.as_nanos() * 1000 / bytes).ok()
}
