//! The state of rate limits at this moment.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use levity_telemetry::stats::{LimitFigures, LimitTableFigures};

/// What requests have met under one name.
#[derive(Default)]
struct Counts {
    allowed: u64,
    limited: u64,
    would_limit: u64,
}

/// The limits of each name, in the order of the names: a limit of a site and one of its routes may share one.
pub fn limits(figures: &LimitFigures) -> Vec<Value> {
    let mut names = BTreeMap::<&str, Counts>::new();
    for figure in &figures.limits {
        let counts = names.entry(&figure.limit).or_default();
        counts.allowed += figure.allowed;
        match figure.action {
            "reported" => counts.would_limit += figure.count,
            _ => counts.limited += figure.count,
        }
    }
    let limit = |(name, counts): (&str, Counts)| {
        json!({
            "limit": name,
            "allowed": counts.allowed,
            "limited": counts.limited,
            "would_limit": counts.would_limit,
        })
    };
    names.into_iter().map(limit).collect()
}

/// The keys under which requests count.
pub fn table(table: LimitTableFigures) -> Value {
    json!({
        "keys": table.keys,
        "keys_max": table.keys_max,
        "evictions": table.evictions,
    })
}

#[cfg(test)]
mod tests {
    use levity_telemetry::stats::LimitFigure;

    use super::*;

    #[test]
    fn limits_of_one_name_are_one() {
        let figure = |limit: &str, action, allowed, count| LimitFigure {
            limit: limit.to_owned(),
            action,
            allowed,
            count,
        };
        let figures = LimitFigures {
            limits: vec![
                figure("b", "refused", 5, 1),
                figure("a", "slowed", 7, 2),
                figure("b", "reported", 6, 3),
                figure("b", "refused", 1, 4),
            ],
            table: None,
        };
        let limit = |name, allowed, limited, would_limit| json!({ "limit": name, "allowed": allowed, "limited": limited, "would_limit": would_limit });
        let expected = [limit("a", 7, 2, 0), limit("b", 12, 5, 3)];
        assert_eq!(limits(&figures), expected);
    }
}
