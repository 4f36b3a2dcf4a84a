//! As much of HTTP as Prometheus needs: GET of one path, a bearer token, one reply a connection.
//!
//! Invariant: a peer that sends nothing, or too much, is closed; it holds no more than its own connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The first line and the headers of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// A request has arrived by then, and a reply is taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    method: String,
    path: String,
    /// Of `Authorization: Bearer`.
    token: Option<String>,
}

/// What is to be done about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The metrics, with a body or (HEAD) without.
    Metrics { has_body: bool },
    /// A status and its reason.
    Refused(&'static str),
}

/// Reads the head of a request. `None`: it is none, or it did not come in time.
pub(super) fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut bytes)?;
        head.extend_from_slice(&bytes[..count]);
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(parse(&head[..end]));
        }
        if count == 0 {
            return Ok(None);
        }
    }
}

fn parse(head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let path = target.split('?').next()?;
    let bearer = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let (scheme, token) = value.trim().split_once(' ')?;
        let fits =
            name.eq_ignore_ascii_case("authorization") && scheme.eq_ignore_ascii_case("bearer");
        fits.then(|| token.trim().to_owned())
    };
    let token = lines.find_map(bearer);
    Some(Request { method: method.to_owned(), path: path.to_owned(), token })
}

/// Whether a request may have the metrics.
pub(super) fn judge(request: &Request, token: Option<&str>) -> Verdict {
    let shown = request.token.as_deref().unwrap_or_default();
    if token.is_some_and(|token| !is_same(token.as_bytes(), shown.as_bytes())) {
        return Verdict::Refused("401 Unauthorized");
    }
    match (request.path.as_str(), request.method.as_str()) {
        ("/metrics", "GET") => Verdict::Metrics { has_body: true },
        ("/metrics", "HEAD") => Verdict::Metrics { has_body: false },
        ("/metrics", _) => Verdict::Refused("405 Method Not Allowed"),
        _ => Verdict::Refused("404 Not Found"),
    }
}

/// Compared in a time that does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// Answers with the metrics.
pub(super) fn answer(stream: &mut TcpStream, text: &str, has_body: bool) -> io::Result<()> {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let body = if has_body { text } else { "" };
    write(stream, "200 OK", &format!("Content-Type: {kind}\r\n"), (text.len(), body))
}

/// Answers with a status alone.
pub(super) fn refuse(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    let more = match &status[..3] {
        "401" => "WWW-Authenticate: Bearer\r\n",
        "405" => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let body = format!("{status}\n");
    let more = format!("Content-Type: text/plain\r\n{more}");
    write(stream, status, &more, (body.len(), &body))
}

fn write(
    stream: &mut TcpStream,
    status: &str,
    more: &str,
    (body_bytes, body): (usize, &str),
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {body_bytes}\r\n{more}Connection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_is_a_line_and_headers() {
        let text = b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nAUTHORIZATION: bearer  abc ";
        let request = parse(text).unwrap();
        assert_eq!((request.path.as_str(), request.token.as_deref()), ("/metrics", Some("abc")));
        assert_eq!(parse(b"GET / HTTP/1.0").unwrap().token, None);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nAuthorization: Basic abc").unwrap().token, None);
        for wrong in [&b"GET /"[..], b"", b"GET / FTP/1", b"GET / x HTTP/1.1", b"\xff / HTTP/1.1"] {
            assert_eq!(parse(wrong), None);
        }
    }

    #[test]
    fn only_the_token_opens_and_only_the_metrics_are_there() {
        let request = |line: &str| parse(line.as_bytes()).unwrap();
        let plain = request("GET /metrics HTTP/1.1");
        let metrics = Verdict::Metrics { has_body: true };
        assert_eq!(judge(&plain, None), metrics);
        assert_eq!(judge(&plain, Some("abc")), Verdict::Refused("401 Unauthorized"));
        let with = |token: &str| {
            request(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}"))
        };
        assert_eq!(judge(&with("abc"), Some("abc")), metrics);
        for wrong in ["abd", "ab", "abcd", "x"] {
            assert_eq!(judge(&with(wrong), Some("abc")), Verdict::Refused("401 Unauthorized"));
        }
        assert_eq!(judge(&request("GET / HTTP/1.1"), None), Verdict::Refused("404 Not Found"));
        let posted = request("POST /metrics HTTP/1.1");
        assert_eq!(judge(&posted, None), Verdict::Refused("405 Method Not Allowed"));
        let headed = request("HEAD /metrics HTTP/1.1");
        assert_eq!(judge(&headed, None), Verdict::Metrics { has_body: false });
    }
}
