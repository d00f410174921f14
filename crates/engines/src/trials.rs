//! Engines that are slow or fail on purpose, for tests and benches. No configuration asks for that.

use std::time::Duration;

/// The variable of the environment that has a list of trials, with commas between.
pub const VARIABLE: &str = "ESPLANADE_TRIAL";

/// The trials of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The pool holds each batch for so long: `pool-delay-ms=20`, 10,000 at most.
    pub pool_delay: Duration,
    /// The GPU also gets packets that leave lanes of a warp idle: `gpu-residue`.
    pub gpu_residue: bool,
    /// The GPU counts as failed after so many launches: `gpu-fail-after=100`.
    pub gpu_fail_after: Option<u64>,
}

impl Trials {
    /// Reads the list. The error says which entry is no trial.
    pub fn read(list: &str) -> Result<Self, String> {
        let mut trials = Self::default();
        for entry in list.split(',').filter(|entry| !entry.is_empty()) {
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name, value.parse().ok()),
                None => (entry, None),
            };
            match (name, value) {
                ("pool-delay-ms", Some(ms @ ..=10_000)) => {
                    trials.pool_delay = Duration::from_millis(ms);
                }
                ("gpu-residue", None) if !entry.contains('=') => trials.gpu_residue = true,
                ("gpu-fail-after", Some(launches @ 1..)) => trials.gpu_fail_after = Some(launches),
                _ => {
                    return Err(format!(
                        "{VARIABLE}: `{entry}` is no trial: unset the variable"
                    ));
                }
            }
        }
        Ok(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trial_is_read_and_nothing_else() {
        let read = Trials::read("pool-delay-ms=20,gpu-residue,gpu-fail-after=9").unwrap();
        let expected = Trials {
            pool_delay: Duration::from_millis(20),
            gpu_residue: true,
            gpu_fail_after: Some(9),
        };
        assert_eq!(read, expected);
        assert_eq!(Trials::read(""), Ok(Trials::default()));
        for list in [
            "pool-delay-ms",
            "pool-delay-ms=10001",
            "pool-delay-ms=-1",
            "gpu-residue=yes",
            "gpu-fail-after=0",
            "delay",
        ] {
            let error = Trials::read(list).unwrap_err();
            assert!(error.contains(&format!("`{list}`")), "{error}");
        }
    }
}
