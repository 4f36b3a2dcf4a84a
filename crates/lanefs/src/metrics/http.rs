//! As much of HTTP as Prometheus and a page need: GET of a few paths, a bearer token, one reply a connection.
//!
//! Invariants: a peer that sends nothing, sends too much or takes too little is closed in time, and holds no
//! more than its own connection. A token is in no line that is logged or answered.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
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
    /// By which name the peer reached this server, with a port or without.
    host: Option<String>,
}

/// What there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The page, which has no data of the server.
    Page,
    /// For Prometheus.
    Metrics,
    /// For the page.
    Counters,
    /// Slow and waiting requests, for the page.
    Requests,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    NoRequest,
    NoToken,
    OtherHost,
    NotFound,
    Method,
    TooMany,
    NoAnswer { lane_no: usize },
    Failed,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Body {
    /// Header lines of its own.
    headers: String,
    text: String,
}

impl Body {
    pub(super) fn metrics(text: String) -> Self {
        Self {
            headers: "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n".to_owned(),
            text,
        }
    }

    pub(super) fn json(text: String) -> Self {
        Self { headers: "Content-Type: application/json\r\n".to_owned(), text }
    }

    /// `policy`: what the browser may load and execute.
    pub(super) fn page(text: String, policy: &str) -> Self {
        let headers = format!(
            "Content-Type: text/html; charset=utf-8\r\nContent-Security-Policy: {policy}\r\n\
             X-Frame-Options: DENY\r\n"
        );
        Self { headers, text }
    }
}

impl Refusal {
    const fn status(self) -> &'static str {
        match self {
            Self::NoRequest => "400 Bad Request",
            Self::NoToken => "401 Unauthorized",
            Self::OtherHost => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::TooMany | Self::NoAnswer { .. } => "503 Service Unavailable",
            Self::Failed => "500 Internal Server Error",
        }
    }

    /// What a person can do about it.
    fn text(self) -> String {
        match self {
            Self::NoRequest => {
                "This is no HTTP request of at most 8 KiB that arrived within 5 seconds.".to_owned()
            }
            Self::NoToken => "The counters are for those who send the token of --metrics-token-file: \
                              `Authorization: Bearer TOKEN`, or in a browser http://HOST:PORT/#token=TOKEN"
                .to_owned(),
            Self::OtherHost => "Without --metrics-token-file the counters are for this machine, by \
                                localhost or a loopback address; this request names another host."
                .to_owned(),
            Self::NotFound => "There is `/`, a page, `/metrics` for Prometheus, `/api/counters`, \
                               the same as JSON, and `/api/requests`, what is slow or waits."
                .to_owned(),
            Self::Method => "There is only GET and HEAD: nothing can be changed here.".to_owned(),
            Self::TooMany => "Too many connections at a time; try again.".to_owned(),
            Self::NoAnswer { lane_no } => {
                format!("Lane {lane_no} of the server did not answer within 5 seconds.")
            }
            Self::Failed => "The server's log says what failed.".to_owned(),
        }
    }

    const fn header(self) -> &'static str {
        match self {
            Self::NoToken => "WWW-Authenticate: Bearer\r\n",
            Self::Method => "Allow: GET, HEAD\r\n",
            Self::NoRequest | Self::OtherHost | Self::NotFound | Self::TooMany => "",
            Self::NoAnswer { .. } | Self::Failed => "",
        }
    }
}

/// Reads the head of a request. `None`: it is none, or it did not come in time.
pub(super) fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let deadline = Instant::now() + PATIENCE;
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
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let header = |wanted: &str| {
        let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim())
    };
    let bearer = header("authorization").and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        token: bearer.map(|(_, token)| token.trim().to_owned()),
        host: header("host").map(str::to_owned),
    })
}

/// What a request may have, with a body or (HEAD) without.
pub(super) fn judge(request: &Request, token: Option<&str>) -> Result<(Wanted, bool), Refusal> {
    let is_own_host = request.host.as_deref().is_none_or(is_loopback);
    if token.is_none() && !is_own_host {
        // A web page that has its own name resolved to a loopback address would be let in otherwise.
        return Err(Refusal::OtherHost);
    }
    let wanted = match request.path.as_str() {
        "/" => Wanted::Page,
        "/metrics" => Wanted::Metrics,
        "/api/counters" => Wanted::Counters,
        "/api/requests" => Wanted::Requests,
        _ => return Err(Refusal::NotFound),
    };
    let has_body = match request.method.as_str() {
        "GET" => true,
        "HEAD" => false,
        _ => return Err(Refusal::Method),
    };
    let shown = request.token.as_deref().unwrap_or_default();
    let opens = token.is_none_or(|token| is_same(token.as_bytes(), shown.as_bytes()));
    // A browser gets the page before it knows the token, which the page then sends.
    if opens || wanted == Wanted::Page { Ok((wanted, has_body)) } else { Err(Refusal::NoToken) }
}

