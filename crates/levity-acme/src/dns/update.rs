//! Dynamic updates of a zone (RFC 2136).

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, Query, update_message};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::time::{self, Instant};

use super::exchange::{Server, shown};
use super::key::TsigKey;

/// How long a server may take until it shows what it has accepted.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two queries for what is not visible yet.
const VISIBLE_INTERVAL: Duration = Duration::from_millis(500);

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
    /// Adds the record, and waits until the server shows it.
    ///
    /// # Errors
    /// In words.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let record = self.record(name, value)?;
        let zone = self.zone(&record.name).await?;
        let addition = update_message::append(record.clone().into(), zone, false, false);
        self.server().ask(addition).await?;
        self.wait_until_visible(&record).await
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
        let response = self.query(name, RecordType::SOA).await?;
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

    async fn wait_until_visible(&self, record: &Record) -> Result<(), String> {
        let deadline = Instant::now() + VISIBLE_TIMEOUT;
        while !self.is_visible(record).await? {
            if Instant::now() >= deadline {
                return Err(format!(
                    "the DNS server {} has accepted the record {}, but does not show it within {} s",
                    self.server,
                    shown(&record.name),
                    VISIBLE_TIMEOUT.as_secs()
                ));
            }
            time::sleep(VISIBLE_INTERVAL).await;
        }
        Ok(())
    }

    async fn is_visible(&self, record: &Record) -> Result<bool, String> {
        let response = self.query(&record.name, RecordType::TXT).await?;
        let is_same = |other: &Record| other.name == record.name && other.data == record.data;
        Ok(response.answers.iter().any(is_same))
    }

    /// The response to a query for a name that is no alias: a server accepts an update of one and does nothing
    /// (RFC 2136, section 3.4.2.2).
    async fn query(&self, name: &Name, record_type: RecordType) -> Result<Message, String> {
        let mut message = Message::query();
        message.add_query(Query::query(name.clone(), record_type));
        message.metadata.recursion_desired = false;
        let response = self.server().ask(message).await?;
        let alias = |record: &Record| match &record.data {
            RData::CNAME(target) if record.name == *name => Some(shown(target)),
            _ => None,
        };
        match response.answers.iter().find_map(alias) {
            None => Ok(response),
            Some(target) => Err(format!(
                "{} is an alias of {target} (CNAME): remove the alias, or use a hook that changes {target}",
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
