//! Waiting until servers show a record.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::lookup_host;
use tokio::time::{self, Instant};

use super::exchange::{Server, shown};

/// The time between two queries for what is not visible yet.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long all other servers of a zone may take together until they show a record.
const ELSEWHERE_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit of time of one message to another server and its response, or of the lookup of its name.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits until `server` shows a record, and returns whether it does within `timeout`.
///
/// # Errors
/// In words, if a query fails.
pub async fn wait(server: &Server<'_>, record: &Record, timeout: Duration) -> Result<bool, String> {
    let deadline = Instant::now() + timeout;
    let is_same = |other: &Record| other.name == record.name && other.data == record.data;
    loop {
        let response = server.query(&record.name, RecordType::TXT).await?;
        if response.answers.iter().any(is_same) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        time::sleep(INTERVAL).await;
    }
}

/// Waits until the other servers of a zone show a record too: an authority asks any of them. One that does not answer is
/// left out, and so are all after `ELSEWHERE_TIMEOUT`: this machine may see others than the authority does.
pub async fn wait_elsewhere(primary: &Server<'_>, zone: &Name, record: &Record, port: u16) {
    let waiting = async {
        for address in others(primary, zone, port).await {
            let other = Server {
                address,
                key: None,
                timeout: ANSWER_TIMEOUT,
            };
            let _ = wait(&other, record, ELSEWHERE_TIMEOUT).await;
        }
    };
    let _ = time::timeout(ELSEWHERE_TIMEOUT, waiting).await;
}

/// The addresses of the servers of a zone without those of the primary one.
async fn others(primary: &Server<'_>, zone: &Name, port: u16) -> Vec<SocketAddr> {
    let Ok(response) = primary.query(zone, RecordType::NS).await else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for record in &response.answers {
        let RData::NS(name) = &record.data else {
            continue;
        };
        let given = given_addresses(&response, name);
        let addresses = match given.is_empty() {
            true => looked_up(name).await,
            false => given,
        };
        found.extend(addresses);
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|address| *address != primary.address.ip());
    found.into_iter().map(|ip| (ip, port).into()).collect()
}

/// The addresses that a response has for a name that it mentions.
fn given_addresses(response: &Message, name: &Name) -> Vec<IpAddr> {
    let own = response
        .additionals
        .iter()
        .filter(|record| record.name == *name);
    own.filter_map(|record| record.data.ip_addr()).collect()
}

/// The addresses of a name by the resolver of this machine, or none.
async fn looked_up(name: &Name) -> Vec<IpAddr> {
    // The port is of no use here, but has to be there.
    let lookup = time::timeout(ANSWER_TIMEOUT, lookup_host((shown(name), 0))).await;
    let addresses = lookup.ok().and_then(Result::ok).into_iter().flatten();
    addresses.map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hickory_proto::rr::rdata::{A, NS, TXT};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::select;

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn record() -> Record {
        let text = RData::TXT(TXT::new(vec!["v".to_owned()]));
        Record::from_rdata(name("a.b."), 60, text)
    }

    fn server(address: SocketAddr) -> Server<'static> {
        Server {
            address,
            key: None,
            timeout: Duration::from_secs(10),
        }
    }

    /// Answers queries on `listener` with what `answer` adds to the response.
    async fn serve(listener: &TcpListener, answer: impl Fn(&Message, &mut Message)) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut request).await.unwrap();
            let request = Message::from_vec(&request).unwrap();
            let mut response = Message::response(request.id, request.op_code);
            answer(&request, &mut response);
            let bytes = response.to_vec().unwrap();
            let length = u16::try_from(bytes.len()).unwrap();
            stream.write_u16(length).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
    }

    #[tokio::test]
    async fn waits_for_the_value() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = server(listener.local_addr().unwrap());
        let queries = Cell::new(0);
        let serving = serve(&listener, |_, response| {
            queries.set(queries.get() + 1);
            let mut other = record();
            other.data = RData::TXT(TXT::new(vec!["w".to_owned()]));
            response.add_answer(other);
            if queries.get() > 2 {
                response.add_answer(record());
            }
        });
        let record = record();
        let waiting = async {
            assert_eq!(wait(&server, &record, Duration::ZERO).await, Ok(false));
            assert_eq!(
                wait(&server, &record, Duration::from_secs(60)).await,
                Ok(true)
            );
        };
        select! {
            () = serving => unreachable!(),
            () = waiting => assert_eq!(queries.get(), 3),
        }
    }

    #[tokio::test]
    async fn waits_for_the_other_servers_of_the_zone() {
        let primary = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secondary = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = secondary.local_addr().unwrap().port();
        let primary_server = server(primary.local_addr().unwrap());
        let serving_primary = serve(&primary, |request, response| {
            assert_eq!(request.queries[0].query_type(), RecordType::NS);
            // Nobody listens at the last address.
            for last in [1, 2, 3] {
                let server = name(&format!("ns{last}.b."));
                let of_zone = RData::NS(NS(server.clone()));
                response.add_answer(Record::from_rdata(name("b."), 60, of_zone));
                let address = RData::A(A::new(127, 0, 0, last));
                response.add_additional(Record::from_rdata(server, 60, address));
            }
        });
        let queries = Cell::new(0);
        let serving_secondary = serve(&secondary, |_, response| {
            queries.set(queries.get() + 1);
            if queries.get() == 2 {
                response.add_answer(record());
            }
        });
        let (zone, record) = (name("b."), record());
        select! {
            () = serving_primary => unreachable!(),
            () = serving_secondary => unreachable!(),
            () = wait_elsewhere(&primary_server, &zone, &record, port) => assert_eq!(queries.get(), 2),
        }
    }
}
