//! One-line descriptions of upstreams, for the output of start and reload.

use std::sync::Arc;

use super::Upstream;
use super::backend::Backend;

/// The maximum number of backends that a line lists; the others are counted.
const BACKENDS_MAX: usize = 16;

/// An upstream: its name, protocol, balancing and backends.
pub fn line(upstream: &Upstream) -> String {
    let settings = &upstream.settings;
    let backends = upstream.backends();
    let mut list: Vec<_> = backends.iter().take(BACKENDS_MAX).map(describe).collect();
    if backends.len() > BACKENDS_MAX {
        list.push(format!("{} more", backends.len() - BACKENDS_MAX));
    }
    if list.is_empty() {
        list.push("no address yet".to_owned());
    }
    let (protocol, balance) = (settings.protocol_label(), settings.balance.label());
    let name = &settings.name;
    format!(
        "upstream {name}: {protocol}, {balance}: {}",
        list.join(", ")
    )
}

fn describe(backend: &Arc<Backend>) -> String {
    let mut text = backend.name.clone();
    if backend.weight > 1 {
        text += &format!(" weight={}", backend.weight);
    }
    for (is_so, word) in [(backend.backup, " backup"), (backend.drain, " drain")] {
        text += if is_so { word } else { "" };
    }
    text
}

/// The effect of a reload: a line for each upstream that is new, changed or gone.
pub fn changes(now: &[Arc<Upstream>], before: &[Arc<Upstream>]) -> Vec<String> {
    fn named<'u>(all: &'u [Arc<Upstream>], name: &str) -> Option<&'u Arc<Upstream>> {
        all.iter().find(|one| one.settings.name == name)
    }
    let changed = |upstream: &Arc<Upstream>| match named(before, &upstream.settings.name) {
        None => Some(format!("{} (new)", line(upstream))),
        Some(old) if Arc::ptr_eq(old, upstream) => None,
        Some(_) => Some(format!("{} (changed)", line(upstream))),
    };
    let gone = before.iter().map(|old| &old.settings.name);
    let gone = gone.filter(|name| named(now, name).is_none());
    let gone = gone.map(|name| format!("upstream {name}: gone"));
    now.iter().filter_map(changed).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::settings;

    fn upstream(name: &str, to: &[&str]) -> Arc<Upstream> {
        let settings = levity_config::Upstream {
            name: name.to_owned(),
            ..settings(to)
        };
        Arc::new(Upstream::new(settings).expect("upstream"))
    }

    #[test]
    fn a_line_lists_the_settings() {
        let to = [
            "127.0.0.1:1 weight=3",
            "unix:/run/b backup",
            "[::1]:2 drain",
        ];
        assert_eq!(
            line(&upstream("app", &to)),
            "upstream app: http, round-robin: 127.0.0.1:1 weight=3, unix:/run/b backup, [::1]:2 drain"
        );
        let many: Vec<_> = (1..=20).map(|port| format!("127.0.0.1:{port}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(line(&upstream("app", &many)).ends_with(":16, 4 more"));
    }

    #[test]
    fn a_reload_lists_changed_upstreams() {
        let (same, old) = (
            upstream("same", &["127.0.0.1:1"]),
            upstream("old", &["127.0.0.1:1"]),
        );
        let before = [same.clone(), upstream("b", &["127.0.0.1:1"]), old];
        let now = [
            same,
            upstream("b", &["127.0.0.1:2"]),
            upstream("c", &["127.0.0.1:3"]),
        ];
        assert_eq!(
            changes(&now, &before),
            [
                "upstream b: http, round-robin: 127.0.0.1:2 (changed)",
                "upstream c: http, round-robin: 127.0.0.1:3 (new)",
                "upstream old: gone",
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
