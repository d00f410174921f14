//! The operations of a simulation. A seed gives the whole list before anything runs. Each operation can run without the
//! others: one that does not apply does nothing.

use std::net::Ipv4Addr;
use std::time::Duration;

use esplanade_testkit::net::Rng;

use crate::config::{BRANCH, CHILDREN, Edit, HUB, OTHER};

/// Fewest and most operations of a seed.
const OPERATIONS: (u64, u64) = (6, 16);

/// An address that no gateway has.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

#[derive(Clone, Debug)]
pub enum Act {
    /// The administrator wants the connection or one of its children up.
    Initiate { at: usize, child: Option<usize> },
    /// The administrator ends the connection or one of its children.
    Terminate { at: usize, child: Option<usize> },
    /// A rekey of the IKE SA, or of a child SA.
    Rekey { at: usize, child: Option<usize> },
    /// Both ends rekey at once.
    Collide { children: [Option<usize>; 2] },
    /// The peers authenticate again, over a new IKE SA beside the old one.
    Reauthenticate { at: usize },
    /// The configuration has these changes from now on, and no others.
    Reload { at: usize, edits: Vec<Edit> },
    /// The gateway loses all state, and begins again after a while.
    Restart { at: usize, down: Duration },
    /// The link carries nothing for a while.
    Cut { time: Duration },
    /// The NAT gives other ports, and sometimes another address.
    Rebind,
    Traffic {
        from: usize,
        child: usize,
        packets: u16,
        len: usize,
    },
    /// Somebody sends datagrams of the link once more, perhaps from another address.
    Repeat {
        packets: usize,
        from: Option<Ipv4Addr>,
    },
    /// A peer sends a packet of the child through the SA of another.
    Forge { by: usize, child: usize },
}

/// Draws the operations of a seed, each with the time before it.
pub fn draw(seed: u64) -> Vec<(Duration, Act)> {
    let mut rng = Rng::new(seed ^ 0x6f70_6572_6174);
    let count = OPERATIONS.0 + rng.below(OPERATIONS.1 - OPERATIONS.0 + 1);
    (0..count)
        .map(|_| (wait(&mut rng), act(&mut rng)))
        .collect()
}

fn wait(rng: &mut Rng) -> Duration {
    // Operations in quick succession meet exchanges that are under way.
    let most = [20, 400, 3000, 9000][rng.below(4) as usize];
    Duration::from_millis(rng.below(most))
}

fn act(rng: &mut Rng) -> Act {
    let at = rng.below(2) as usize;
    let child = rng.below(CHILDREN.len() as u64) as usize;
    let some = rng.chance(0.6).then_some(child);
    match rng.below(26) {
        25 => Act::Reauthenticate { at },
        24 => Act::Collide {
            children: [some, rng.chance(0.5).then_some(0)],
        },
        0 | 1 => Act::Initiate { at, child: some },
        2 => Act::Terminate { at, child: some },
        3..=5 => Act::Rekey { at, child: some },
        6..=9 => {
            let mut edits: Vec<_> = (0..rng.below(4))
                .map(|_| Edit::ALL[rng.below(Edit::ALL.len() as u64) as usize])
                .collect();
            edits.sort_unstable();
            edits.dedup();
            Act::Reload { at, edits }
        }
        10 => Act::Restart {
            at,
            down: Duration::from_millis(rng.below(12_000)),
        },
        11 => Act::Cut {
            time: Duration::from_millis(rng.below(30_000)),
        },
        12 | 13 => Act::Rebind,
        14 => Act::Repeat {
            packets: 1 + rng.below(8) as usize,
            from: rng.chance(0.5).then_some(ELSEWHERE),
        },
        15 => Act::Forge {
            by: [BRANCH, OTHER][rng.below(2) as usize],
            child,
        },
        _ => Act::Traffic {
            from: [BRANCH, HUB][at],
            child,
            packets: 1 + rng.below(12) as u16,
            len: [0, 100, 600, 1300, 1800][rng.below(5) as usize],
        },
    }
}
