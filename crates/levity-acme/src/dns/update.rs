//! Dynamic updates of a zone (RFC 2136).

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::update_message;
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::exchange::{Server, shown};
use super::key::TsigKey;
use super::visible;

/// The limit of time of one message to the server and its response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long the server may take until it shows what it has accepted.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The port of the other servers of a zone.
const PORT: u16 = 53;

/// The maximum length of a value, in bytes: that of one string of a TXT record (RFC 1035, section 3.3).
const VALUE_BYTES_MAX: usize = 255;

/// A server that is asked to change its zone.
#[derive(Clone, Debug)]
pub struct Update {
    /// The primary server of the zone. It is asked over TCP.
    pub server: SocketAddr,
    /// The zone. `None` asks the server for it.
    pub zone: Option<String>,
    /// Signs updates and queries. `None` leaves it to the server to know this machine by its address.
    pub key: Option<TsigKey>,
    /// How long resolvers may keep the record, in seconds.
    pub ttl: u32,
}

impl Update {
    /// Adds the record, and waits until the server shows it, and the other servers of the zone that can be asked.
    ///
    /// # Errors
    /// In words.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let record = self.record(name, value)?;
        let zone = self.zone(&record.name).await?;
        let addition = update_message::append(record.clone().into(), zone.clone(), false, false);
        self.server().ask(addition).await?;
        if !visible::wait(&self.server(), &record, VISIBLE_TIMEOUT).await? {
            return Err(format!(
                "the DNS server {} has accepted the record {name}, but does not show it within {} s",
                self.server,
                VISIBLE_TIMEOUT.as_secs()
            ));
        }
        visible::wait_elsewhere(&self.server(), &zone, &record, PORT).await;
        Ok(())
    }

    /// Removes the record. It is no error if there is none.
    ///
    /// # Errors
    /// In words.
    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        let record = self.record(name, value)?;
        let zone = self.zone(&record.name).await?;
        let removal = update_message::delete_by_rdata(record.into(), zone, false);
        self.server().ask(removal).await.map(drop)
    }

    fn server(&self) -> Server<'_> {
        Server {
            address: self.server,
            key: self.key.as_ref(),
            timeout: TIMEOUT,
        }
    }

    fn record(&self, name: &str, value: &str) -> Result<Record, String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("a value has more than {VALUE_BYTES_MAX} bytes"));
        }
        let text = RData::TXT(TXT::new(vec![value.to_owned()]));
        Ok(Record::from_rdata(absolute(name)?, self.ttl, text))
    }

    /// The zone of a name.
    async fn zone(&self, name: &Name) -> Result<Name, String> {
        let zone = match &self.zone {
            Some(zone) => absolute(zone)?,
            None => self.find_zone(name).await?,
        };
        match zone.zone_of(name) {
            true => Ok(zone),
            false => Err(format!(
                "{} is not in the zone {}",
                shown(name),
                shown(&zone)
            )),
        }
    }

    /// The zone that has a name: a server names it even if the name does not exist (RFC 2308, section 3).
    async fn find_zone(&self, name: &Name) -> Result<Name, String> {
        let response = self.server().query(name, RecordType::SOA).await?;
        let mut records = response.answers.iter().chain(&response.authorities);
        let start = records.find(|record| record.record_type() == RecordType::SOA);
        match start.filter(|_| response.authoritative) {
            Some(start) => Ok(start.name.clone()),
            None => Err(format!(
                "the DNS server {} has no zone for {}: name a server that has one",
                self.server,
                shown(name)
            )),
        }
    }
}

fn absolute(name: &str) -> Result<Name, String> {
    let parsed = Name::from_ascii(name);
    let mut parsed = parsed.map_err(|error| format!("{name} is no name of the DNS: {error}"))?;
    parsed.set_fqdn(true);
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_invalid_is_not_sent() {
        // Nobody listens there.
        let update = |zone: Option<&str>| Update {
            server: ([127, 0, 0, 1], 1).into(),
            zone: zone.map(str::to_owned),
            key: None,
            ttl: 60,
        };
        let set = async |zone, name, value| update(zone).set(name, value).await.unwrap_err();
        let problem = set(None, "a..example.org", "value").await;
        assert!(
            problem.starts_with("a..example.org is no name of the DNS: "),
            "{problem}"
        );
        let problem = set(Some("..org"), "a.example.org", "value").await;
        assert!(
            problem.starts_with("..org is no name of the DNS: "),
            "{problem}"
        );
        let problem = set(Some("example.net."), "a.example.org", "value").await;
        assert_eq!(problem, "a.example.org is not in the zone example.net");
        let problem = set(None, "a.example.org", &"v".repeat(256)).await;
        assert_eq!(problem, "a value has more than 255 bytes");
    }
}
