//! Runs the packet path beside the reference model. The input decides the scenario of
//! `crates/ipsec/tests/differential`.

#[path = "../../crates/ipsec/tests/differential/choices.rs"]
#[allow(dead_code, reason = "the test uses what the fuzz target does not")]
mod choices;
mod cipher;
#[path = "../../crates/ipsec/tests/differential/pair.rs"]
mod pair;
#[path = "../../crates/ipsec/tests/differential/scenario.rs"]
#[allow(dead_code, reason = "the test uses what the fuzz target does not")]
mod scenario;
#[path = "../../crates/ipsec/tests/differential/traffic.rs"]
mod traffic;

/// Every byte is a choice: of policies, SAs, packets and the events that change them.
pub fn walks(data: &[u8]) {
    scenario::run(&mut choices::Choices::Bytes(data));
}
