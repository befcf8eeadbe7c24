//! Whether this machine has the authorities by which a configuration verifies others.

use std::path::Path;

use levity_config::tls::Certificates;
use levity_config::{Config, Site, Upstream};
use levity_disk::patiently;
use levity_tls::check_system_authorities;

/// Where machines have their authorities. Some of them have it elsewhere; it is what a call is waited for.
const FOLDER: &str = "/etc/ssl";

/// A remark if `config` needs authorities of this machine and there are none. Blocks.
pub fn note(config: &Config) -> Option<String> {
    let who: Vec<_> = [
        config
            .upstreams
            .iter()
            .any(needs)
            .then_some("no backend with `https://`"),
        has_acme(config).then_some("no authority of [acme]"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if who.is_empty() {
        return None;
    }
    let checked = patiently(FOLDER.as_ref(), |_: &Path| check_system_authorities());
    let reason = checked.ok()?.err()?;
    Some(format!("{reason}: {} can be verified", who.join(" and ")))
}

fn needs(upstream: &Upstream) -> bool {
    let tls = upstream.tls.as_ref();
    tls.is_some_and(|tls| tls.verify && tls.authorities.is_none())
}

fn has_acme(config: &Config) -> bool {
    let is_acme = |site: &Site| {
        let tls = site.tls.as_ref();
        tls.is_some_and(|tls| tls.certificates == Certificates::Acme)
    };
    let mut authorities = config.acme.authorities.iter();
    config.sites.iter().any(is_acme)
        && authorities.any(|one| one.roots.is_none() && one.directory.starts_with("https://"))
}

#[cfg(all(test, feature = "acme"))]
mod tests {
    use super::*;

    #[test]
    fn whoever_verifies_others_by_the_machine_needs_its_authorities() {
        let upstream = |keys: &str| {
            let text = format!(
                "[[upstream]]\nname = \"a\"\nto = [\"https://a.test\"]\n{keys}[[site]]\nproxy = \"a\"\n"
            );
            let config = levity_config::parse(&text).expect("a configuration");
            config.upstreams.iter().any(needs)
        };
        assert!(upstream(""));
        assert!(!upstream("tls = { verify = false }\n"));
        assert!(!upstream("tls = { authorities = \"/a.pem\" }\n"));
        let acme = |tables: &str| {
            let site = "[[listen]]\naddress = \"443\"\n[[site]]\nhosts = [\"a.example.org\"]\nrespond = {}\ntls";
            let text = format!("{tables}{site} = \"acme\"\n");
            has_acme(&levity_config::parse(&text).expect("a configuration"))
        };
        assert!(acme(""));
        let own = "[[acme.authority]]\ndirectory = \"https://ca.lan\"\n";
        assert!(acme(own));
        assert!(!acme(&format!("{own}roots = \"/a.pem\"\n")));
        assert!(!has_acme(&Config::default()));
    }
}
