//! Random frames of a client: most of them right, so that a connection lives for some time.

use crate::support::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
    PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, frame,
};

/// Frames in a sequence, at most.
const FRAMES_MAX: u64 = 60;

/// Frames in which a header section is continued, at most. More are a matter of taste.
const CONTINUATIONS_MAX: u32 = 4;

/// The bytes of a payload that is too long.
const TOO_LONG: usize = 16 * 1024 + 1;

/// Numbers that are the same in each run (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Makes the frames of a connection after its preface.
pub struct Frames {
    random: Random,
    /// The streams that have begun.
    begun: Vec<u32>,
    /// Those whose body has most likely not ended.
    open: Vec<u32>,
}

impl Frames {
    pub fn of(seed: u64) -> Vec<Vec<u8>> {
        let mut this = Self {
            random: Random(seed),
            begun: Vec::new(),
            open: Vec::new(),
        };
        let count = 5 + this.random.below(FRAMES_MAX - 5);
        let mut all = Vec::new();
        while (all.len() as u64) < count {
            this.next(&mut all);
        }
        all
    }

    fn next(&mut self, all: &mut Vec<Vec<u8>>) {
        match self.random.below(100) {
            0..32 => self.request(all),
            32..62 if self.open.is_empty() => self.request(all),
            32..56 => self.data(all),
            56..62 => self.trailers(all),
            62..69 => all.push(self.reset()),
            69..79 => all.push(self.window()),
            79..84 => all.push(self.settings()),
            84..89 => all.push(self.ping()),
            89..93 => all.push(self.priority()),
            93..97 => all.push(self.of_no_effect()),
            97 => all.push(self.priority_update()),
            _ if self.random.once_in(6) => all.push(self.any()),
            _ => {}
        }
    }

    /// A stream: most often one that has begun.
    fn stream(&mut self) -> u32 {
        let last = self.begun.last().copied().unwrap_or(0);
        match self.random.below(800) {
            0 => 0,
            1 => last + 1,
            2 => last + 2,
            3 => self.random.one_of(&[2, 1, 0x7fff_ffff, 0x8000_0001]),
            _ if self.begun.is_empty() => 1,
            _ => {
                let recent = self.begun.len().saturating_sub(6);
                let begun = self.begun[recent..].to_vec();
                self.random.one_of(&begun)
            }
        }
    }

    /// A stream that most likely has a body to come.
    fn open_stream(&mut self) -> u32 {
        match self.open.is_empty() || self.random.once_in(100) {
            true => self.stream(),
            false => {
                let open = self.open.clone();
                self.random.one_of(&open)
            }
        }
    }

    fn request(&mut self, all: &mut Vec<Vec<u8>>) {
        let last = self.begun.last().copied().unwrap_or(0);
        let stream = match self.random.below(60) {
            0 => self.stream(),
            1..6 if last > 0 => last + 4,
            _ if last > 0 => last + 2,
            _ => 1,
        };
        if stream > last && stream < 1 << 30 && !stream.is_multiple_of(2) {
            self.begun.push(stream);
        }
        let ends = self.random.below(2) as u8 * END_STREAM;
        if ends == 0 {
            self.open.push(stream);
        }
        let block = self.request_block();
        self.section(all, stream, ends, block);
    }

    fn trailers(&mut self, all: &mut Vec<Vec<u8>>) {
        let stream = self.open_stream();
        self.open.retain(|open| *open != stream);
        let fields: &[(&str, &str)] = match self.random.below(30) {
            0 => &[(":path", "/")],
            1 => &[("Upper", "a")],
            2 => &[],
            3 => &[("x-sum", "1"), ("x-other", "2")],
            _ => &[("x-sum", "1")],
        };
        let mut block = Vec::new();
        for (name, value) in fields {
            self.field(&mut block, name.as_bytes(), value.as_bytes());
        }
        let ends = if self.random.once_in(12) {
            0
        } else {
            END_STREAM
        };
        self.section(all, stream, ends, block);
    }

