//! From the host of a request to the number of its site.

use std::collections::HashMap;

use levity_config::Config;
use levity_wire::http1;

/// The hosts of all sites.
pub struct Hosts {
    by_name: HashMap<String, usize>,
    /// Suffixes with their leading dot.
    by_suffix: Vec<(String, usize)>,
    default_site: Option<usize>,
}

impl Hosts {
    /// Those of `config`.
    pub fn new(config: &Config) -> Self {
        let mut hosts = Self {
            by_name: HashMap::new(),
            by_suffix: Vec::new(),
            default_site: config.default_site(),
        };
        for (number, site) in config.sites.iter().enumerate() {
            for host in &site.hosts {
                match host.strip_prefix('*') {
                    Some(suffix) => hosts.by_suffix.push((suffix.to_owned(), number)),
                    None => {
                        hosts.by_name.insert(host.clone(), number);
                    }
                }
            }
        }
        hosts
    }

    /// The number of the site for `host`, as a request names it; `None` when there is none.
    pub fn site_of(&self, host: &[u8]) -> Option<usize> {
        // Host is optional in HTTP/1.0 (RFC 9112, 3.2 and 3.3).
        if host.is_empty() || (self.by_name.is_empty() && self.by_suffix.is_empty()) {
            return self.default_site;
        }
        let host = http1::host_name(host).ok()?;
        let exact = || self.by_name.get(host.as_ref()).copied();
        let suffix = || {
            let ends = |(suffix, _): &&(String, usize)| is_beneath(&host, suffix);
            let found = self.by_suffix.iter().filter(ends);
            found
                .max_by_key(|(suffix, _)| suffix.len())
                .map(|&(_, site)| site)
        };
        exact().or_else(suffix).or(self.default_site)
    }
}

/// Whether `host` is a name below `suffix`. Other characters that a host may contain are excluded:
/// `a,b.example` would be two hosts in X-Forwarded-Host, the first of which is arbitrary.
fn is_beneath(host: &str, suffix: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    host.strip_suffix(suffix)
        .is_some_and(|name| name.bytes().all(is_plain))
}
