//! What stands for TLS in a build without it. The configuration refuses all that needs it, so no site has any.

pub mod arriving;
pub mod certificates;
pub mod folder;

/// Authorities that would be asked for certificates.
pub mod authorities {
    use std::sync::Arc;

    /// What event loops would have of them.
    pub struct Acme {
        /// What authorities look for.
        pub challenges: Arc<Challenges>,
    }

    /// What authorities would look for.
    pub enum Challenges {}

    impl Challenges {
        /// The answer over HTTP.
        pub fn http(&self, _: &str) -> Option<String> {
            match *self {}
        }
    }
}

/// What files would say of certificates.
pub mod offline {
    use levity_config::Config;

    use super::certificates::CertificateReport;

    /// No client gets a certificate.
    pub fn report_for(_: &str, _: &Config) -> Option<CertificateReport> {
        None
    }
}

/// What configurations would have in common.
pub mod parts {
    use std::io;
    use std::sync::Arc;

    use levity_config::Config;

    use super::authorities::Acme;
    use super::sites::TlsSites;

    /// Nothing.
    #[derive(Clone, Default)]
    pub struct TlsParts(());

    impl TlsParts {
        /// There are no authorities.
        ///
        /// # Errors
        /// None.
        pub fn acme(&self, _: &Config) -> io::Result<Option<Arc<Acme>>> {
            Ok(None)
        }

        /// There are no certificates.
        ///
        /// # Errors
        /// None.
        pub fn sites(
            &self,
            _: &Config,
            _: Option<Arc<Acme>>,
            _: Option<&TlsSites>,
        ) -> io::Result<Option<Arc<TlsSites>>> {
            Ok(None)
        }

        /// Changes nothing.
        pub fn follow(&self, _: &Config, _: Option<&TlsSites>) {}

        /// Changes nothing.
        pub fn stop(&self) {}
    }

    /// What would be done from time to time.
    #[derive(Default)]
    pub struct Upkeep(());

    impl Upkeep {
        /// Does nothing.
        pub fn look(&mut self, _: &TlsParts, _: bool) {}
    }

    /// Makes nothing.
    pub fn make_state_folder(_: &Config) {}
}

/// Signatures of tokens.
pub mod signature {
    use levity_wire::jwt::{Material, Token};

    /// None is verified.
    pub fn has_signed(_: &Material, _: &Token<'_>) -> bool {
        false
    }
}

/// The certificates of sites.
pub mod sites {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use levity_net::{ClientAuthId, Transport};
    use levity_telemetry::stats::CertificateFigures;

    use super::arriving::{Arriving, Failed, Shaken};
    use super::certificates::CertificateReport;

    /// There are none.
    pub enum TlsSites {}

    impl TlsSites {
        /// The certificate of the authority of this machine.
        pub fn local_authority(&self) -> Option<PathBuf> {
            match *self {}
        }

        /// The rules by which clients prove who they are.
        pub fn client_auth(&self, _: usize) -> Option<ClientAuthId> {
            match *self {}
        }

        /// Reads files again.
        pub fn refresh(&self) {
            match *self {}
        }

        /// What operators see.
        pub fn reports(&self) -> Vec<CertificateReport> {
            match *self {}
        }

        /// What metrics say.
        pub fn figures(&self, _: SystemTime) -> CertificateFigures {
            match *self {}
        }

        /// How many there are on demand.
        pub fn on_demand_count(&self) -> Option<usize> {
            match *self {}
        }
    }

    impl Arriving<'_> {
        /// Makes a handshake.
        ///
        /// # Errors
        /// None.
        pub async fn shake(
            &self,
            sites: &TlsSites,
            _: Transport,
            _: Vec<u8>,
        ) -> Result<Shaken, Failed> {
            match *sites {}
        }
    }
}

/// Authorities of this machine.
pub mod trust {
    use levity_config::Config;

    /// Nobody needs them.
    pub fn note(_: &Config) -> Option<String> {
        None
    }
}
