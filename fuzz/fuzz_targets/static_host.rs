//! A line of `_redirects` and a path: a rule matches or not, and its groups lie within the path.
#![no_main]

use levity_config::Location;
use levity_config::static_host::redirect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (line, path) = text.split_once('\n').unwrap_or((text, "/"));
    let Ok(Some(route)) = redirect(line, &Location::default()) else {
        return;
    };
    let pattern = &route.matcher().path;
    let groups = pattern.captures(path.as_bytes());
    assert!(groups.is_empty() || pattern.matches(path.as_bytes()));
    assert!(groups.iter().all(|group| path.as_bytes().get(group.clone()).is_some()));
});