/// Whether a Host header names this machine by loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}

/// Compared in a time that does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// Answers with what was asked for.
pub(super) fn answer(stream: &mut TcpStream, body: &Body, has_body: bool) -> io::Result<()> {
    let head = head("200 OK", &body.headers, body.text.len());
    let text = if has_body { body.text.as_str() } else { "" };
    write(stream, &[head.as_bytes(), text.as_bytes()].concat())
}

/// Answers with a status, and what can be done about it.
pub(super) fn refuse(stream: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    write(stream, refused(refusal).as_bytes())
}

/// The same without waiting for anything.
pub(super) fn refuse_at_once(stream: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.write(refused(refusal).as_bytes()).map(drop)
}

fn refused(refusal: &Refusal) -> String {
    let body = format!("{}\n{}\n", refusal.status(), refusal.text());
    let headers = format!("Content-Type: text/plain; charset=utf-8\r\n{}", refusal.header());
    head(refusal.status(), &headers, body.len()) + &body
}

fn head(status: &str, headers: &str, body_bytes: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {body_bytes}\r\n{headers}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n"
    )
}

/// Writes all, as long as the peer takes it in time.
fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
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
        assert_eq!(request.host.as_deref(), Some("x"));
        assert_eq!(parse(b"GET / HTTP/1.0").unwrap().token, None);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nAuthorization: Basic abc").unwrap().token, None);
        for wrong in [&b"GET /"[..], b"", b"GET / FTP/1", b"GET / x HTTP/1.1", b"\xff / HTTP/1.1"] {
            assert_eq!(parse(wrong), None);
        }
    }

    fn request(line: &str) -> Request {
        parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn only_the_token_opens_and_only_what_is_listed_is_there() {
        let with = |path: &str, token: &str| {
            let line = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}");
            judge(&request(&line), Some("abc"))
        };
        for (path, wanted) in [
            ("/metrics", Wanted::Metrics),
            ("/api/counters", Wanted::Counters),
            ("/api/requests", Wanted::Requests),
        ] {
            let plain = request(&format!("GET {path} HTTP/1.1"));
            assert_eq!(judge(&plain, None), Ok((wanted, true)));
            assert_eq!(judge(&plain, Some("abc")), Err(Refusal::NoToken));
            assert_eq!(with(path, "abc"), Ok((wanted, true)));
            for wrong in ["abd", "ab", "abcd", "x"] {
                assert_eq!(with(path, wrong), Err(Refusal::NoToken));
            }
        }
        // The page knows nothing.
        assert_eq!(judge(&request("GET / HTTP/1.1"), Some("abc")), Ok((Wanted::Page, true)));
        assert_eq!(judge(&request("HEAD /metrics HTTP/1.1"), None), Ok((Wanted::Metrics, false)));
        assert_eq!(judge(&request("GET /x HTTP/1.1"), None), Err(Refusal::NotFound));
        assert_eq!(judge(&request("POST /metrics HTTP/1.1"), None), Err(Refusal::Method));
    }

    #[test]
    fn without_a_token_only_this_machine_is_answered_by_its_own_name() {
        let from = |host: &str, token| {
            judge(&request(&format!("GET /metrics HTTP/1.1\r\nHost: {host}")), token)
        };
        for own in ["localhost", "LOCALHOST:9117", "127.0.0.1:9117", "127.3.2.1", "[::1]:9117"] {
            assert_eq!(from(own, None), Ok((Wanted::Metrics, true)), "{own}");
        }
        for other in ["evil.example", "localhost.evil.example:9117", "10.0.0.1", "[::2]:1", ""] {
            assert_eq!(from(other, None), Err(Refusal::OtherHost), "{other}");
            assert_eq!(from(other, Some("abc")), Err(Refusal::NoToken), "{other}");
        }
    }
}
