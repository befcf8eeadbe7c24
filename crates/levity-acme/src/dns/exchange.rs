//! One message to a DNS server over TCP, and its response, both signed (RFC 8945).

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{Name, RData, Record, RecordType, TSigVerifier};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time;

use super::key::TsigKey;

/// A server, and the key that signs what is sent to it.
pub struct Server<'a> {
    pub address: SocketAddr,
    pub key: Option<&'a TsigKey>,
    /// The limit of time of one message and its response.
    pub timeout: Duration,
}

impl Server<'_> {
    /// Sends `message` and waits for its response, which is one of success, or says that a name does not exist.
    ///
    /// # Errors
    /// In words that begin with the server, and say what to do.
    pub async fn ask(&self, message: Message) -> Result<Message, String> {
        let asked = self.ask_at(message, unix_now()).await;
        asked.map_err(|problem| format!("the DNS server {} {problem}", self.address))
    }

    /// Asks for a name that is no alias. A server accepts an update of an alias and does nothing (RFC 2136, section
    /// 3.4.2.2).
    ///
    /// # Errors
    /// As `ask`, and that the name is an alias.
    pub async fn query(&self, name: &Name, record_type: RecordType) -> Result<Message, String> {
        let mut message = Message::query();
        message.add_query(Query::query(name.clone(), record_type));
        message.metadata.recursion_desired = false;
        let response = self.ask(message).await?;
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

    /// As `ask`, at `now` in seconds of Unix time.
    async fn ask_at(&self, mut message: Message, now: u64) -> Result<Message, String> {
        let verifier = self.sign(&mut message, now)?;
        let unsendable = |error| format!("cannot be sent this message: {error}");
        let bytes = message.to_vec().map_err(unsendable)?;
        let bytes = time::timeout(self.timeout, self.transfer(&bytes))
            .await
            .map_err(|_| format!("does not respond within {:?}", self.timeout))?
            .map_err(|error| format!("cannot be asked over TCP: {error}"))?;
        let response = Message::from_vec(&bytes)
            .map_err(|error| format!("sends a response that is invalid: {error}"))?;
        if !is_response(&message, &response) {
            return Err("sends a response to something else".to_owned());
        }
        // Before the signature: a server that does not know the key cannot sign.
        if let Some(problem) = self.refusal(&message, &response) {
            return Err(problem);
        }
        self.verify(verifier, &bytes)?;
        Ok(response)
    }

    fn sign(&self, message: &mut Message, now: u64) -> Result<Option<TSigVerifier>, String> {
        let Some(key) = self.key else { return Ok(None) };
        let signed = message.finalize(&key.signer()?, now);
        signed.map_err(|error| format!("cannot be sent a signed message: {error}"))
    }

    fn verify(&self, verifier: Option<TSigVerifier>, response: &[u8]) -> Result<(), String> {
        let (Some(mut verifier), Some(key)) = (verifier, self.key) else {
            return Ok(());
        };
        verifier.verify(response).map(drop).map_err(|error| {
            let name = &key.name;
            format!("sends a response without a valid signature by the key {name}: {error}")
        })
    }

    async fn transfer(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address).await?;
        // Each message follows its length (RFC 1035, section 4.2.2). Some servers want both in one segment.
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        stream
            .write_all(&[&length.to_be_bytes(), message].concat())
            .await?;
        let mut response = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut response).await?;
        Ok(response)
    }

    /// Why the server has not done what `message` asks for, and what to do.
    fn refusal(&self, message: &Message, response: &Message) -> Option<String> {
        let key = self.key.map_or("", |key| &key.name);
        let signature = response.signature().map(|record| &record.data);
        if let Some(error) = signature.and_then(|signature| signature.error) {
            let server_time = signature.and_then(|signature| seconds(&signature.other));
            let asked_at = message.signature().map_or(0, |record| record.data.time);
            return Some(of_signature(error, key, asked_at, server_time));
        }
        let is_update = message.op_code == OpCode::Update;
        let name = message.queries.first().map(|query| shown(query.name()));
        let name = name.unwrap_or_default();
        match response.response_code {
            ResponseCode::NoError => None,
            ResponseCode::NXDomain if !is_update => None,
            code if is_update => Some(of_update(code, &name, self.key)),
            code => Some(of_query(code, &name)),
        }
    }
}

/// A name without the dot at its end.
pub fn shown(name: &Name) -> String {
    let text = name.to_string();
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}

fn is_response(message: &Message, response: &Message) -> bool {
    response.id == message.id
        && response.op_code == message.op_code
        && response.message_type == MessageType::Response
}

fn of_signature(error: TsigError, key: &str, asked_at: u64, server_time: Option<u64>) -> String {
    match error {
        // Knot says so too if the key is not allowed to do this.
        TsigError::BadKey => format!(
            "does not accept the key {key} (BADKEY): configure there this key with this algorithm, and let it change the \
             zone"
        ),
        TsigError::BadSig => format!(
            "has another secret for the key {key} (BADSIG): use the file of the key that it uses"
        ),
        TsigError::BadTime => format!(
            "has a clock that differs from the one of this machine{} (BADTIME): correct the wrong one",
            server_time.map_or(String::new(), |time| format!(
                " by {} s",
                time.abs_diff(asked_at)
            ))
        ),
        TsigError::BadTrunc => {
            format!("wants a longer signature by the key {key} (BADTRUNC): use another algorithm")
        }
        TsigError::Unknown(code) => {
            format!("refuses the signature by the key {key} with the code {code}")
        }
    }
}

fn of_update(code: ResponseCode, zone: &str, key: Option<&TsigKey>) -> String {
    let whose = key.map_or("without a key".to_owned(), |key| {
        format!("with the key {}", key.name)
    });
    match code {
        ResponseCode::Refused => format!(
            "refuses an update of the zone {zone} {whose} (REFUSED): allow it there, for instance with `update-policy` in \
             BIND, or with an `acl` in Knot"
        ),
        // Knot says so too if it does not allow the update.
        ResponseCode::NotAuth => format!(
            "refuses an update of the zone {zone} {whose} (NOTAUTH): name the primary server of this zone, and allow the \
             update there"
        ),
        ResponseCode::NotZone => {
            format!("says that the name is not in the zone {zone} (NOTZONE): correct the zone")
        }
        ResponseCode::NotImp => {
            format!("does not implement dynamic updates (NOTIMP): change {zone} by a hook")
        }
        code => format!("fails to update the zone {zone}: {code}; its log may say why"),
    }
}

fn of_query(code: ResponseCode, name: &str) -> String {
    match code {
        ResponseCode::Refused => format!(
            "refuses a query for {name} (REFUSED): name a server that has its zone, and let this machine ask it"
        ),
        ResponseCode::NotAuth => format!(
            "does not respond to a query for {name} with this key (NOTAUTH): configure the same key there"
        ),
        code => format!("fails to respond to a query for {name}: {code}; its log may say why"),
    }
}

/// The time of a server that says BADTIME, in seconds of Unix time (RFC 8945, section 5.2.3).
fn seconds(other: &[u8]) -> Option<u64> {
    let bytes: &[u8; 6] = other.try_into().ok()?;
    Some(
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs())
}

#[cfg(test)]
mod tests;
