//! Searches for small networks of three-input gates for the S-boxes of DES (FIPS 46-3), for the bitsliced kernel.
//!
//! `des_networks SECONDS [BOX [SEED]]` prints the smallest network that it finds for each box, or for one, as Rust
//! code. A gate is any function of three earlier values, which `vpternlogq` computes in one instruction.
//! `cpu/des/networks.rs` holds the best of several runs.
//!
//! ```text
//! start: each output by selecting on one input after the other, until a gate on three existing values will do
//! repeat: pick a gate v
//!         care := the inputs for which some output changes when v does
//!         among the triples of values that do not depend on v and tell v's ones from its zeros where it is cared for,
//!         take one at random: v := gate(a, b, c), open entries at random, and drop the gates that nothing uses
//!         sometimes v := gate(x, y, gate(a, b, c)) instead, up to SLACK gates above the best so far
//! ```
//!
//! The walk along networks of equal size does the work. Most steps change only which values are available.

use std::time::{Duration, Instant};

/// The S-boxes, row by row as in the standard.
#[rustfmt::skip]
const BOXES: [[u8; 64]; 8] = [
    [14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
     4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13],
    [15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
     0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9],
    [10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
     13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12],
    [7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
     10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14],
    [2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
     4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3],
    [12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
     9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13],
    [4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
     1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12],
    [13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
     7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11],
];

/// Number of inputs. They are values 0 to 5; value 0 is the most significant of the box's six bits.
const INPUTS: usize = 6;
/// The most values in a network, because a set of values is a bit mask.
const VALUES: usize = 64;
/// Number of gates by which the walk may exceed the best network.
const SLACK: usize = 6;
/// Number of steps between climbs.
const CLIMB: u64 = 20;
/// Number of steps after which the walk returns to the best network.
const RETURN: u64 = 400_000;

