//! The decisions about fabrics, against what could have been decided by one who knew all traffic.

use std::collections::HashMap;

use esplanade_ace::algorithm::{Algorithm, Lane, Need};
use esplanade_ace::residency::Residency;
use proptest::prelude::*;

const PRICE: u64 = 1000;

fn need(algorithm: Algorithm) -> Need {
    Need {
        algorithm,
        long_key: false,
    }
}

fn lane_for(need: Need) -> Option<Lane> {
    Some(Lane {
        algorithm: need.algorithm,
        long_keys: need.long_key,
    })
}

/// Loads at once whatever is to be loaded. Returns the number of loads.
fn load(residency: &mut Residency) -> u64 {
    let mut loads = 0;
    while let Some((fabric, _)) = residency.next_load(lane_for) {
        residency.loaded(fabric);
        loads += 1;
    }
    loads
}

/// Carries packets. Returns their cost.
fn carry(residency: &mut Residency, need: Need, ns: u64) -> u64 {
    match residency.fabric_for(need) {
        Some(fabric) => {
            residency.spared(fabric, ns);
            0
        }
        None => {
            residency.cost(need, ns);
            ns
        }
    }
}

#[test]
fn an_empty_fabric_loads_what_an_sa_asks_for() {
    let mut residency = Residency::new(1, PRICE);
    assert_eq!(residency.next_load(lane_for), None);
    let serpent = need(Algorithm::Serpent);
    residency.request(serpent);
    assert_eq!(residency.next_load(|_| None), None);
    assert_eq!(
        residency.next_load(lane_for),
        lane_for(serpent).map(|lane| (0, lane))
    );
    // It is not there yet, and not loaded twice.
    assert_eq!(residency.fabric_for(serpent), None);
    assert_eq!(residency.next_load(lane_for), None);
    residency.loaded(0);
    assert_eq!(residency.fabric_for(serpent), Some(0));
}

#[test]
fn a_lane_without_an_sa_gives_way_at_once() {
    let mut residency = Residency::new(1, PRICE);
    let [mars, rc6] = [Algorithm::Mars, Algorithm::Rc6].map(need);
    residency.request(mars);
    assert_eq!(load(&mut residency), 1);
    residency.request(rc6);
    assert_eq!(load(&mut residency), 0);
    assert!(residency.release(mars));
    assert!(!residency.release(mars));
    assert_eq!(load(&mut residency), 1);
    assert_eq!(residency.fabric_for(rc6), Some(0));
}

#[test]
fn equal_traffic_does_not_change_lanes() {
    let mut residency = Residency::new(1, PRICE);
    let [mars, rc6] = [Algorithm::Mars, Algorithm::Rc6].map(need);
    residency.request(mars);
    residency.request(rc6);
    let mut loads = load(&mut residency);
    for _ in 0..1000 {
        carry(&mut residency, mars, PRICE / 4);
        carry(&mut residency, rc6, PRICE / 4);
        loads += load(&mut residency);
    }
    assert_eq!(loads, 1);
}

#[test]
fn what_costs_more_takes_the_fabric_over() {
    let mut residency = Residency::new(1, PRICE);
    let [cheap, dear] = [Algorithm::Rijndael, Algorithm::Serpent].map(need);
    residency.request(cheap);
    load(&mut residency);
    residency.request(dear);
    let mut cost = 0;
    while residency.fabric_for(dear).is_none() {
        carry(&mut residency, cheap, 10);
        cost += carry(&mut residency, dear, 40);
        load(&mut residency);
    }
    // 30 in each turn, up to two loads.
    assert_eq!(
        cost,
        (2 * PRICE).div_ceil(30) * 40 + if (2 * PRICE) % 30 == 10 { 40 } else { 0 }
    );
}

