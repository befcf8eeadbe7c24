//! When a certificate is renewed, and when an attempt is made again.

use std::time::{Duration, SystemTime};

use instant_acme::{Account, CertificateIdentifier, Error};
use levity_tls::Certificate;

use crate::clock::some_of;

/// The first pause after an attempt that has failed. Each one more makes it three times as long: an authority that counts
/// five failures in an hour (Let's Encrypt) does not lock the name out.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How often the authority is asked at most, and at least, for a time to renew.
const ASK_PAUSE: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));

fn life(certificate: &Certificate) -> Duration {
    let life = certificate.not_after.duration_since(certificate.not_before);
    life.unwrap_or_default()
}

/// The time without advice: after two thirds of the life, or a little sooner. Of one that is older already, such as by a clock that is
/// ahead, after a third of the rest.
pub fn usual(certificate: &Certificate) -> SystemTime {
    let (life, now) = (life(certificate), SystemTime::now());
    let rest = certificate
        .not_after
        .duration_since(now)
        .unwrap_or_default();
    let wanted = certificate.not_after - life / 3 - some_of(life / 20);
    wanted.max(now + rest / 3)
}

/// A time within the window that an authority suggests. It may be in the past: then something is wrong with the certificate.
/// Never is it so late that no attempt may fail, and never at once after the certificate was issued.
fn within(certificate: &Certificate, start: SystemTime, end: SystemTime) -> SystemTime {
    let width = end.duration_since(start).unwrap_or_default();
    let chosen = start + some_of(width);
    let life = life(certificate);
    let latest = certificate.not_after - life / 6;
    chosen.min(latest).max(certificate.not_before + life / 100)
}

/// When to renew and when to ask again, as the authority says (RFC 9773); `None` if it does not.
///
/// # Errors
/// When it cannot be asked.
pub async fn advice(
    account: &Account,
    certificate: &Certificate,
) -> Result<Option<(SystemTime, SystemTime)>, Error> {
    let Some(id) = id(certificate) else {
        return Ok(None);
    };
    match account.renewal_info(&id).await {
        Ok((info, pause)) => {
            let window = info.suggested_window;
            let renew_at = within(certificate, window.start.into(), window.end.into());
            let again = SystemTime::now() + pause.clamp(ASK_PAUSE.0, ASK_PAUSE.1);
            Ok(Some((renew_at, again)))
        }
        Err(Error::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// When to ask again after the authority could not be asked.
pub fn ask_later() -> SystemTime {
    SystemTime::now() + ASK_PAUSE.1 / 4 + some_of(ASK_PAUSE.1 / 4)
}

/// How the authority knows a certificate (RFC 9773, 4.1).
pub fn id(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let id = CertificateIdentifier::try_from(certificate.der());
    id.ok().map(CertificateIdentifier::into_owned)
}

/// The pause after so many failures. A certificate that lives for minutes only, as of an authority of one's own, cannot wait
/// for one of a minute.
pub fn pause(failures: u32, certificate: Option<&Certificate>) -> Duration {
    let first = certificate.map_or(FIRST_PAUSE, |one| (life(one) / 60).min(FIRST_PAUSE));
    let pause = first.saturating_mul(3_u32.saturating_pow(failures.saturating_sub(1)));
    // One that ends soon is tried for more often.
    let rest = certificate.and_then(|one| one.not_after.duration_since(SystemTime::now()).ok());
    let longest = rest.map_or(PAUSE_MAX, |rest| (rest / 4).clamp(first, PAUSE_MAX));
    let pause = pause.min(longest);
    pause + some_of(pause / 10)
}
