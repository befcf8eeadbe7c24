//! Accounts at authorities.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::Deserialize;

use crate::failure::Failure;
use crate::http::Client;
use crate::requests::Requests;
use crate::run::Run;
use crate::settings::{Authority, ExternalAccount};

/// The lock of the account at an authority.
const ACCOUNT_LOCK: &str = "account";

/// The part of the file of an account that tells it from others.
#[derive(Deserialize)]
struct Identity {
    /// The URL of the account.
    id: String,
}

impl Run {
    /// The account at `authority`, which is made when there is none.
    ///
    /// # Errors
    /// When the authority cannot be asked, or a file cannot be used.
    pub async fn account(&self, authority: &Authority) -> Result<Account, Failure> {
        let access = self.access(authority);
        let mut account = access.account.lock().await;
        if let Some(account) = account.as_ref() {
            return Ok(account.clone());
        }
        let client = Client::new(authority.roots.as_ref()).map_err(Failure::new)?;
        let requests = Requests {
            client,
            reach: access.reach.clone(),
        };
        let builder = Account::builder_with_http(Box::new(requests));
        let loaded = self.load(authority, builder).await?;
        Ok(account.insert(loaded).clone())
    }

    /// Forgets the account `id`, which the authority does not know any more, unless there is another one already. Blocks.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub async fn forget_account(&self, authority: &Authority, id: &str) -> Result<(), Failure> {
        let access = self.access(authority);
        let mut account = access.account.lock().await;
        if account.as_ref().is_some_and(|one| one.id() == id) {
            *account = None;
        }
        let path = self.folder.account(&authority.directory);
        let _lock = self.lock(ACCOUNT_LOCK, &authority.directory).await?;
        let stored = levity_tls::files::read(&path).unwrap_or_default();
        let is_refused = serde_json::from_slice(&stored).is_ok_and(|one: Identity| one.id == id);
        if is_refused {
            std::fs::remove_file(&path)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    async fn load(
        &self,
        authority: &Authority,
        builder: AccountBuilder,
    ) -> Result<Account, Failure> {
        let path = self.folder.account(&authority.directory);
        let lock = self.lock(ACCOUNT_LOCK, &authority.directory).await?;
        let stored = levity_tls::files::read_if_there(&path).map_err(Failure::new)?;
        let Some(bytes) = stored else {
            return self.create(authority, builder).await;
        };
        drop(lock);
        let credentials: AccountCredentials = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(builder.from_credentials(credentials).await?)
    }

    async fn create(
        &self,
        authority: &Authority,
        builder: AccountBuilder,
    ) -> Result<Account, Failure> {
        let external = authority.external_account.as_ref().map(key).transpose()?;
        let contact = self
            .settings
            .contact
            .as_ref()
            .map(|address| format!("mailto:{address}"));
        let contact: Vec<_> = contact.iter().map(String::as_str).collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let created = builder.create(&wanted, authority.directory.clone(), external.as_ref());
        let (account, credentials) = created.await?;
        let text =
            serde_json::to_vec(&credentials).map_err(|error| Failure::new(error.to_string()))?;
        let path = self.folder.account(&authority.directory);
        self.folder.write(&path, &text).map_err(Failure::new)?;
        Ok(account)
    }
}

fn key(external: &ExternalAccount) -> Result<ExternalAccountKey, Failure> {
    let bytes = levity_tls::files::read(&external.key).map_err(Failure::new)?;
    let text = bytes.trim_ascii();
    let text = text.strip_suffix(b"=").unwrap_or(text);
    let key = BASE64_URL_SAFE_NO_PAD.decode(text.strip_suffix(b"=").unwrap_or(text));
    let key = key.map_err(|error| {
        let path = external.key.display();
        Failure::new(format!("{path} is not a key in base64url: {error}"))
    })?;
    Ok(ExternalAccountKey::new(external.id.clone(), &key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::settings::Settings;

    #[tokio::test]
    async fn only_the_account_that_was_refused_is_forgotten() {
        let state = tempfile::tempdir().expect("a folder");
        let authority = Authority {
            directory: "https://ca.test/dir".to_owned(),
            roots: None,
            profile: None,
            external_account: None,
        };
        let settings = Settings {
            folder: state.path().to_owned(),
            contact: None,
            authorities: vec![authority.clone()],
            methods: Vec::new(),
            dns: None,
            ask: None,
        };
        let run = Run::new(&settings, &Arc::default(), &Arc::default(), |_| {});
        let run = run.expect("a folder");
        let path = run.folder.account(&authority.directory);
        let text = br#"{"id": "https://ca.test/2", "key": "of another server"}"#;
        run.folder.write(&path, text).expect("written");
        for (id, is_left) in [("https://ca.test/1", true), ("https://ca.test/2", false)] {
            let forgotten = run.forget_account(&authority, id).await;
            forgotten.expect("forgotten");
            assert_eq!(path.exists(), is_left, "{id}");
        }
    }
}
