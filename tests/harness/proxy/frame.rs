//! Where one RESP message ends and the next begins, from bytes that come in any pieces.
//!
//! Knows the shapes of RESP2 and RESP3, not their meaning: enough to count and to keep whole what
//! must be held or dropped as a whole. Pure: no I/O, no clock.
//!
//! # Invariants
//! 1. The frames together are the bytes that went in, in order, however they were cut into pieces.
//! 2. What is not RESP (TLS, say) is passed through as it comes and never waits for an end.

use bytes::{Bytes, BytesMut};

/// Which side wrote the bytes: clients may also send commands as plain lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// One message, or a piece of something that is not RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) is_resp: bool,
}

impl Frame {
    /// The first word in capitals: a request's command, a push's kind. Empty if there is none.
    pub(super) fn word(&self) -> String {
        let word = first_word(&self.bytes).unwrap_or_default();
        String::from_utf8_lossy(word).to_uppercase()
    }

    /// Whether `text` stands anywhere in it, in capitals or not.
    pub(super) fn contains(&self, text: &str) -> bool {
        let text = text.as_bytes();
        text.is_empty()
            || self
                .bytes
                .windows(text.len())
                .any(|part| part.eq_ignore_ascii_case(text))
    }

    /// Whether it is of this RESP type, such as `b'>'` for a push.
    pub(super) fn is(&self, kind: u8) -> bool {
        self.is_resp && self.bytes.first() == Some(&kind)
    }
}

/// Cuts the bytes of one side of one connection into frames.
#[derive(Debug)]
pub(super) struct Scanner {
    side: Side,
    bytes: BytesMut,
    // End of what was scanned of the frame at the front, and how many values it still lacks.
    scanned: usize,
    lacking: usize,
    is_resp: bool,
}

/// What lies at the place that is scanned.
enum Shape {
    /// A value of `length` bytes, followed by `inner` values that belong to it.
    Value {
        length: usize,
        inner: usize,
    },
    /// RESP3 attributes: like a value, but the value that they describe is still to come.
    Attributes {
        length: usize,
        inner: usize,
    },
    Incomplete,
    NotResp,
}

impl Scanner {
    pub(super) fn new(side: Side) -> Self {
        Self {
            side,
            bytes: BytesMut::new(),
            scanned: 0,
            lacking: 1,
            is_resp: true,
        }
    }

    /// Where to read new bytes into.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Takes all that comes from now on for something that is not RESP.
    pub(super) fn pass_through(&mut self) {
        self.is_resp = false;
    }

    /// The next whole frame, if it is there.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        while self.is_resp && self.lacking > 0 {
            let (length, lacking) = match self.shape() {
                Shape::Value { length, inner } => (length, self.lacking - 1 + inner),
                Shape::Attributes { length, inner } => (length, self.lacking + inner),
                Shape::Incomplete => return None,
                Shape::NotResp => break,
            };
            self.scanned += length;
            self.lacking = lacking;
        }
        if self.lacking > 0 {
            self.is_resp = false;
            return self.rest();
        }
        self.lacking = 1;
        let bytes = self
            .bytes
            .split_to(std::mem::take(&mut self.scanned))
            .freeze();
        Some(Frame {
            bytes,
            is_resp: true,
        })
    }

    /// What is there of a frame that will not become whole any more.
    pub(super) fn rest(&mut self) -> Option<Frame> {
        let bytes = self.bytes.split().freeze();
        (!bytes.is_empty()).then_some(Frame {
            bytes,
            is_resp: false,
        })
    }

    fn shape(&self) -> Shape {
        let rest = &self.bytes[self.scanned..];
        let Some(&kind) = rest.first() else {
            return Shape::Incomplete;
        };
        let is_inline = self.side == Side::Client && self.scanned == 0 && kind != b'*';
        if !(is_inline && kind.is_ascii_alphanumeric() || b"+-:_,#($=!*~>%|".contains(&kind)) {
            return Shape::NotResp;
        }
        let Some(line) = rest.iter().position(|byte| *byte == b'\n') else {
            return Shape::Incomplete;
        };
        let line = line + 1;
        if is_inline {
            return Shape::Value {
                length: line,
                inner: 0,
            };
        }
        shape_of(kind, &rest[..line], rest.len())
    }
}

