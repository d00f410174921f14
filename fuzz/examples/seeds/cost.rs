//! Seeds for `cost`: each shape, short.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::cost::SHAPES;

/// Long enough for 50 attributes of a name.
const LEN: usize = 700;

pub fn write(corpus: &Path) -> Result<()> {
    let seeds = SHAPES.iter().map(|shape| (shape.name, shape.input(LEN)));
    super::others::put(corpus, "cost", seeds.collect())
}