    /// The frames of a header section, with padding, priority and continuations.
    fn section(&mut self, all: &mut Vec<Vec<u8>>, stream: u32, ends: u8, block: Vec<u8>) {
        let (mut flags, mut start) = (ends, Vec::new());
        if self.random.once_in(8) {
            flags |= WITH_PRIORITY;
            // Of a stream that depends on itself, theirs does not decode the section, and misses what later ones build on.
            let parent: u32 = self.random.one_of(&[0, 0x8000_0000]);
            start.extend(parent.to_be_bytes());
            start.push(self.random.next() as u8);
        }
        let cut = match self.random.once_in(6) {
            true => self.random.below(block.len() as u64 + 1) as usize,
            false => block.len(),
        };
        let (first, mut rest) = block.split_at(cut);
        start.extend(first);
        let is_whole = rest.is_empty() && !self.random.once_in(20);
        flags |= if is_whole { END_HEADERS } else { 0 };
        let payload = self.padded(&mut flags, start);
        all.push(frame(HEADERS, flags, stream, &payload));
        if is_whole {
            return;
        }
        for left in (0..CONTINUATIONS_MAX).rev() {
            let end = match left {
                0 => rest.len(),
                _ => self.random.below(rest.len() as u64 + 1) as usize,
            };
            let (part, more) = rest.split_at(end);
            let is_last = left == 0 || (more.is_empty() && !self.random.once_in(10));
            if self.random.once_in(200) {
                all.push(self.ping());
            }
            let stream = stream + 2 * u32::from(self.random.once_in(200));
            let flags = if is_last { END_HEADERS } else { 0 };
            all.push(frame(CONTINUATION, flags, stream, part));
            if is_last {
                return;
            }
            rest = more;
        }
    }

    /// `payload` with padding, or as it is.
    fn padded(&mut self, flags: &mut u8, payload: Vec<u8>) -> Vec<u8> {
        if !self.random.once_in(7) {
            return payload;
        }
        *flags |= PADDED;
        let padding = self.random.below(20) as u8;
        // Sometimes it is said to be longer than the frame.
        let said = match self.random.once_in(150) {
            true => 255,
            false => padding,
        };
        [vec![said], payload, vec![0; padding.into()]].concat()
    }

    fn request_block(&mut self) -> Vec<u8> {
        if self.random.once_in(150) {
            let count = self.random.below(30) as usize;
            return self.random.bytes(count);
        }
        let mut block = Vec::new();
        if self.random.once_in(30) {
            // A change of the size of the table.
            block.push(0x20 | self.random.one_of(&[0, 1, 30]));
        }
        let mut fields = self.fields();
        if self.random.once_in(12) {
            let (name, value) = self.random.one_of(ODD);
            fields.push((name.to_owned(), value.to_owned()));
        }
        if self.random.once_in(40) && fields.len() > 1 {
            let at = self.random.below(fields.len() as u64 - 1) as usize;
            match self.random.below(3) {
                0 => drop(fields.remove(at)),
                1 => fields.swap(at, at + 1),
                _ => {
                    let again = fields[at].clone();
                    fields.push(again);
                }
            }
        }
        for (name, value) in &fields {
            self.field(&mut block, name.as_bytes(), value.as_bytes());
        }
        if self.random.once_in(60) {
            // A field of the table, which need not be there.
            block.push(0x80 | (62 + self.random.below(6) as u8));
        }
        block
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let method = self
            .random
            .one_of(&["GET", "POST", "POST", "PUT", "HEAD", "OPTIONS"]);
        let path = self
            .random
            .one_of(&["/", "/a", "/a?b=c", "/%20", "/a/../b"]);
        let mut fields = vec![
            (":method", method),
            (":scheme", self.random.one_of(&["http", "https"])),
            (":path", path),
            (":authority", self.random.one_of(&["h", "a.test:80"])),
        ];
        for more in [
            ("accept", "text/html, */*"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("content-length", "5"),
            ("priority", "u=1, i"),
            ("x-empty", ""),
        ] {
            if self.random.once_in(5) {
                fields.push(more);
            }
        }
        let owned = fields.into_iter();
        owned
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Appends a field in one of the forms of RFC 7541, 6.
    fn field(&mut self, block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let known: Option<u8> = match (name, value) {
            (b":method", b"GET") => Some(2),
            (b":method", b"POST") => Some(3),
            (b":path", b"/") => Some(4),
            (b":scheme", b"http") => Some(6),
            (b":scheme", b"https") => Some(7),
            _ => None,
        };
        if let Some(index) = known.filter(|_| self.random.once_in(2)) {
            return block.push(0x80 | index);
        }
        block.push(self.random.one_of(&[0, 0x10, 0x40]));
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a short text"));
            block.extend_from_slice(text);
        }
    }

    fn data(&mut self, all: &mut Vec<Vec<u8>>) {
        let stream = self.open_stream();
        // A body whose length is announced has five bytes.
        let bytes = match self.random.below(60) {
            0 if self.random.once_in(12) => TOO_LONG,
            0..6 => 16 * 1024,
            6..12 => 0,
            12..30 => 5,
            _ => self.random.below(8) as usize,
        };
        // Sometimes more than the window.
        let times = match bytes == 16 * 1024 && self.random.once_in(3) {
            true => 17,
            false => 1,
        };
        for _ in 0..times {
            let ends = if self.random.once_in(3) && times == 1 {
                END_STREAM
            } else {
                0
            };
            if ends != 0 {
                self.open.retain(|open| *open != stream);
            }
            let mut flags = ends;
            let payload = match bytes {
                0..1000 => self.padded(&mut flags, vec![b'a'; bytes]),
                _ => vec![b'a'; bytes],
            };
            all.push(frame(DATA, flags, stream, &payload));
        }
    }

    fn reset(&mut self) -> Vec<u8> {
        let stream = self.stream();
        let code = self.random.one_of(&[0_u32, 5, 8, 8, 99]).to_be_bytes();
        let bytes = if self.random.once_in(120) { 3 } else { 4 };
        self.open.retain(|open| *open != stream);
        frame(RST_STREAM, 0, stream, &code[..bytes])
    }

    fn window(&mut self) -> Vec<u8> {
        let stream = if self.random.once_in(3) {
            0
        } else {
            self.stream()
        };
        let more = match self.random.below(120) {
            0 => 0,
            1 => 0x7fff_ffff,
            2 => 0x8000_0001,
            _ => 1 + self.random.below(100_000) as u32,
        };
        let bytes = if self.random.once_in(150) { 3 } else { 4 };
        frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()[..bytes])
    }

