//! A peer that sends through its SA what the SA is not for.

use std::sync::Arc;

use esplanade_ike::event::ChildSaInstalled;
use esplanade_ipsec::sa::{OutboundSa, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};

use crate::config::{BRANCH, BYSTANDER, CHILDREN, HUB, OTHER, SITE};
use crate::gateway::Gateway;
use crate::ledger::Checked;
use crate::world::World;

/// Has a gateway send a packet of a child to the hub through the SA of another child. The hub must not deliver it. The
/// packet takes a sequence number of the real SA.
pub fn send(world: &mut World, by: usize, child: usize) -> Checked {
    let Some(gateway) = world.gateways[by].as_ref() else {
        return Ok(());
    };
    let through = match by {
        OTHER => (BYSTANDER, BYSTANDER),
        _ => (SITE, CHILDREN[1 - child].name),
    };
    let installed = gateway.newest.iter().rev();
    let mut installed =
        installed.filter(|sa| (sa.connection.as_str(), sa.name.as_str()) == through);
    let Some(sa) = installed.next().and_then(|sa| wide(gateway, sa)) else {
        return Ok(());
    };
    let nets = CHILDREN[child].nets;
    let (number, packet) =
        world
            .ledger
            .packet((BRANCH, nets[BRANCH].1), (HUB, nets[HUB].1), 7000, 200);
    world.ledger.forbid(number);
    world.seen.count("forged packet");
    let gateway = world.gateways[by].as_mut();
    gateway
        .into_iter()
        .for_each(|gateway| gateway.seal(&sa, &packet));
    world.read(by, &[])
}

/// Makes the same outbound SA for all packets, at the next sequence number.
fn wide(gateway: &Gateway, installed: &ChildSaInstalled) -> Option<Arc<OutboundSa>> {
    let real = &gateway.join.child(installed.child)?.outbound;
    let number = real.sequence.take(1).ok()?.first;
    let everything = AddressRange::from_prefix([0, 0, 0, 0].into(), 0)?;
    let sa = OutboundSa::new(SaParameters {
        esn: installed.esp.sequence_numbers == esplanade_crypto::iana::SequenceNumbers::Bits64,
        ..SaParameters::new(
            installed.spi_out,
            real.common.policy,
            installed.esp.transform,
            installed.key_out.expose(),
            SelectorSet::new(vec![Selector::between(everything, everything)])?,
            real.common.path(),
        )
    });
    let sa = sa.ok()?;
    if number > 1 {
        sa.sequence.take(u32::try_from(number - 1).ok()?).ok()?;
    }
    Some(Arc::new(sa))
}
