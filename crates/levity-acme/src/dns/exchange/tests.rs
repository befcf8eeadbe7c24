use hickory_proto::op::update_message;
use hickory_proto::rr::TSigResponseContext;
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::{TSIG, TsigAlgorithm, make_tsig_record};
use tokio::net::TcpListener;

use super::super::key::Algorithm;
use super::*;

/// The time at which messages are signed, in seconds of Unix time.
const NOW: u64 = 1_800_000_000;

fn key() -> TsigKey {
    TsigKey {
        name: "levity".to_owned(),
        algorithm: Algorithm::HmacSha256,
        secret: b"secret".to_vec(),
    }
}

fn server(address: SocketAddr, key: Option<&TsigKey>) -> Server<'_> {
    let timeout = Duration::from_secs(10);
    Server {
        address,
        key,
        timeout,
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn update() -> Message {
    let text = RData::TXT(TXT::new(vec!["v".to_owned()]));
    let record = Record::from_rdata(name("a.b."), 60, text);
    update_message::append(record.into(), name("b."), false, false)
}

fn query() -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(name("a.b."), RecordType::TXT));
    message
}

/// What `message` gets from a server that responds with the bytes that `respond` makes of the request.
async fn ask(
    message: Message,
    key: Option<&TsigKey>,
    respond: impl FnOnce(&Message) -> Vec<u8>,
) -> Result<Message, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server(address, key);
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut request).await.unwrap();
        let response = respond(&Message::from_vec(&request).unwrap());
        let length = u16::try_from(response.len()).unwrap();
        stream.write_u16(length).await.unwrap();
        stream.write_all(&response).await.unwrap();
    };
    tokio::join!(server.ask_at(message, NOW), serving).0
}

fn unsigned(request: &Message, code: ResponseCode) -> Message {
    let mut response = Message::response(request.id, request.op_code);
    response.metadata.response_code = code;
    response
}

/// A response that `key` signs at the time `now`.
fn signed(request: &Message, key: &TsigKey, now: u64) -> Vec<u8> {
    let mut response = unsigned(request, ResponseCode::NoError);
    let signature = &request.signature().unwrap().data;
    let signer = key.signer().unwrap();
    let mac = signature.mac.clone();
    let context = TSigResponseContext::new(request.id, now, signer, mac, None);
    let record = context.sign(&response.to_vec().unwrap()).unwrap();
    response.set_signature(record);
    response.to_vec().unwrap()
}

/// A response without a signature that says what is wrong with that of the request.
fn not_signed_well(request: &Message, error: TsigError, other: Vec<u8>) -> Vec<u8> {
    let mut response = unsigned(request, ResponseCode::NotAuth);
    let (algorithm, error) = (TsigAlgorithm::HmacSha256, Some(error));
    let signature = TSIG::new(algorithm, NOW, 300, vec![], request.id, error, other);
    response.set_signature(Box::new(make_tsig_record(name("levity."), signature)));
    response.to_vec().unwrap()
}

async fn refused(message: Message, code: ResponseCode) -> String {
    let respond = |request: &Message| unsigned(request, code).to_vec().unwrap();
    ask(message, Some(&key()), respond).await.unwrap_err()
}

#[test]
fn bytes_of_an_update() {
    let mut message = update();
    message.metadata.id = 0x1234;
    let key = key();
    let server = server(([127, 0, 0, 1], 53).into(), Some(&key));
    server.sign(&mut message, NOW).unwrap().unwrap();
    let bytes = message.to_vec().unwrap();
    // RFC 2136, section 2: a zone, no prerequisites, an update and, in the last section, the signature.
    let header = b"\x12\x34\x28\0\0\x01\0\0\0\x01\0\x01";
    let zone = b"\x01b\0\0\x06\0\x01";
    let addition = b"\x01a\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x02\x01v";
    let signature =
        b"\x06levity\0\0\xfa\0\xff\0\0\0\0\0\x3d\x0bhmac-sha256\0\0\0\x6b\x49\xd2\0\x01\x2c\0\x20";
    let start = [&header[..], zone, addition, signature].concat();
    assert!(bytes.starts_with(&start), "{}", bytes.escape_ascii());
    // The original number, no error, and no further data follow the 32 bytes of the signature.
    assert_eq!(&bytes[start.len() + 32..], b"\x12\x34\0\0\0\0");
}

#[test]
fn bytes_of_a_removal() {
    let text = RData::TXT(TXT::new(vec!["v".to_owned()]));
    let record = Record::from_rdata(name("a.b."), 60, text);
    let message = update_message::delete_by_rdata(record.into(), name("b."), false);
    let bytes = message.to_vec().unwrap();
    // RFC 2136, section 2.5.4: the class NONE, and no time to live.
    let removal = b"\x01a\xc0\x0c\0\x10\0\xfe\0\0\0\0\0\x02\x01v";
    assert!(bytes.ends_with(removal), "{}", bytes.escape_ascii());
}

