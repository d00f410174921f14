//! The limit of the regions that no input reaches.
//!
//! A file has the number that was measured. Other builds of the same code make a few regions more or less, and hash
//! tables have random seeds: such noise stays within the margin, and the loss of a target or of its corpus does not.

/// The margin is this part of all regions.
const MARGIN_PART: usize = 100;

/// How a count compares with the number that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    AsMeasured,
    /// More regions than the margin allows are not reached. The number is the most that is allowed.
    Worse(usize),
    /// The measured number is too high by more than the margin.
    Better,
}

/// The number in the line `uncovered = NUMBER`.
pub fn measured(text: &str) -> Option<usize> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("uncovered = ")?.parse().ok())
}

pub fn compare(uncovered: usize, measured: usize, regions: usize) -> Verdict {
    let margin = regions / MARGIN_PART;
    match uncovered {
        more if more > measured + margin => Verdict::Worse(measured + margin),
        less if less + margin < measured => Verdict::Better,
        _ => Verdict::AsMeasured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_within_the_margin_and_a_loss_is_not() {
        let number = measured("# about\ncompiler = rustc 1.95.0\nuncovered = 400\n").unwrap();
        for noise in [350, 400, 450] {
            assert_eq!(compare(noise, number, 5000), Verdict::AsMeasured);
        }
        assert_eq!(compare(451, number, 5000), Verdict::Worse(450));
        assert_eq!(compare(349, number, 5000), Verdict::Better);
        assert_eq!(measured("compiler = rustc 1.95.0\n"), None);
    }

    /// A file without a number that can be read would allow everything.
    #[test]
    fn the_file_has_a_number() {
        assert!(measured(include_str!("../coverage.txt")).is_some());
    }
}
