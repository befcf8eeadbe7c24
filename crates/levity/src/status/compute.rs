//! The pool of threads that compute.

use std::time::Duration;

use levity_compute::Stats;
use levity_telemetry::stats::ComputeFigures;
use serde_json::{Value, json};

use super::seconds;

/// The figures `now`, and what has changed since `before`, so long ago.
pub fn compute(now: &ComputeFigures, before: Option<(Duration, &ComputeFigures)>) -> Value {
    let before_of = |of: fn(&ComputeFigures) -> &Stats| {
        before.map(|(elapsed, before)| (elapsed, of(before).run_time.sum))
    };
    json!({
        "encoder_bytes": now.encoder_bytes,
        "decoder_bytes": now.decoder_bytes,
        "coder_bytes_max": now.coder_bytes_max,
        "response": class(&now.response, before_of(|figures| &figures.response)),
        "idle": class(&now.idle, before_of(|figures| &figures.idle)),
    })
}

/// The counters of one class. `before` is its time in jobs so long ago.
fn class(now: &Stats, before: Option<(Duration, Duration)>) -> Value {
    let busy_percent = before.and_then(|(elapsed, before)| {
        let possible = elapsed.as_secs_f64() * now.threads as f64;
        let ran = now.run_time.sum.saturating_sub(before).as_secs_f64();
        // A job counts when it ends, so that a long one may have begun before.
        (possible > 0.0).then(|| (ran / possible * 100.0).round().min(100.0) as u8)
    });
    json!({
        "threads": now.threads,
        "queued": now.queued,
        "jobs": now.run_time.count(),
        "canceled": now.canceled,
        "refused": now.full,
        "queue_seconds": seconds(now.queue_time.sum),
        "run_seconds": seconds(now.run_time.sum),
        "busy_percent": busy_percent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn figures(response: Duration) -> ComputeFigures {
        let mut figures = ComputeFigures::default();
        figures.response.threads = 2;
        figures.response.run_time.sum = response;
        figures
    }

    #[test]
    fn threads_are_busy_for_a_share_of_the_time() {
        let busy = |before: Option<(Duration, &ComputeFigures)>, ran| {
            let json = compute(&figures(ran), before);
            assert!(json["idle"]["busy_percent"].is_null(), "no threads: {json}");
            json["response"]["busy_percent"].clone()
        };
        let before = figures(5 * SECOND);
        assert!(busy(None, 5 * SECOND).is_null());
        assert!(busy(Some((Duration::ZERO, &before)), 6 * SECOND).is_null());
        for (ran, percent) in [(5, 0), (10, 25), (25, 100), (90, 100), (1, 0)] {
            let since = Some((10 * SECOND, &before));
            assert_eq!(busy(since, ran * SECOND), percent, "{ran}");
        }
    }
}
