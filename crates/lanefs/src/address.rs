//! Addresses as people write them: `HOST`, `HOST:PORT`, `[V6]:PORT` and `lanefs://HOST:PORT/path`.
//!
//! Paths are bytes, exactly as given: nothing is percent-decoded.

use crate::exit::{Code, Exit};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// The port when none is named.
pub(crate) const PORT_DEFAULT: u16 = 7117;

const SCHEME: &[u8] = b"lanefs://";

/// `text` with the default port if it names none.
pub(crate) fn with_port(text: &str) -> String {
    let bracketed_end = text.rfind(']');
    let has_port = match bracketed_end {
        Some(end) => text[end..].contains(':'),
        None => text.matches(':').count() == 1,
    };
    if has_port {
        return text.to_owned();
    }
    let bare_v6 = bracketed_end.is_none() && text.contains(':');
    if bare_v6 { format!("[{text}]:{PORT_DEFAULT}") } else { format!("{text}:{PORT_DEFAULT}") }
}

/// The name or address in `text`, without port and brackets.
pub(crate) fn host(text: &str) -> &str {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match bracketed {
        Some((host, _)) => host,
        None if text.matches(':').count() == 1 => text.split(':').next().unwrap_or(text),
        None => text,
    }
}

/// The socket address of `text`.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let full = with_port(text);
    let found = full.to_socket_addrs().map_err(|error| {
        Exit::new(Code::Unreachable, format!("cannot find the address of {text}: {error}"))
    })?;
    let mut found: Vec<SocketAddr> = found.collect();
    // The server listens on an IPv4 address unless told otherwise, so try those first.
    found.sort_by_key(SocketAddr::is_ipv6);
    let first = found.first().copied();
    Ok(first.ok_or_else(|| Exit::new(Code::Unreachable, format!("{text} has no address")))?)
}

/// Where this machine reaches a server that listens there: a wildcard is reached over loopback.
pub(crate) fn reached_here(mut listens: SocketAddr) -> SocketAddr {
    if listens.ip().is_unspecified() {
        listens.set_ip(match listens {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listens
}

/// Where a file is: here, or on a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A path on a server.
    Remote(Url),
}

/// `lanefs://HOST:PORT/path`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Url {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// Absolute path within the file system.
    pub(crate) path: PathBuf,
}

impl Url {
    /// As people write it, for messages.
    pub(crate) fn text(&self) -> String {
        format!("lanefs://{}{}", self.address, self.path.display())
    }

    /// The same without loss, where bytes can be written.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("lanefs://{}", self.address).into_bytes();
        bytes.extend_from_slice(self.path.as_os_str().as_bytes());
        bytes
    }

    /// The same server, another path.
    pub(crate) fn at(&self, path: PathBuf) -> Self {
        Self { address: self.address.clone(), path }
    }
}

impl Place {
    /// Reads an argument.
    pub(crate) fn parse(argument: &OsStr) -> Result<Self> {
        let Some(rest) = argument.as_bytes().strip_prefix(SCHEME) else {
            return Ok(Self::Local(PathBuf::from(argument)));
        };
        let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(slash);
        let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| {
            let line = format!("{} names no host: lanefs://HOST:PORT/path", argument.display());
            Exit::usage(line)
        })?;
        let path = if path.is_empty() { b"/" } else { path };
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        Ok(Self::Remote(Url { address: with_port(host), path }))
    }

    /// As people write it, for messages.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Remote(url) => url.text(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_port_is_added_only_where_none_is() {
        assert_eq!(with_port("host"), "host:7117");
        assert_eq!(with_port("host:1"), "host:1");
        assert_eq!(with_port("[::1]"), "[::1]:7117");
        assert_eq!(with_port("[::1]:2"), "[::1]:2");
        assert_eq!(with_port("::1"), "[::1]:7117");
    }

    #[test]
    fn a_host_is_what_stands_before_the_port() {
        for text in ["host", "host:1"] {
            assert_eq!(host(text), "host");
        }
        for text in ["[::1]", "[::1]:2", "::1"] {
            assert_eq!(host(text), "::1");
        }
        assert_eq!(host("127.0.0.1:7117"), "127.0.0.1");
    }

    #[test]
    fn a_url_keeps_every_byte_of_its_path() {
        let place = Place::parse(OsStr::from_bytes(b"lanefs://h:1/a%20\xff b")).unwrap();
        let Place::Remote(url) = place else { panic!("a URL is remote") };
        assert_eq!(url.address, "h:1");
        assert_eq!(url.path.as_os_str().as_bytes(), b"/a%20\xff b");
    }

    #[test]
    fn a_url_without_path_is_the_root() {
        let place = Place::parse(OsStr::new("lanefs://h")).unwrap();
        assert_eq!(place.text(), "lanefs://h:7117/");
    }

    #[test]
    fn a_url_without_host_is_refused() {
        assert!(Place::parse(OsStr::new("lanefs:///x")).is_err());
    }

    #[test]
    fn anything_else_is_a_local_path() {
        let place = Place::parse(OsStr::new("lanefs:/x")).unwrap();
        assert_eq!(place, Place::Local(PathBuf::from("lanefs:/x")));
    }
}