/// `line` is the whole first line with its end; `there` is how many bytes there are with it.
fn shape_of(kind: u8, line: &[u8], there: usize) -> Shape {
    let length = line.len();
    match (kind, count(line)) {
        (b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(', _) => Shape::Value { length, inner: 0 },
        (_, None) => Shape::NotResp,
        (b'$' | b'=' | b'!', Some(Count::Null)) => Shape::Value { length, inner: 0 },
        (b'$' | b'=' | b'!', Some(Count::Of(size))) => match length.checked_add(size + 2) {
            Some(length) if length <= there => Shape::Value { length, inner: 0 },
            _ => Shape::Incomplete,
        },
        (_, Some(Count::Null)) => Shape::Value { length, inner: 0 },
        (b'%', Some(Count::Of(pairs))) => Shape::Value {
            length,
            inner: 2 * pairs,
        },
        (b'|', Some(Count::Of(pairs))) => Shape::Attributes {
            length,
            inner: 2 * pairs,
        },
        (_, Some(Count::Of(inner))) => Shape::Value { length, inner },
    }
}

enum Count {
    Null,
    Of(usize),
}

/// The number in a line such as `*3\r\n`. Sizes beyond 2^31 are no Redis.
fn count(line: &[u8]) -> Option<Count> {
    let digits = line.get(1..)?.strip_suffix(b"\r\n")?;
    match std::str::from_utf8(digits).ok()?.parse::<i32>().ok()? {
        -1 => Some(Count::Null),
        count => usize::try_from(count).ok().map(Count::Of),
    }
}

fn first_word(frame: &[u8]) -> Option<&[u8]> {
    if !b"*>".contains(frame.first()?) {
        return frame.split(u8::is_ascii_whitespace).next();
    }
    let mut lines = frame.split(|byte| *byte == b'\n').skip(1);
    let head = lines.next()?;
    let text = if head.starts_with(b"$") {
        lines.next()?
    } else {
        head.get(1..)?
    };
    Some(text.trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frames(side: Side, pieces: &[&[u8]]) -> Vec<Bytes> {
        let mut scanner = Scanner::new(side);
        let mut frames = Vec::new();
        for piece in pieces {
            scanner.buffer().extend_from_slice(piece);
            frames.extend(std::iter::from_fn(|| scanner.next_frame()).map(|frame| frame.bytes));
        }
        frames
    }

    const REPLIES: [&[u8]; 14] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$7\r\n*1\r\n:1\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n$1\r\na\r\n_\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
        b"%1\r\n+a\r\n~1\r\n#t\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        b"=7\r\ntxt:a\r\n\r\n",
        b"(123456789012345678901234567890\r\n",
    ];

    #[test]
    fn every_reply_is_one_frame() {
        for reply in REPLIES {
            assert_eq!(frames(Side::Server, &[reply]), [Bytes::from_static(reply)]);
        }
    }

    #[test]
    fn a_line_is_a_request_but_not_a_reply() {
        assert_eq!(frames(Side::Client, &[b"PING\r\nQU", b"IT\r\n"]).len(), 2);
        let mut scanner = Scanner::new(Side::Server);
        scanner.buffer().extend_from_slice(b"HTTP");
        assert!(!scanner.next_frame().unwrap().is_resp);
    }

    #[test]
    fn tls_is_passed_through_as_it_comes() {
        let pieces: [&[u8]; 2] = [b"\x16\x03\x01\x00", b"*1\r\n"];
        assert_eq!(
            frames(Side::Client, &pieces),
            pieces.map(Bytes::from_static)
        );
    }

    #[test]
    fn first_words_are_commands_and_kinds() {
        for (bytes, word) in [
            (&b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n"[..], "GET"),
            (b"ping now\r\n", "PING"),
            (b">2\r\n+invalidate\r\n_\r\n", "INVALIDATE"),
            (b"*0\r\n", ""),
        ] {
            let frame = Frame {
                bytes: Bytes::from_static(bytes),
                is_resp: true,
            };
            assert_eq!(frame.word(), word);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_frames(
            which in vec(0..REPLIES.len(), 1..20),
            sizes in vec(1_usize..9, 1..200),
        ) {
            let expected: Vec<_> = which.iter().map(|index| Bytes::from_static(REPLIES[*index])).collect();
            let all = expected.concat();
            let mut pieces = Vec::new();
            let mut rest = &all[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(rest.len().min(*size));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(frames(Side::Server, &pieces), expected);
        }

        #[test]
        fn no_byte_is_lost_of_whatever_comes(pieces in vec(vec(any::<u8>(), 0..30), 0..20)) {
            let mut scanner = Scanner::new(Side::Client);
            let mut out = Vec::new();
            for piece in &pieces {
                scanner.buffer().extend_from_slice(piece);
                while let Some(frame) = scanner.next_frame() {
                    out.extend_from_slice(&frame.bytes);
                }
            }
            out.extend(scanner.rest().map(|frame| frame.bytes).unwrap_or_default());
            prop_assert_eq!(out, pieces.concat());
        }
    }
}
