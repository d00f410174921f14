//! What the gateway gives up: rights that it does not use, and ways to see its memory.
//!
//! Capabilities are a thread's own: every thread that stays drops those that it does not need.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// For routes, rules and TUN devices, for the mark on sockets, and for IPv6 extension headers on raw ones.
const RUNNING: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Besides, for the ports 500 and 4500, for files and the control socket in folders of other users, and to name the
/// program that holds a port.
const STARTING: CapabilitySet = RUNNING
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::SYS_PTRACE);

/// Before the first further thread: those that come have no more.
pub fn begin() -> io::Result<()> {
    // Not readable by other processes of the user, and in no core dump, whatever handles those.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(RUNNING).iter() {
        // Without CAP_SETPCAP the set stays as it is; it only counts for programs that are executed. The kernel may know
        // fewer capabilities than this program.
        let _ = remove_capability_from_bounding_set(capability);
    }
    keep(STARTING)
}

/// In a thread that works on packets, or that controls them once all is bound and made.
pub fn running() -> io::Result<()> {
    keep(RUNNING)
}

/// In a thread that only writes what is open already.
pub fn writing() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(wanted: CapabilitySet) -> io::Result<()> {
    let kept = capabilities(None)?.permitted.intersection(wanted);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_uses_and_no_more() {
        let of = |give_up: fn() -> io::Result<()>| {
            let thread = std::thread::spawn(move || {
                give_up().unwrap();
                capabilities(None).unwrap()
            });
            thread.join().unwrap()
        };
        let own = capabilities(None).unwrap();
        let after = of(running);
        assert_eq!(after.permitted, own.permitted.intersection(RUNNING));
        assert_eq!(after.effective, after.permitted);
        assert!(of(writing).permitted.is_empty());
        assert_eq!(capabilities(None).unwrap(), own, "it is the thread's alone");
    }
}
