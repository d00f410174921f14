//! Which SAs the FPGA core carries.

use std::sync::Arc;

use esplanade_ipsec::sa::{InboundSa, OutboundSa};

use super::engines::Place;
use super::{Carrier, ConfiguredPolicy, InstallError, Join};
use crate::config::SaOptions;

impl Join {
    /// Offers both halves of a child SA to the core if that is its place. What it cannot do the CPU does.
    pub(super) fn offload(
        &self,
        configured: &ConfiguredPolicy,
        place: Place,
        (inbound, outbound): &(Arc<InboundSa>, Arc<OutboundSa>),
    ) -> Result<Carrier, InstallError> {
        let wanted = self.core.as_ref().filter(|_| place == Place::Core);
        let Some(core) = wanted else {
            return Ok(Carrier::Cpu(None));
        };
        let refused = match unfit(&configured.sa) {
            Some(what) => Err(format!("the FPGA core cannot do {what}")),
            None => core.install(outbound.clone(), inbound.clone()),
        };
        match refused {
            Ok(()) => Ok(Carrier::Fpga),
            // It may have begun with it.
            Err(why) if outbound.sequence.is_given_away() => Err(InstallError::Core(why)),
            Err(why) => {
                tracing::warn!(
                    connection = configured.connection,
                    child = configured.child,
                    "the CPU carries the child SA: {why}"
                );
                Ok(Carrier::Cpu(Some(why)))
            }
        }
    }

    /// Tells the core what has changed, before peers hear of it.
    pub fn settle_core(&mut self) {
        if std::mem::take(&mut self.core_stale)
            && let Some(core) = &self.core
        {
            core.follow();
        }
    }
}

/// What of the child's options is not in its SAs.
fn unfit(options: &SaOptions) -> Option<&'static str> {
    if !options.populate.is_none() {
        return Some("an SA for each flow");
    }
    (options.dummies > 0).then_some("dummy packets")
}
