//! Finds overlapping buffers of a call. They must be refused, because overlapping references are undefined behaviour
//! in Rust.

/// The buffers that a call writes: begin and end of each.
pub(crate) struct Outputs(Vec<(usize, usize)>);

impl Outputs {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, bytes: *const u8, len: usize) {
        if len > 0 {
            self.0.push((bytes.addr(), bytes.addr() + len));
        }
    }

    /// Whether no two buffers overlap. Sorts the buffers, which is cheap if they are in order already.
    pub(crate) fn are_apart(&mut self) -> bool {
        self.0.sort();
        self.0.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    }

    /// Whether these bytes overlap no buffer. [`Outputs::are_apart`] must have been called before, and must have been
    /// true.
    pub(crate) fn miss(&self, bytes: *const u8, len: usize) -> bool {
        let (begin, end) = (bytes.addr(), bytes.addr() + len);
        let next = self.0.partition_point(|output| output.1 <= begin);
        len == 0 || self.0.get(next).is_none_or(|output| end <= output.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found() {
        let at = |begin: usize| std::ptr::without_provenance::<u8>(begin);
        let mut outputs = Outputs::new();
        for (begin, len) in [(300, 10), (100, 50), (150, 50), (500, 0)] {
            outputs.add(at(begin), len);
        }
        assert!(outputs.are_apart());
        for (begin, len, misses) in [
            (90, 10, true),
            (90, 11, false),
            (199, 1, false),
            (200, 100, true),
            (200, 101, false),
            (310, 1000, true),
            (120, 0, true),
            (0, 1000, false),
            (500, 1, true),
        ] {
            assert_eq!(outputs.miss(at(begin), len), misses, "{begin} {len}");
        }
        outputs.add(at(149), 1);
        assert!(!outputs.are_apart());
    }
}