#[tokio::test]
async fn a_response_has_to_be_signed() {
    let key = key();
    let sign = |request: &Message| signed(request, &key, NOW);
    assert!(ask(update(), Some(&key), sign).await.is_ok());
    let start = "sends a response without a valid signature by the key levity: ";
    let assert_invalid = |problem: String| assert!(problem.starts_with(start), "{problem}");

    assert_invalid(refused(update(), ResponseCode::NoError).await);
    assert_invalid(refused(query(), ResponseCode::NXDomain).await);
    let other = TsigKey {
        secret: b"other".to_vec(),
        ..key.clone()
    };
    let sign = |request: &Message| signed(request, &other, NOW);
    assert_invalid(ask(update(), Some(&key), sign).await.unwrap_err());
    let sign = |request: &Message| signed(request, &key, NOW - 301);
    assert_invalid(ask(update(), Some(&key), sign).await.unwrap_err());
    let change = |request: &Message| {
        let mut bytes = signed(request, &key, NOW);
        // The bit that says that the server is authoritative.
        bytes[2] ^= 4;
        bytes
    };
    assert_invalid(ask(update(), Some(&key), change).await.unwrap_err());
}

#[tokio::test]
async fn without_a_key_no_signature_is_needed() {
    let respond = |request: &Message| {
        assert!(request.signature().is_none());
        let response = unsigned(request, ResponseCode::NoError);
        response.to_vec().unwrap()
    };
    assert!(ask(update(), None, respond).await.is_ok());
    let respond = |request: &Message| {
        let response = unsigned(request, ResponseCode::Refused);
        response.to_vec().unwrap()
    };
    let problem = ask(update(), None, respond).await.unwrap_err();
    let start = "refuses an update of the zone b without a key (REFUSED): allow it";
    assert!(problem.starts_with(start), "{problem}");
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    for (code, start) in [
        (
            ResponseCode::Refused,
            "refuses an update of the zone b with the key levity (REFUSED): allow",
        ),
        (
            ResponseCode::NotAuth,
            "refuses an update of the zone b with the key levity (NOTAUTH): name",
        ),
        (
            ResponseCode::NotZone,
            "says that the name is not in the zone b (NOTZONE)",
        ),
        (
            ResponseCode::NotImp,
            "does not implement dynamic updates (NOTIMP)",
        ),
        (ResponseCode::ServFail, "fails to update the zone b: "),
        (ResponseCode::NXDomain, "fails to update the zone b: "),
    ] {
        let problem = refused(update(), code).await;
        assert!(problem.starts_with(start), "{problem}");
    }
    for (code, start) in [
        (ResponseCode::Refused, "refuses a query for a.b (REFUSED)"),
        (
            ResponseCode::NotAuth,
            "does not respond to a query for a.b with this key",
        ),
        (
            ResponseCode::ServFail,
            "fails to respond to a query for a.b: ",
        ),
    ] {
        let problem = refused(query(), code).await;
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[tokio::test]
async fn a_refused_signature_says_what_to_do() {
    let time = (NOW + 4000).to_be_bytes()[2..].to_vec();
    for (error, other, start) in [
        (
            TsigError::BadKey,
            vec![],
            "does not accept the key levity (BADKEY)",
        ),
        (
            TsigError::BadSig,
            vec![],
            "has another secret for the key levity (BADSIG)",
        ),
        (
            TsigError::BadTime,
            time,
            "has a clock that differs from the one of this machine by 4000 s (BADTIME)",
        ),
        (
            TsigError::BadTime,
            vec![],
            "has a clock that differs from the one of this machine (BADTIME)",
        ),
        (
            TsigError::BadTrunc,
            vec![],
            "wants a longer signature by the key levity (BADTRUNC)",
        ),
        (
            TsigError::Unknown(99),
            vec![],
            "refuses the signature by the key levity with the code 99",
        ),
    ] {
        let respond = |request: &Message| not_signed_well(request, error, other);
        let problem = ask(update(), Some(&key()), respond).await.unwrap_err();
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[tokio::test]
async fn responses_that_are_none() {
    let problem = async |change: fn(&mut Message)| {
        let respond = |request: &Message| {
            let mut response = unsigned(request, ResponseCode::NoError);
            change(&mut response);
            response.to_vec().unwrap()
        };
        ask(update(), None, respond).await.unwrap_err()
    };
    let other = "sends a response to something else";
    assert_eq!(problem(|response| response.metadata.id ^= 1).await, other);
    assert_eq!(
        problem(|response| response.metadata.op_code = OpCode::Query).await,
        other
    );
    assert_eq!(
        problem(|response| response.metadata.message_type = MessageType::Query).await,
        other
    );
    for bytes in [&b""[..], b"\0", &[0xff; 40]] {
        let problem = ask(update(), None, |_| bytes.to_vec()).await.unwrap_err();
        assert!(
            problem.starts_with("sends a response that is invalid: "),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_down_or_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server(address, None);
    let leaving = async { drop(listener.accept().await.unwrap()) };
    let (asked, ()) = tokio::join!(server.ask(update()), leaving);
    let start = format!("the DNS server {address} cannot be asked over TCP: ");
    let problem = asked.unwrap_err();
    assert!(problem.starts_with(&start), "{problem}");
    // Nobody listens there.
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let server = self::server(address, None);
    let start = format!("the DNS server {address} cannot be asked over TCP: ");
    let problem = server.ask(update()).await.unwrap_err();
    assert!(problem.starts_with(&start), "{problem}");
    assert!(problem.contains("refused"), "{problem}");
}

#[tokio::test]
async fn a_server_that_does_not_respond() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        timeout: Duration::from_millis(20),
        ..server(address, None)
    };
    let problem = server.ask(update()).await.unwrap_err();
    assert_eq!(
        problem,
        format!("the DNS server {address} does not respond within 20ms")
    );
}
