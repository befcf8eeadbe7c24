//! The live page: one file that loads only the figures.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Contains no names of files: its script adds them as text.
const PAGE: &str = include_str!("page.html");

/// The placeholder of the nonce that allows its scripts and styles.
const NONCE: &str = "{nonce}";

/// The page, and a Content-Security-Policy that allows its own script and style only.
pub fn page() -> (String, String) {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    (PAGE.replace(NONCE, &nonce), policy)
}

/// A random value per page: the keys of the hashers are the kernel's random bytes.
fn nonce() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_nothing_from_elsewhere() {
        let (page, _) = page();
        for part in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(",
            "innerHTML",
            "eval(",
        ] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn the_policy_allows_itself_only() {
        let ((one, policy), (_, other)) = (page(), page());
        assert_ne!(policy, other);
        assert!(!one.contains(NONCE));
        let nonce = policy
            .split("nonce-")
            .nth(1)
            .and_then(|rest| rest.split('\'').next());
        let attribute = format!("nonce=\"{}\"", nonce.expect("a nonce"));
        assert_eq!(
            one.matches("<script").count(),
            one.matches(&format!("<script {attribute}>")).count()
        );
        assert_eq!(
            one.matches("<style").count(),
            one.matches(&format!("<style {attribute}>")).count()
        );
        assert!(!one.contains("style=") && !one.contains("onclick"));
    }
}
