//! Packets to a container: requests, their bodies, and pings.

use super::{PACKET_BYTES_MAX, PACKET_HEADER_BYTES};
use crate::Reject;
use crate::http1::{Version, is_control};

const MAGIC: [u8; 2] = [0x12, 0x34];

const FORWARD_REQUEST: u8 = 2;

/// A CPing: checks whether an idle container is alive. It responds with CPong.
pub const PING: [u8; 5] = [MAGIC[0], MAGIC[1], 0, 1, 10];

/// Maximum bytes of a request's body in one packet.
pub const BODY_BYTES_MAX: usize = PACKET_BYTES_MAX - PACKET_HEADER_BYTES - 2;

/// A body packet without data: the end of the body.
const END_OF_BODY: [u8; 4] = [MAGIC[0], MAGIC[1], 0, 0];

/// The code of a method is its index in this list, counted from 1.
const METHODS: [&[u8]; 27] = [
    b"OPTIONS",
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"TRACE",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"ACL",
    b"REPORT",
    b"VERSION-CONTROL",
    b"CHECKIN",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"SEARCH",
    b"MKWORKSPACE",
    b"UPDATE",
    b"LABEL",
    b"MERGE",
    b"BASELINE-CONTROL",
    b"MKACTIVITY",
];

/// The code for all other methods: the name follows as an attribute.
const STORED_METHOD: u8 = 0xff;

/// The code of a header name is its index in this list, counted from `0xA001`.
const HEADER_NAMES: [&[u8]; 14] = [
    b"accept",
    b"accept-charset",
    b"accept-encoding",
    b"accept-language",
    b"authorization",
    b"connection",
    b"content-type",
    b"content-length",
    b"cookie",
    b"cookie2",
    b"host",
    b"pragma",
    b"referer",
    b"user-agent",
];

/// Codes of attributes.
mod attribute {
    pub(super) const QUERY_STRING: u8 = 5;
    /// Followed by a name and a value.
    pub(super) const NAMED: u8 = 10;
    pub(super) const SECRET: u8 = 12;
    pub(super) const STORED_METHOD: u8 = 13;
    pub(super) const END: u8 = 0xff;
}

const TOO_LARGE: Reject = Reject::new(431, "request headers do not fit in an AJP13 packet");

/// A request for a container, without its headers.
///
/// It has no user: the application authenticates the client from the headers.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// As sent, in upper or lower case.
    pub method: &'a [u8],
    /// The version that the client spoke.
    pub version: Version,
    /// As sent, not decoded, without the query. Tomcat cuts `;x` off each segment before it removes
    /// `..`, so it reads `/a/..;/b` as `/b`: access checks must interpret the path in the same way.
    pub path: &'a [u8],
    /// As sent, not decoded, without its `?`.
    pub query: Option<&'a [u8]>,
    /// The client's address.
    pub remote_address: &'a [u8],
    /// The client's port.
    pub remote_port: Option<u16>,
    /// The requested host, without its port.
    pub server_name: &'a [u8],
    /// The requested port.
    pub server_port: u16,
    /// Whether the client used TLS.
    pub secure: bool,
    /// The shared secret that the container requires of its peers, if any.
    pub secret: Option<&'a [u8]>,
}

