//! The figures of many latencies.

/// Returns the mean and the quantiles as members of a JSON object. The latencies are in seconds.
pub fn figures(latencies: &mut [f32]) -> String {
    latencies.sort_by(f32::total_cmp);
    let at = |share: f64| {
        let last = latencies.len().saturating_sub(1);
        let at = latencies.get((last as f64 * share) as usize);
        f64::from(at.copied().unwrap_or_default()) * 1e6
    };
    let sum = latencies
        .iter()
        .map(|seconds| f64::from(*seconds))
        .sum::<f64>();
    let mean = sum * 1e6 / latencies.len().max(1) as f64;
    format!(
        "\"latency_us\":{mean:.0},\"latency_us_p50\":{:.0},\"latency_us_p99\":{:.0},\"latency_us_p99_9\":{:.0}",
        at(0.5),
        at(0.99),
        at(0.999),
    )
}
