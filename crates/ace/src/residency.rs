//! Which lane is on which fabric: a decision by cost, without a clock and without a device.
//!
//! The unit of cost is a nanosecond of the CPU. A packet that the CPU carries costs what it took; a packet on a fabric has
//! spared that. A load costs the time that it takes, because the fabric spares nothing meanwhile. Where a fabric is empty,
//! or nobody needs its lane, a lane is loaded when an SA asks for it. Otherwise a need takes a fabric over when it has cost
//! two loads more than the fabric has spared. For one fabric and two needs that is at most three times the cost of one who
//! knows all traffic in advance, and nobody who does not can promise less (Borodin, Linial and Saks, "An optimal on-line
//! algorithm for metrical task system").

use std::collections::BTreeMap;

use crate::algorithm::{Lane, Need};

/// The decisions about some fabrics.
#[derive(Debug, Clone)]
pub struct Residency {
    fabrics: Vec<Place>,
    needs: BTreeMap<Need, Demand>,
    /// The cost of a load.
    price: u64,
}

#[derive(Debug, Clone, Default)]
struct Place {
    state: PlaceState,
    /// By how much each need has cost more than this fabric has spared, and not below zero.
    excess: BTreeMap<Need, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PlaceState {
    #[default]
    Empty,
    /// A lane is there.
    Taken(Lane),
    Loading(Lane),
    Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// SAs that have asked for it.
    sas: usize,
    /// The cost since a lane for it was last there.
    cost: u64,
}

impl Residency {
    /// Fabrics without a lane. `price` is the time of a load in nanoseconds.
    pub fn new(fabrics: usize, price: u64) -> Self {
        Self {
            fabrics: vec![Place::default(); fabrics],
            needs: BTreeMap::new(),
            price,
        }
    }

    /// Changes what a load costs, when one was measured.
    pub fn set_price(&mut self, price: u64) {
        self.price = price;
    }

    /// An SA is there, or is being negotiated.
    pub fn request(&mut self, need: Need) {
        self.needs.entry(need).or_default().sas += 1;
    }

    /// An SA is gone. Returns false if no SA had asked for it.
    pub fn release(&mut self, need: Need) -> bool {
        let Some(demand) = self.needs.get_mut(&need).filter(|demand| demand.sas > 0) else {
            return false;
        };
        demand.sas -= 1;
        if demand.sas == 0 {
            self.needs.remove(&need);
            for place in &mut self.fabrics {
                place.excess.remove(&need);
            }
        }
        true
    }

    /// The CPU has carried packets, for so many nanoseconds.
    pub fn cost(&mut self, need: Need, ns: u64) {
        let Some(demand) = self.needs.get_mut(&need) else {
            return;
        };
        demand.cost = demand.cost.saturating_add(ns);
        for place in &mut self.fabrics {
            let excess = place.excess.entry(need).or_default();
            *excess = excess.saturating_add(ns);
        }
    }

    /// A fabric has carried packets, which would have cost so many nanoseconds.
    pub fn spared(&mut self, fabric: usize, ns: u64) {
        if let Some(place) = self.fabrics.get_mut(fabric) {
            for excess in place.excess.values_mut() {
                *excess = excess.saturating_sub(ns);
            }
        }
    }

    /// The fabric that has a lane for the need.
    pub fn fabric_for(&self, need: Need) -> Option<usize> {
        let meets = |place: &Place| match place.state {
            PlaceState::Taken(lane) => lane.meets(need),
            _ => false,
        };
        self.fabrics.iter().position(meets)
    }

    /// Tells whether an SA that is there needs the lane of this fabric.
    fn is_needed(&self, lane: Lane) -> bool {
        let mut needs = self.needs.iter();
        needs.any(|(need, demand)| demand.sas > 0 && lane.meets(*need))
    }

    /// Chooses the next load, if there is one to begin: the fabric, and its lane. `lane_for` says which lane the library has
    /// for a need. The lane counts as loading from now on.
    pub fn next_load(&mut self, lane_for: impl Fn(Need) -> Option<Lane>) -> Option<(usize, Lane)> {
        let met = |need: Need| {
            self.fabrics.iter().any(|place| match place.state {
                PlaceState::Taken(lane) | PlaceState::Loading(lane) => lane.meets(need),
                PlaceState::Empty | PlaceState::Failed => false,
            })
        };
        let unmet = self.needs.iter().filter(|(need, _)| !met(**need));
        let mut unmet: Vec<_> = unmet
            .filter_map(|(need, demand)| Some((*demand, *need, lane_for(*need)?)))
            .collect();
        unmet
            .sort_by_key(|(demand, need, _)| (std::cmp::Reverse((demand.cost, demand.sas)), *need));
        let free = self.fabrics.iter().position(|place| match place.state {
            PlaceState::Empty => true,
            PlaceState::Taken(lane) => !self.is_needed(lane),
            PlaceState::Loading(_) | PlaceState::Failed => false,
        });
        if let (Some(fabric), Some((_, _, lane))) = (free, unmet.first()) {
            return Some((fabric, self.begin(fabric, *lane)));
        }
        let claims = unmet.iter().flat_map(|(_, need, lane)| {
            let places = self.fabrics.iter().enumerate();
            places.filter_map(move |(at, place)| {
                let excess = place.excess.get(need).copied().unwrap_or(0);
                let is_there = matches!(place.state, PlaceState::Taken(_));
                is_there.then_some((excess, at, *lane))
            })
        });
        let (excess, fabric, lane) = claims.max_by_key(|(excess, ..)| *excess)?;
        (excess >= self.price.saturating_mul(2)).then(|| (fabric, self.begin(fabric, lane)))
    }

    fn begin(&mut self, fabric: usize, lane: Lane) -> Lane {
        if let Some(place) = self.fabrics.get_mut(fabric) {
            place.state = PlaceState::Loading(lane);
            place.excess.clear();
        }
        for (need, demand) in &mut self.needs {
            if lane.meets(*need) {
                demand.cost = 0;
            }
        }
        lane
    }

    /// The lane that was loading is there.
    pub fn loaded(&mut self, fabric: usize) {
        if let Some(place) = self.fabrics.get_mut(fabric)
            && let PlaceState::Loading(lane) = place.state
        {
            place.state = PlaceState::Taken(lane);
            // Costs from the time of the load are not held against other fabrics.
            for place in &mut self.fabrics {
                place.excess.retain(|need, _| !lane.meets(*need));
            }
        }
    }

    /// The fabric has no lane: its configuration is not what it should be.
    pub fn emptied(&mut self, fabric: usize) {
        self.set(fabric, PlaceState::Empty);
    }

    /// The fabric is not to be used any more.
    pub fn failed(&mut self, fabric: usize) {
        self.set(fabric, PlaceState::Failed);
    }

    fn set(&mut self, fabric: usize, state: PlaceState) {
        if let Some(place) = self.fabrics.get_mut(fabric) {
            *place = Place {
                state,
                excess: BTreeMap::new(),
            };
        }
    }

    /// Needs of SAs that are there.
    pub fn needs(&self) -> impl Iterator<Item = (Need, usize)> {
        self.needs.iter().map(|(need, demand)| (*need, demand.sas))
    }
}
