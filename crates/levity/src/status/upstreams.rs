//! The state of upstreams and their backends at this moment.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::seconds;
use crate::upstream::Upstream;
use crate::upstream::backend::{Availability, Backend, LastFailure, SHARE_OF_WEIGHT};
use crate::upstream::names::Unresolved;
use crate::upstream::pool;
use levity_telemetry::escape::escaped;
use levity_telemetry::stats::Stats;
use levity_telemetry::stats::upstream::{BackendFigures, BackendState, UpstreamState};

/// Names and states of an upstream and its backends, for `/metrics`.
pub fn state(upstream: &Upstream) -> UpstreamState {
    let backends = upstream.backends();
    let backend = |backend: &Arc<Backend>| BackendState {
        id: backend.id,
        name: backend.name.clone(),
        is_in: backend.is_in(),
        is_well: backend.is_well(),
    };
    let unresolved = upstream.unresolved();
    UpstreamState {
        name: upstream.settings.name.clone(),
        backends: backends.iter().map(backend).collect(),
        unresolved: unresolved.iter().map(|one| one.name.clone()).collect(),
    }
}

/// An upstream and what is counted of it, as JSON.
pub fn upstream(upstream: &Upstream, stats: &Stats, now: Instant) -> Value {
    let settings = &upstream.settings;
    let (connections_max, queue_max) = pool::bounds_of_all(settings, stats.workers().len());
    let backends = upstream.backends();
    let figures = stats.upstream(&settings.name, backends.iter().map(|one| one.id));
    let one = |(backend, figures): (&Arc<Backend>, &BackendFigures)| {
        let share = backend.share(now, settings.slow_start);
        self::backend(backend, figures, connections_max, share, now)
    };
    let backends = backends.iter().zip(&figures.backends).map(one);
    let unresolved = upstream.unresolved();
    let unresolved = unresolved.iter();
    let unresolved = unresolved.map(|one| self::unresolved(one, connections_max));
    json!({
        "upstream": settings.name,
        "protocol": settings.protocol_label(),
        "balance": settings.balance.label(),
        "retries": figures.retries,
        "queue": figures.queue,
        "queue_max": queue_max,
        "queue_full": figures.queue_full,
        "queue_timeouts": figures.queue_timeouts,
        "backends": backends.chain(unresolved).collect::<Vec<_>>(),
    })
}

fn backend(
    backend: &Backend,
    figures: &BackendFigures,
    connections_max: usize,
    share: u32,
    now: Instant,
) -> Value {
    let full = backend.weight.saturating_mul(SHARE_OF_WEIGHT).max(1);
    let (state, left_alone) = match backend.state(now) {
        Availability::Up => ("up", None),
        Availability::Ejected(time) => ("left_alone", Some(seconds(time))),
        Availability::Trial => ("trial", None),
        Availability::Down => ("down", None),
    };
    let failure = backend.last_failure();
    let failure = failure.as_deref();
    json!({
        "backend": escaped(backend.name.as_bytes()),
        "state": state,
        "left_alone_seconds": left_alone,
        "reason": reason(backend, state == "up"),
        "last_failure": failure.map(|failure| escaped(failure.reason.as_bytes())),
        "last_failure_seconds": failure.map(|failure| age(failure, now)),
        "weight": backend.weight,
        "share_percent": u64::from(share) * 100 / u64::from(full),
        "backup": backend.backup,
        "drain": backend.drain,
        "in_use": figures.in_use,
        "idle": figures.idle,
        "connections_max": connections_max,
        "connections_made": figures.made,
        "connections_reused": figures.reused,
        "answered": figures.answered(),
        "failed": figures.failed(),
        "broken": figures.broken,
        "sent_bytes": figures.sent_bytes,
        "received_bytes": figures.received_bytes,
    })
}

/// A backend whose host name does not resolve.
fn unresolved(unresolved: &Unresolved, connections_max: usize) -> Value {
    let settings = &unresolved.settings;
    json!({
        "backend": escaped(unresolved.name.as_bytes()),
        "state": "unresolved",
        "left_alone_seconds": null,
        "reason": escaped(unresolved.reason.as_bytes()),
        "last_failure": null,
        "last_failure_seconds": null,
        "weight": settings.weight,
        "share_percent": 100,
        "backup": settings.backup,
        "drain": settings.drain,
        "in_use": 0,
        "idle": 0,
        "connections_max": connections_max,
        "connections_made": 0,
        "connections_reused": 0,
        "answered": 0,
        "failed": 0,
        "broken": 0,
        "sent_bytes": 0,
        "received_bytes": 0,
    })
}

/// Why it gets no requests. Part of the text comes from the system, or from the backend through a check.
fn reason(backend: &Backend, is_up: bool) -> Option<String> {
    let trouble = backend.trouble().filter(|_| !is_up);
    trouble.map(|reason| escaped(reason.as_bytes()))
}

fn age(failure: &LastFailure, now: Instant) -> f64 {
    seconds(now.saturating_duration_since(failure.at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::tests::settings;
    use levity_telemetry::stats::{Sources, WorkerStats};

    #[test]
    fn states_have_their_reasons() {
        let to = ["127.0.0.1:1", "127.0.0.1:2 weight=2", "127.0.0.1:3 backup"];
        let upstream = Arc::new(Upstream::new(settings(&to)).expect("upstream"));
        let (now, backends) = (Instant::now(), upstream.backends());
        (0..2).for_each(|_| upstream.failed(&backends[0], now, format_args!("refused\n")));
        backends[1].set_well(false, now);
        backends[1].set_trouble("it answered 500".to_owned());
        let stats = Stats::new(vec![Arc::new(WorkerStats::new(0))], Sources::default());
        let status = |now| super::upstream(&upstream, &stats, now);
        let one = |now, at: usize| status(now)["backends"][at].clone();

        let alone = one(now, 0);
        assert_eq!(
            (&alone["state"], &alone["reason"]),
            (&"left_alone".into(), &r"refused\x0a".into())
        );
        let fail_for = upstream.settings.fail_for;
        assert_eq!(alone["left_alone_seconds"], fail_for.as_secs_f64());
        let later = now + fail_for + Duration::from_secs(1);
        assert_eq!(one(later, 0)["state"], "trial");
        let down = one(now, 1);
        assert_eq!(
            (&down["state"], &down["reason"]),
            (&"down".into(), &"it answered 500".into())
        );
        let backup = one(now, 2);
        assert_eq!(
            (&backup["state"], &backup["backup"]),
            (&"up".into(), &true.into())
        );
        assert!(backup["reason"].is_null() && backup["last_failure"].is_null());

        upstream.succeeded(&backends[0], now);
        let back = one(now + Duration::from_millis(1), 0);
        assert!(back["reason"].is_null());
        assert_eq!(
            (&back["last_failure"], &back["last_failure_seconds"]),
            (&r"refused\x0a".into(), &0.001.into())
        );
        assert_eq!(
            (&back["state"], &back["share_percent"]),
            (&"up".into(), &100.into())
        );
        assert_eq!(
            (&status(now)["protocol"], &status(now)["balance"]),
            (&"http".into(), &"round-robin".into())
        );
    }
}
