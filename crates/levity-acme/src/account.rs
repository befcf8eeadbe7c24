//! Accounts at authorities.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};

use crate::failure::Failure;
use crate::http::Client;
use crate::requests::Requests;
use crate::run::Run;
use crate::settings::{Authority, ExternalAccount};

/// The lock of accounts. No host has such a name.
const ACCOUNT_LOCK: &str = ",account";

impl Run {
    /// The account at `authority`, which is made when there is none.
    ///
    /// # Errors
    /// When the authority cannot be asked, or a file cannot be used.
    pub async fn account(&self, authority: &Authority) -> Result<Account, Failure> {
        let mut accounts = self.accounts.lock().await;
        if let Some(account) = accounts.get(&authority.directory) {
            return Ok(account.clone());
        }
        let client = Client::new(authority.roots.as_ref()).map_err(Failure::new)?;
        let builder = Account::builder_with_http(Box::new(Requests(client)));
        let account = self.load(authority, builder).await?;
        accounts.insert(authority.directory.clone(), account.clone());
        Ok(account)
    }

    /// Forgets an account that the authority does not know any more. Blocks.
    pub async fn forget_account(&self, authority: &Authority) {
        self.accounts.lock().await.remove(&authority.directory);
        let path = self.folder.account(&authority.directory);
        let _ = std::fs::remove_file(path);
    }

    async fn load(
        &self,
        authority: &Authority,
        builder: AccountBuilder,
    ) -> Result<Account, Failure> {
        let path = self.folder.account(&authority.directory);
        let _lock = self.lock(ACCOUNT_LOCK).await?;
        if !path.exists() {
            return self.create(authority, builder).await;
        }
        let bytes = levity_tls::files::read(&path).map_err(Failure::new)?;
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
