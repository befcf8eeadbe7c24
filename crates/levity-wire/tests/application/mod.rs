//! The application's side of FastCGI, as far as the tests need it. It parses the variables of each
//! record separately, as php-fpm does.

/// A received request.
pub struct Received {
    pub keep_conn: bool,
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// Reads one whole request.
pub fn receive(mut bytes: &[u8]) -> Received {
    let begin = record(&mut bytes, 1);
    assert_eq!((begin.len(), &begin[..2]), (8, &[0, 1][..]), "a responder");
    assert!(begin[2] <= 1 && begin[3..] == [0; 5]);
    let mut variables = Vec::new();
    for content in stream(&mut bytes, 4) {
        read_variables(content, &mut variables);
    }
    let body = stream(&mut bytes, 5).concat();
    assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
    Received {
        keep_conn: begin[2] == 1,
        variables,
        body,
    }
}

/// The records up to the empty one.
fn stream<'a>(bytes: &mut &'a [u8], kind: u8) -> Vec<&'a [u8]> {
    let mut records = Vec::new();
    loop {
        match record(bytes, kind) {
            [] => return records,
            content => records.push(content),
        }
    }
}

/// The content of the next record, which must be of this type.
fn record<'a>(bytes: &mut &'a [u8], kind: u8) -> &'a [u8] {
    let header = take(bytes, 8);
    assert_eq!(header[..4], [1, kind, 0, 1], "version, type, request");
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let padding = usize::from(header[6]);
    assert_eq!((len + padding) % 8, 0);
    assert!(len + padding <= 65_535, "php-fpm reads no more at once");
    let content = take(bytes, len);
    assert_eq!(take(bytes, padding), &[0; 8][..padding]);
    content
}

fn read_variables(mut content: &[u8], variables: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    while !content.is_empty() {
        let name = length(&mut content);
        let value = length(&mut content);
        let [name, value] = [name, value].map(|len| take(&mut content, len).to_vec());
        variables.push((name, value));
    }
}

fn length(content: &mut &[u8]) -> usize {
    match take(content, 1)[0] {
        first @ 0..=127 => usize::from(first),
        first => {
            let rest = take(content, 3);
            u32::from_be_bytes([first & 127, rest[0], rest[1], rest[2]]) as usize
        }
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    assert!(len <= bytes.len(), "cut in a record");
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

/// A record of a response, with this number of non-zero padding bytes.
pub fn response_record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("fits in a record");
    let [len1, len0] = len.to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, len1, len0, padding, 0xff];
    bytes.extend(content);
    bytes.extend(std::iter::repeat_n(0xee, usize::from(padding)));
    bytes
}