/// Truth tables of the four outputs, the most significant first.
fn outputs(table: &[u8; 64]) -> [u64; 4] {
    std::array::from_fn(|bit| {
        (0..64usize).fold(0, |truth, x| {
            let row = (x >> 4 & 2) | (x & 1);
            let value = table[row * 16 + (x >> 1 & 15)];
            truth | u64::from(value >> (3 - bit) & 1) << x
        })
    })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// A function that is fixed where `ones | zeros` is set, and open elsewhere.
#[derive(Clone, Copy)]
struct Goal {
    ones: u64,
    zeros: u64,
}

impl Goal {
    fn within(self, cell: u64) -> Self {
        Self {
            ones: self.ones & cell,
            zeros: self.zeros & cell,
        }
    }

    fn constant(self) -> bool {
        self.ones == 0 || self.zeros == 0
    }

    /// Whether the value `t` distinguishes the ones from the zeros in every part.
    fn told(parts: &[Self], t: u64) -> bool {
        parts
            .iter()
            .all(|part| part.within(t).constant() && part.within(!t).constant())
    }
}

fn quarters(goal: Goal, x: u64, y: u64) -> [Goal; 4] {
    [x & y, x & !y, !x & y, !x & !y].map(|cell| goal.within(cell))
}

#[derive(Clone, Copy, Default)]
struct Gate {
    inputs: [u8; 3],
    table: u8,
}

impl Gate {
    /// Stands for an existing value; this gate is not built.
    fn same(v: usize) -> Self {
        Self {
            inputs: [v as u8; 3],
            table: 0xf0,
        }
    }

    fn value(self, truth: &[u64; VALUES]) -> u64 {
        let [a, b, c] = self.inputs.map(|i| truth[usize::from(i)]);
        let table = |class: u32| 0u64.wrapping_sub(u64::from(self.table >> class & 1));
        let pick = |t: u64, one: u64, zero: u64| zero ^ (t & (one ^ zero));
        let pair = |class: u32| pick(c, table(class + 1), table(class));
        pick(a, pick(b, pair(6), pair(4)), pick(b, pair(2), pair(0)))
    }
}

/// Values in an order in which gates use only earlier values.
#[derive(Clone)]
struct Network {
    truth: [u64; VALUES],
    gates: [Gate; VALUES],
    len: usize,
    outputs: [u8; 4],
    /// For each position, the values at that position.
    columns: [u64; 64],
}

impl Network {
    fn new() -> Self {
        let mut network = Self {
            truth: [0; VALUES],
            gates: [Gate::default(); VALUES],
            len: INPUTS,
            outputs: [0; 4],
            columns: [0; 64],
        };
        for input in 0..INPUTS {
            network.truth[input] = (0..64).fold(0, |t, x| t | (x >> (5 - input) & 1) << x);
        }
        network.transpose();
        network
    }

    fn transpose(&mut self) {
        self.columns = [0; 64];
        for (at, truth) in self.truth[..self.len].iter().enumerate() {
            for (x, column) in self.columns.iter_mut().enumerate() {
                *column |= (truth >> x & 1) << at;
            }
        }
    }

    fn cost(&self) -> usize {
        self.len - INPUTS
    }

    fn push(&mut self, gate: Gate) -> usize {
        let at = self.len;
        self.gates[at] = gate;
        self.truth[at] = gate.value(&self.truth);
        for (x, column) in self.columns.iter_mut().enumerate() {
            *column |= (self.truth[at] >> x & 1) << at;
        }
        self.len += 1;
        at
    }

    /// Returns the values that differ between a one and a zero of a goal that is not constant.
    fn telling(&self, goal: Goal) -> u64 {
        self.columns[goal.ones.trailing_zeros() as usize]
            ^ self.columns[goal.zeros.trailing_zeros() as usize]
    }

    /// Returns the gate of three values that meets the goal. Entries that do not matter are random.
    fn gate(&self, inputs: [usize; 3], goal: Goal, random: &mut Random) -> Gate {
        let [a, b, c] = inputs.map(|i| self.truth[i]);
        let noise = random.next();
        let mut table = 0;
        for class in 0..8 {
            let pick = |t: u64, bit: u32| if class >> bit & 1 == 1 { t } else { !t };
            let part = goal.within(pick(a, 2) & pick(b, 1) & pick(c, 0));
            if part.ones != 0 || (part.zeros == 0 && noise >> class & 1 == 1) {
                table |= 1 << class;
            }
        }
        Gate {
            inputs: inputs.map(|i| i as u8),
            table,
        }
    }

    /// Returns a random triple among `allowed` that distinguishes the goal's ones from its zeros.
    fn triple(&self, goal: Goal, allowed: u64, random: &mut Random) -> Option<[usize; 3]> {
        let mut order = [0; VALUES];
        let mut count = 0;
        for at in (0..self.len).filter(|at| allowed >> at & 1 == 1) {
            order[count] = at;
            count += 1;
        }
        let order = &mut order[..count];
        random.shuffle(order);
        for (at, &a) in order.iter().enumerate() {
            for &b in &order[..at] {
                let parts = quarters(goal, self.truth[a], self.truth[b]);
                let mut candidates = allowed;
                for part in parts.iter().filter(|part| !part.constant()) {
                    candidates &= self.telling(*part);
                }
                while candidates != 0 {
                    let c = candidates.trailing_zeros() as usize;
                    candidates &= candidates - 1;
                    if Goal::told(&parts, self.truth[c]) {
                        return Some([a, b, c]);
                    }
                }
            }
        }
        None
    }

    /// Returns the inputs for which some output changes when `v` does, and the values that depend on `v`.
    fn care(&self, v: usize) -> (u64, u64) {
        let mut truth = self.truth;
        truth[v] = !truth[v];
        let mut dependent = 1u64 << v;
        for at in v + 1..self.len {
            let gate = self.gates[at];
            if gate.inputs.iter().any(|&i| dependent >> i & 1 == 1) {
                dependent |= 1 << at;
                truth[at] = gate.value(&truth);
            }
        }
        let care = self.outputs.iter().fold(0, |care, &output| {
            care | (truth[usize::from(output)] ^ self.truth[usize::from(output)])
        });
        (care, dependent)
    }

    fn users(&self, v: usize) -> usize {
        let gates = self.gates[INPUTS..self.len]
            .iter()
            .flat_map(|gate| &gate.inputs);
        gates
            .chain(&self.outputs)
            .filter(|&&used| usize::from(used) == v)
            .count()
    }

    /// Returns the network with `gates` in place of value `v`, without the gates that nothing uses. An input of `len`
    /// means the first of two gates.
    fn replaced(&self, v: usize, gates: &[Gate]) -> Self {
        let mut all = self.gates;
        if let [first, _] = gates {
            all[self.len] = *first;
        }
        all[v] = gates[gates.len() - 1];
        let mut new = Self {
            len: INPUTS,
            ..self.clone()
        };
        let mut place = [u8::MAX; VALUES];
        for (input, place) in place.iter_mut().enumerate().take(INPUTS) {
            *place = input as u8;
        }
        for (output, old) in new.outputs.iter_mut().zip(self.outputs) {
            *output = visit(&all, old, &mut place, &mut new.gates, &mut new.len);
        }
        for at in INPUTS..new.len {
            new.truth[at] = new.gates[at].value(&new.truth);
        }
        new.transpose();
        new
    }
}

/// Places a value after all values that it uses, and returns its new number.
fn visit(
    old: &[Gate; VALUES],
    v: u8,
    place: &mut [u8; VALUES],
    new: &mut [Gate; VALUES],
    len: &mut usize,
) -> u8 {
    let at = usize::from(v);
    if place[at] == u8::MAX {
        let gate = old[at];
        if gate.table == 0xf0 {
            return visit(old, gate.inputs[0], place, new, len);
        }
        let inputs = gate.inputs.map(|input| visit(old, input, place, new, len));
        new[*len] = Gate { inputs, ..gate };
        place[at] = *len as u8;
        *len += 1;
    }
    place[at]
}

struct Search {
    random: Random,
    targets: [u64; 4],
}

impl Search {
    /// Builds the first network by selecting on one input after the other.
    fn start(&mut self) -> Network {
        let mut network = Network::new();
        let mut order: Vec<usize> = (0..INPUTS).collect();
        self.random.shuffle(&mut order);
        for (output, target) in self.targets.into_iter().enumerate() {
            let goal = Goal {
                ones: target,
                zeros: !target,
            };
            network.outputs[output] = self.select(&mut network, goal, &order) as u8;
        }
        network
    }

    fn select(&mut self, network: &mut Network, goal: Goal, order: &[usize]) -> usize {
        let allowed = (1 << network.len) - 1;
        if let Some(triple) = network.triple(goal, allowed, &mut self.random) {
            return network.push(network.gate(triple, goal, &mut self.random));
        }
        let [x, order @ ..] = order else {
            unreachable!("three inputs are left to a gate")
        };
        let t = network.truth[*x];
        let f = self.select(network, goal.within(t), order);
        let g = self.select(network, goal.within(!t), order);
        network.push(network.gate([*x, f, g], goal, &mut self.random))
    }

    /// Makes one gate anew, if there is another way. With `climb`, two gates replace it.
    fn step(&mut self, network: &Network, climb: bool) -> Option<Network> {
        let random = &mut self.random;
        let v = INPUTS + random.below(network.cost());
        let (care, dependent) = network.care(v);
        let allowed = ((1u64 << network.len) - 1) & !dependent;
        let goal = Goal {
            ones: care & network.truth[v],
            zeros: care & !network.truth[v],
        };
        if !climb {
            if let Some(same) = (0..network.len).find(|&at| {
                let t = network.truth[at];
                allowed >> at & 1 == 1 && goal.ones & !t == 0 && goal.zeros & t == 0
            }) {
                return Some(network.replaced(v, &[Gate::same(same)]));
            }
            // If the new gate leaves out an input that nothing else uses, a gate is saved.
            let input = usize::from(network.gates[v].inputs[random.below(3)]);
            let spared = match network.users(input) {
                1 if input >= INPUTS => allowed & !(1 << input),
                _ => allowed,
            };
            let triple = network
                .triple(goal, spared, random)
                .or_else(|| network.triple(goal, allowed, random))?;
            let gate = network.gate(triple, goal, random);
            return Some(network.replaced(v, &[gate]));
        }
        let some = |random: &mut Random| loop {
            let at = random.below(network.len);
            if allowed >> at & 1 == 1 {
                break at;
            }
        };
        let (x, y) = (some(random), some(random));
        let [one, flip @ ..] = quarters(goal, network.truth[x], network.truth[y]);
        // Where x and y decide, the inner gate is open. Elsewhere it is the goal or the goal's complement.
        let open = |part: &Goal| !part.constant();
        let inner = flip.iter().chain([&one]).filter(|p| open(p)).fold(
            Goal { ones: 0, zeros: 0 },
            |sum, part| {
                let (ones, zeros) = match random.below(2) {
                    0 => (part.ones, part.zeros),
                    _ => (part.zeros, part.ones),
                };
                Goal {
                    ones: sum.ones | ones,
                    zeros: sum.zeros | zeros,
                }
            },
        );
        let triple = network.triple(inner, allowed, random)?;
        let first = network.gate(triple, inner, random);
        let mut with = network.clone();
        let g = with.push(first);
        let second = with.gate([x, y, g], goal, random);
        Some(network.replaced(v, &[first, second]))
    }

    fn run(&mut self, seconds: u64, report: impl Fn(&Network)) -> Network {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut best = self.start();
        let mut network = best.clone();
        let mut since = 0;
        while since % 64 != 0 || Instant::now() < end {
            since += 1;
            let climb = since % CLIMB == 0 && network.cost() < best.cost() + SLACK;
            let Some(next) = self.step(&network, climb) else {
                continue;
            };
            if next.cost() <= network.cost() || climb {
                network = next;
            }
            if network.cost() <= best.cost() {
                if network.cost() < best.cost() {
                    report(&network);
                    since = 0;
                }
                best = network.clone();
            }
            if since > 0 && since % RETURN == 0 {
                network = best.clone();
            }
        }
        best
    }
}

/// Runs the gates over all inputs again, and prints them.
fn print(number: usize, network: &Network) {
    let name = number + 1;
    println!("/// {} gates.", network.cost());
    println!(
        "#[inline(always)]\npub(super) fn s{name}<W: Word>([v0, v1, v2, v3, v4, v5]: [W; 6]) -> [W; 4] {{"
    );
    let mut truth = Network::new().truth;
    for at in INPUTS..network.len {
        let gate = network.gates[at];
        truth[at] = gate.value(&truth);
        let [a, b, c] = gate.inputs;
        println!(
            "    let v{at} = W::gate::<{:#04x}>(v{a}, v{b}, v{c});",
            gate.table
        );
    }
    for (output, target) in network.outputs.iter().zip(outputs(&BOXES[number])) {
        assert_eq!(truth[usize::from(*output)], target);
    }
    let [a, b, c, d] = network.outputs;
    println!("    [v{a}, v{b}, v{c}, v{d}]\n}}\n");
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<u64>().ok());
    let seconds = arguments.next().unwrap_or(10);
    let only = arguments.next();
    let seed = arguments.next().unwrap_or(1);
    for (number, table) in BOXES.iter().enumerate() {
        if only.is_some_and(|only| only != number as u64 + 1) {
            continue;
        }
        let mut search = Search {
            random: Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(2 * seed + 1)),
            targets: outputs(table),
        };
        let start = Instant::now();
        let network = search.run(seconds, |network| {
            let after = start.elapsed().as_secs_f64();
            eprintln!(
                "S{}: {} gates after {after:.1} s",
                number + 1,
                network.cost()
            );
        });
        print(number, &network);
    }
}
