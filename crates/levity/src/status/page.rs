//! The live page: one file that loads nothing but the figures.

use std::hash::{BuildHasher, Hasher, RandomState};

/// No name of a file is ever put into it here: its script writes them as text.
const PAGE: &str = include_str!("page.html");

/// Stands in the page where its scripts and styles prove that they are ours.
const NONCE: &str = "{nonce}";

/// The page, and the Content-Security-Policy that lets it do what it does and nothing else.
pub fn page() -> (String, String) {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    (PAGE.replace(NONCE, &nonce), policy)
}

/// New each time, and not to be guessed: the keys of the hashers are the kernel's random bytes.
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
