//! Measures the memory per installed pair of SAs, as the operating system sees it. The number includes the memory
//! that the crypto library allocates for keys. Run `cargo run --locked --release -p esplanade-ipsec --example
//! sa_memory -- 100000`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::sad::{Sad, SadReader};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Policy, PolicyId};

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

fn parameters(n: u32, spi: u32, key: &[u8], transform: Transform) -> Option<SaParameters<'_>> {
    let site = |net: u32| AddressRange::host(IpAddr::V4(Ipv4Addr::from(net << 24 | n)));
    let selectors = SelectorSet::new(vec![Selector::between(site(10), site(11))])?;
    let end = |net: u32| SocketAddr::new(Ipv4Addr::from(net << 24 | n).into(), 4500);
    let path = Path {
        local: end(192),
        remote: end(198),
        udp_encap: true,
    };
    let parameters = SaParameters::new(spi, PolicyId(n), transform, key, selectors, path);
    Some(SaParameters {
        esn: true,
        replay_window: 128,
        ..parameters
    })
}

/// The bytes per pair for `count` pairs: the SAs, the SAD's slots, a policy for each pair, and one worker's copy of
/// the SAD.
fn measure(transform: Transform, count: u32) -> Option<u64> {
    let before = resident_bytes();
    let sad = Sad::new();
    let mut reader = SadReader::new();
    let mut policies = Vec::with_capacity(count as usize);
    for n in 0..count {
        let mut key = vec![0x5a; transform.key_material_len()];
        for (i, byte) in key.iter_mut().enumerate() {
            *byte = (n.rotate_left(i as u32) as u8).wrapping_add(i as u8) | 1;
        }
        let spi = sad.allocate_spi()?;
        let inbound = InboundSa::new(parameters(n, spi, &key, transform)?).ok()?;
        sad.insert(Arc::new(inbound)).ok()?;
        reader.lookup(&sad, spi)?;
        let outbound = OutboundSa::new(parameters(n, spi, &key, transform)?).ok()?;
        let policy = Policy::new(PolicyId(n), "site");
        policy.install(Arc::new(outbound));
        policies.push(policy);
    }
    Some(resident_bytes().saturating_sub(before) / u64::from(count))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments
        .first()
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000);
    let name = arguments.get(1).map_or("AES_GCM_16_128", String::as_str);
    let bytes = Transform::from_name(name).and_then(|transform| measure(transform, count));
    println!(
        "{{\"pairs\": {count}, \"transform\": \"{name}\", \"bytes_per_pair\": {}, \"inbound_sa\": {}, \"outbound_sa\": {}}}",
        bytes.map_or("null".into(), |bytes| bytes.to_string()),
        size_of::<InboundSa>(),
        size_of::<OutboundSa>(),
    );
}