#[test]
fn a_failed_fabric_is_not_used() {
    let mut residency = Residency::new(2, PRICE);
    let mars = need(Algorithm::Mars);
    residency.request(mars);
    load(&mut residency);
    let fabric = residency.fabric_for(mars).unwrap();
    residency.failed(fabric);
    assert_eq!(residency.fabric_for(mars), None);
    load(&mut residency);
    assert_eq!(residency.fabric_for(mars), Some(1 - fabric));
    residency.failed(1 - fabric);
    assert_eq!(load(&mut residency), 0);
}

/// The least cost of the traffic for one fabric, by trying for each step which lane is there.
fn least(traffic: &[(usize, u64)], needs: usize) -> u64 {
    let mut costs = vec![PRICE; needs];
    for (wanted, ns) in traffic {
        for (there, cost) in costs.iter_mut().enumerate() {
            *cost += if there == *wanted { 0 } else { *ns };
        }
        let least = costs.iter().min().copied().unwrap_or(0);
        for cost in &mut costs {
            *cost = (*cost).min(least + PRICE);
        }
    }
    costs.into_iter().min().unwrap_or(0)
}

/// Bursts of one need after the other.
fn bursts(needs: usize) -> impl Strategy<Value = Vec<(usize, u64)>> {
    let burst = (0..needs, 1u64..100, 1usize..120);
    proptest::collection::vec(burst, 1..60).prop_map(|bursts| {
        let packets = bursts
            .into_iter()
            .flat_map(|(need, ns, packets)| vec![(need, ns); packets]);
        packets.collect()
    })
}

proptest! {
    #[test]
    fn one_fabric_costs_at_most_three_times_the_least(traffic in bursts(2)) {
        let needs = [Algorithm::Mars, Algorithm::Rc6].map(need);
        let mut residency = Residency::new(1, PRICE);
        let (mut cost, mut loads) = (0, 0);
        for need in needs {
            residency.request(need);
        }
        loads += load(&mut residency);
        for (which, ns) in &traffic {
            cost += carry(&mut residency, needs[*which], *ns);
            loads += load(&mut residency);
        }
        let all = cost + loads * PRICE;
        // The end may come right before a load pays, and packets are not divided.
        prop_assert!(all <= 3 * least(&traffic, 2) + 3 * PRICE, "{all}, least {}", least(&traffic, 2));
        // A load follows costs of two.
        prop_assert!((loads - 1) * 2 * PRICE <= cost, "{loads} loads, {cost}");
    }

    #[test]
    fn whatever_comes_no_lane_is_on_two_fabrics_and_all_is_bounded(
        steps in proptest::collection::vec((0u8..6, 0usize..5, 1u64..3000), 0..400),
        fabrics in 1usize..4,
    ) {
        let mut residency = Residency::new(fabrics, PRICE);
        let mut sas: HashMap<Need, usize> = HashMap::new();
        let mut loading = Vec::new();
        for (what, which, ns) in steps {
            let need = need(Algorithm::ALL[which]);
            match what {
                0 => {
                    residency.request(need);
                    *sas.entry(need).or_default() += 1;
                }
                1 => {
                    let there = sas.get_mut(&need).filter(|count| **count > 0);
                    prop_assert_eq!(residency.release(need), there.is_some());
                    if let Some(count) = there {
                        *count -= 1;
                    }
                }
                2 | 3 => drop(carry(&mut residency, need, ns)),
                4 => {
                    if let Some((fabric, lane)) = residency.next_load(lane_for) {
                        prop_assert!(!loading.iter().any(|(other, of)| *other == fabric || *of == lane));
                        loading.push((fabric, lane));
                    }
                }
                _ => {
                    if let Some((fabric, lane)) = loading.pop() {
                        residency.loaded(fabric);
                        let need = Need { algorithm: lane.algorithm, long_key: false };
                        prop_assert_eq!(residency.fabric_for(need), Some(fabric));
                    }
                }
            }
        }
        let there: Vec<_> = residency.needs().collect();
        prop_assert!(there.iter().all(|(need, count)| sas.get(need) == Some(count)));
    }
}