/// Appends the packet that starts a request. Header names may be in any case; a `content-length`
/// among them determines the next packet that the container reads: see [`Upload`].
///
/// # Errors
/// 431 if it exceeds [`PACKET_BYTES_MAX`]: the protocol cannot split it. 400 for a control
/// character other than HTAB, and for a path that neither starts with `/` nor is `*`. `out` is then
/// unchanged.
pub fn write_head<'a>(
    head: &Head<'_>,
    headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), Reject> {
    let start = out.len();
    let written = Packet::start(out).head(head, headers);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// A packet under construction at the end of `out`.
struct Packet<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Packet<'o> {
    fn start(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend([MAGIC[0], MAGIC[1], 0, 0]);
        Self { out, start }
    }

    fn head<'a>(
        mut self,
        head: &Head<'_>,
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), Reject> {
        self.byte(FORWARD_REQUEST);
        let method = METHODS.iter().position(|method| *method == head.method);
        self.byte(method.map_or(STORED_METHOD, |index| index as u8 + 1));
        self.string(head.version.name())?;
        // Tomcat treats a path that begins with "http" as a whole URI, whose host overrides Host.
        if !head.path.starts_with(b"/") && head.path != b"*" {
            return Err(Reject::bad("request for a container without a path"));
        }
        self.string(head.path)?;
        self.string(head.remote_address)?;
        // The client's name is its address: without a name, Tomcat would query a resolver.
        self.string(head.remote_address)?;
        self.string(head.server_name)?;
        self.integer(head.server_port);
        self.byte(u8::from(head.secure));
        self.headers(headers)?;
        self.attributes(head, method.is_none())?;
        self.finish()
    }

    fn headers<'a>(
        &mut self,
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), Reject> {
        let count_at = self.out.len();
        self.integer(0);
        // A line takes at least five bytes of a packet, so the count fits.
        let mut count = 0u16;
        for (name, value) in headers {
            let index = HEADER_NAMES
                .iter()
                .position(|known| name.eq_ignore_ascii_case(known));
            match index {
                Some(index) => self.integer(0xa001 + index as u16),
                None => self.string(name)?,
            }
            self.string(value)?;
            count += 1;
        }
        self.out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        Ok(())
    }

    fn attributes(&mut self, head: &Head<'_>, stored_method: bool) -> Result<(), Reject> {
        if let Some(query) = head.query {
            self.byte(attribute::QUERY_STRING);
            self.string(query)?;
        }
        if let Some(port) = head.remote_port {
            // The protocol has no field for the port. Tomcat knows this name and rejects unknown
            // ones.
            self.byte(attribute::NAMED);
            self.string(b"AJP_REMOTE_PORT")?;
            self.string(port.to_string().as_bytes())?;
        }
        if let Some(secret) = head.secret {
            self.byte(attribute::SECRET);
            self.string(secret)?;
        }
        if stored_method {
            self.byte(attribute::STORED_METHOD);
            self.string(head.method)?;
        }
        self.byte(attribute::END);
        Ok(())
    }

    fn finish(self) -> Result<(), Reject> {
        let packet = &mut self.out[self.start..];
        if packet.len() > PACKET_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        let bytes = (packet.len() - PACKET_HEADER_BYTES) as u16;
        packet[2..PACKET_HEADER_BYTES].copy_from_slice(&bytes.to_be_bytes());
        Ok(())
    }

    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    fn integer(&mut self, integer: u16) {
        self.out.extend(integer.to_be_bytes());
    }

    /// Writes length, bytes and a NUL that the length does not count. Only strings can make a
    /// packet large, so the limit is checked here, before anything is copied.
    fn string(&mut self, string: &[u8]) -> Result<(), Reject> {
        let written = self.out.len() - self.start;
        if written + string.len() > PACKET_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        if string.iter().any(|&byte| is_control(byte)) {
            return Err(Reject::bad("control character in a string for a container"));
        }
        self.integer(string.len() as u16);
        self.out.extend_from_slice(string);
        self.byte(0);
        Ok(())
    }
}

/// Flow control for a request's body. The container accepts one body packet at a time: the first
/// without a request for it if there is a Content-Length above 0, each further one after a
/// [`GetBodyChunk`](super::Message::GetBodyChunk). It would parse any other packet as the next
/// request.
///
/// Tomcat ends no response before it has the packet that it waits for. If a container nevertheless
/// ends its response earlier, the connection must not be reused.
#[derive(Debug, Clone)]
pub struct Upload {
    credit: usize,
}

impl Upload {
    /// For a request with this Content-Length, or none.
    pub fn new(content_length: Option<u64>) -> Self {
        let at_once = content_length.is_some_and(|length| length > 0);
        Self {
            credit: if at_once { BODY_BYTES_MAX } else { 0 },
        }
    }

    /// Bytes that the next packet may contain; 0 while no packet may be sent.
    pub fn credit(&self) -> usize {
        self.credit
    }

    /// Handles a GetBodyChunk, which requests at most this number of bytes.
    ///
    /// # Errors
    /// 502 if it already waits for a packet, or requests 0 bytes: the response to that would end
    /// the body.
    pub fn grant(&mut self, requested: u16) -> Result<(), Reject> {
        if self.credit > 0 {
            return Err(Reject::bad_gateway(
                "container requests a body packet while it waits for one",
            ));
        }
        if requested == 0 {
            return Err(Reject::bad_gateway("container requests no bytes"));
        }
        self.credit = BODY_BYTES_MAX.min(usize::from(requested));
        Ok(())
    }

    /// Appends a packet with the first bytes of `data`, and returns their number. Writes nothing
    /// and returns 0 while the container does not wait for a packet, and without data.
    pub fn write(&mut self, data: &[u8], out: &mut Vec<u8>) -> usize {
        let bytes = data.len().min(self.credit);
        if bytes > 0 {
            out.extend(MAGIC);
            out.extend((bytes as u16 + 2).to_be_bytes());
            out.extend((bytes as u16).to_be_bytes());
            out.extend_from_slice(&data[..bytes]);
            self.credit = 0;
        }
        bytes
    }

    /// Signals the end of the body to a container that waits for data: after a chunked body, and
    /// for a request without a body whose application reads nevertheless. Returns whether it
    /// waited.
    pub fn write_end(&mut self, out: &mut Vec<u8>) -> bool {
        let waits = self.credit > 0;
        if waits {
            out.extend(END_OF_BODY);
            self.credit = 0;
        }
        waits
    }
}
