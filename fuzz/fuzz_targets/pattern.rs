//! The path of a route, as a pattern or as a regular expression, and a requested path.
#![no_main]

use levity_config::Pattern;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (pattern, path) = text.split_once('\n').unwrap_or((text, "/"));
    for parsed in [Pattern::parse(pattern), Pattern::regex(pattern)] {
        let Ok(parsed) = parsed else { continue };
        let matches = parsed.matches(path.as_bytes());
        let groups = parsed.captures(path.as_bytes());
        assert!(groups.is_empty() || matches);
        assert!(parsed.covers(&parsed));
        // What it matches begins with its start.
        assert!(!matches || path.starts_with(parsed.start()));
    }
});