    fn settings(&mut self) -> Vec<u8> {
        match self.random.below(120) {
            0 => return frame(SETTINGS, 0, 1, &[]),
            1 => return frame(SETTINGS, 0, 0, &[0; 5]),
            2 => return frame(SETTINGS, ACK, 0, &[0; 6]),
            _ => {}
        }
        let mut payload = Vec::new();
        for _ in 0..self.random.below(3) {
            let (id, value) = match self.random.below(90) {
                0 => self.random.one_of(&[
                    (2_u16, 2_u32),
                    (4, 0x8000_0000),
                    (5, 1),
                    (5, 1 << 24),
                    (8, 2),
                ]),
                _ => self.random.one_of(&[
                    (1, 100),
                    (2, 0),
                    (3, 7),
                    (4, 0),
                    (4, 1000),
                    (4, 0x7fff_ffff),
                    (5, 1 << 14),
                    (6, 100_000),
                    (77, 1),
                ]),
            };
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        frame(SETTINGS, 0, 0, &payload)
    }

    fn ping(&mut self) -> Vec<u8> {
        let (bytes, stream) = match self.random.below(150) {
            0 => (7, 0),
            1 => (8, 1),
            _ => (8, 0),
        };
        let flags = if self.random.once_in(10) { ACK } else { 0 };
        let payload = self.random.bytes(bytes);
        frame(PING, flags, stream, &payload)
    }

    fn priority(&mut self) -> Vec<u8> {
        let stream = if self.random.once_in(4) {
            41
        } else {
            self.stream()
        };
        let parent = if self.random.once_in(60) { stream } else { 0 };
        let mut payload = parent.to_be_bytes().to_vec();
        payload.push(16);
        payload.truncate(if self.random.once_in(90) { 4 } else { 5 });
        frame(PRIORITY, 0, stream, &payload)
    }

    fn priority_update(&mut self) -> Vec<u8> {
        let stream = self.stream();
        let payload = [&stream.to_be_bytes()[..], b"u=2"].concat();
        frame(PRIORITY_UPDATE, 0, 0, &payload)
    }

    /// A frame of an unknown type, or one that says that the client leaves.
    fn of_no_effect(&mut self) -> Vec<u8> {
        if self.random.once_in(12) {
            return frame(GOAWAY, 0, 0, &[0; 8]);
        }
        let count = self.random.below(20) as usize;
        let (flags, payload) = (self.random.next() as u8, self.random.bytes(count));
        let stream = self.stream();
        let kind = self.random.one_of(&[11, 99, 255]);
        frame(kind, flags, stream, &payload)
    }

    fn any(&mut self) -> Vec<u8> {
        let kind = self.random.one_of(&[
            DATA,
            HEADERS,
            PRIORITY,
            RST_STREAM,
            SETTINGS,
            PUSH_PROMISE,
            PING,
            GOAWAY,
            WINDOW_UPDATE,
            CONTINUATION,
        ]);
        let count = self.random.below(12) as usize;
        let (flags, payload) = (self.random.next() as u8, self.random.bytes(count));
        let stream = self.stream();
        frame(kind, flags, stream, &payload)
    }
}

/// Fields of which most make a request malformed (RFC 9113, 8.2 and 8.3).
const ODD: &[(&str, &str)] = &[
    ("Upper", "a"),
    ("connection", "close"),
    ("transfer-encoding", "chunked"),
    ("te", "gzip"),
    ("te", "trailers"),
    ("", "a"),
    ("a b", "c"),
    ("x", " a"),
    ("x", "a\r\nb: c"),
    ("x", "a\0"),
    (":unknown", "a"),
    (":status", "200"),
    (":path", "/late"),
    (":protocol", "websocket"),
    ("content-length", "0"),
    ("content-length", "x"),
    ("content-length", "7"),
    ("host", "h"),
    ("expect", "100-continue"),
];
