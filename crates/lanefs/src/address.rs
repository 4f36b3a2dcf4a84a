//! Addresses in text form: `HOST`, `HOST:PORT`, `[V6]:PORT` and `lanefs://HOST:PORT/path`.
//!
//! Paths are bytes, exactly as given: nothing is percent-decoded.

use crate::args::units;
use crate::exit::{Code, Exit};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port when none is named.
pub(crate) const PORT_DEFAULT: u16 = 7117;

/// What a URL begins with.
pub(crate) const SCHEME: &str = "lanefs://";

/// `text`, an address in any of the ways people write it, as `HOST:PORT` or `[V6]:PORT`. Whether there is
/// such a host is another matter.
///
/// # Errors
/// The fault, with the expected form.
pub(crate) fn read(text: &str) -> Result<String, String> {
    let bare =
        text.strip_prefix(SCHEME).map_or(text, |rest| rest.strip_suffix('/').unwrap_or(rest));
    let (host, port) = split(bare).ok_or_else(|| {
        format!("\"{text}\" is no address: HOST, HOST:PORT, [V6] or [V6]:PORT, as 10.0.0.5:{PORT_DEFAULT}")
    })?;
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => {
            let number = units::digits(port).and_then(|number| u16::try_from(number).ok());
            number.ok_or_else(|| {
                format!("\"{text}\" has a port that is no number from 0 to 65535: HOST:PORT")
            })?
        }
    };
    if host.is_empty() || units::digits(host).is_some() {
        let port = if host.is_empty() { port.to_string() } else { host.to_owned() };
        return Err(format!(
            "\"{text}\" names no host: HOST:{port}, as 127.0.0.1:{port} for this machine; to listen on all \
             its addresses, 0.0.0.0:{port} or [::]:{port}"
        ));
    }
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// As [`read`], for a port that has no default.
///
/// # Errors
/// The fault, with the expected form.
pub(crate) fn read_with_port(text: &str) -> Result<String, String> {
    match split(text) {
        Some((host, None)) if units::digits(host).is_none() => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            Err(format!("\"{text}\" names no port: HOST:PORT, as {host}:9117"))
        }
        Some(_) | None => read(text),
    }
}

/// Host without brackets, and port; `None` if the text is ambiguous or the host is invalid.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let is_v6 = |host: &&str| {
        let (address, _zone) = host.split_once('%').unwrap_or((host, ""));
        address.parse::<Ipv6Addr>().is_ok()
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = rest.strip_prefix(':');
        let ends = rest.is_empty() || port.is_some();
        return Some(host).filter(is_v6).filter(|_| ends).map(|host| (host, port));
    }
    if text.matches(':').count() > 1 {
        return Some(text).filter(is_v6).map(|host| (host, None));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (text.len() > port.map_or(0, str::len) && host.bytes().all(fits)).then_some((host, port))
}

/// As [`read`], for addresses that clap does not check.
pub(crate) fn full(text: &str) -> Result<String> {
    Ok(read(text).map_err(Exit::usage)?)
}

/// The name or address in `HOST:PORT`, without brackets.
pub(crate) fn host(full: &str) -> &str {
    let host = full.rsplit_once(':').map_or(full, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// All socket addresses of `HOST:PORT`, as [`read`] gives it.
pub(crate) fn all(full: &str) -> io::Result<Vec<SocketAddr>> {
    let port = full.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let (host, port) = (host(full), port.unwrap_or(PORT_DEFAULT));
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        // RFC 6761: it is loopback, also where nothing says so, as on a system that has no /etc/hosts.
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()])
        }
        Err(error) => Err(error),
    }
}

/// The socket address of `HOST:PORT`, as [`read`] gives it.
pub(crate) fn resolve(full: &str) -> Result<SocketAddr> {
    let mut found = all(full).map_err(|error| {
        Exit::new(Code::Unreachable, format!("cannot find the address of {full}: {error}"))
    })?;
    // By default the server listens on an IPv4 address, so try those first.
    found.sort_by_key(SocketAddr::is_ipv6);
    let first = found.first().copied();
    Ok(first.ok_or_else(|| Exit::new(Code::Unreachable, format!("{full} has no address")))?)
}

/// How long a server has to accept a connection before the next address is tried.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Of several `HOST:PORT` the first at which a server accepts a connection; a single one as it is.
pub(crate) fn that_answers(all: &[String]) -> Result<&String> {
    if let [only] = all {
        return Ok(only);
    }
    let mut failures = Vec::new();
    for full in all {
        let connected = resolve(full).and_then(|at| {
            TcpStream::connect_timeout(&at, ANSWER_TIME)
                .map_err(|error| anyhow::anyhow!("cannot connect to {full}: {error}"))
        });
        match connected {
            Ok(_) => return Ok(full),
            Err(why) => failures.push(format!("{why:#}")),
        }
    }
    let line = format!("no server answers: {}", failures.join("; "));
    Err(Exit::new(Code::Unreachable, line).into())
}

/// The address at which this host connects to a server that listens there: loopback for the unspecified
/// address.
pub(crate) fn loopback_if_unspecified(mut listens: SocketAddr) -> SocketAddr {
    if listens.ip().is_unspecified() {
        listens.set_ip(match listens {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listens
}

/// A store: its directory, or the address of its server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StorePlace {
    /// A directory of this machine.
    Dir(PathBuf),
    /// `HOST:PORT`.
    Server(String),
}

impl StorePlace {
    /// Parses an argument: an existing path or a text with a slash is a directory, all else an address.
    ///
    /// # Errors
    /// A text that is neither, with the expected form.
    pub(crate) fn read(argument: &Path) -> Result<Self> {
        let is_url = argument.as_os_str().as_bytes().starts_with(SCHEME.as_bytes());
        if !is_url && (has_slash(argument.as_os_str()) || argument.exists()) {
            return Ok(Self::Dir(argument.to_owned()));
        }
        let shown = argument.display();
        let text = argument.to_str();
        let text = text.ok_or_else(|| Exit::usage(format!("there is no directory {shown}")))?;
        match read(text) {
            // One word may be meant as either.
            Ok(address) if !is_url && !text.contains([':', '.']) => match resolve(&address) {
                Ok(_) => Ok(Self::Server(address)),
                Err(why) => Err(why.context(format!("there is no directory {shown}"))),
            },
            Ok(address) => Ok(Self::Server(address)),
            Err(why) if is_url => Err(Exit::usage(why).into()),
            Err(why) => {
                Err(Exit::usage(format!("there is no directory {shown}, and {why}")).into())
            }
        }
    }
}

/// Whether a text is a path rather than an address.
pub(crate) fn has_slash(text: &OsStr) -> bool {
    text.as_bytes().contains(&b'/')
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
    /// Its text form, for messages.
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
        let Some(rest) = argument.as_bytes().strip_prefix(SCHEME.as_bytes()) else {
            return Ok(Self::Local(PathBuf::from(argument)));
        };
        let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(slash);
        let shown = argument.display();
        let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| {
            Exit::usage(format!("{shown} names no host: lanefs://HOST:PORT/path"))
        })?;
        let address = read(host).map_err(|why| Exit::usage(format!("{shown}: {why}")))?;
        let path = if path.is_empty() { b"/" } else { path };
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        Ok(Self::Remote(Url { address, path }))
    }

    /// Its text form, for messages.
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
        for (text, full) in [
            ("host", "host:7117"),
            ("host:1", "host:1"),
            ("a-b.c_d:1", "a-b.c_d:1"),
            ("[::1]", "[::1]:7117"),
            ("[::1]:2", "[::1]:2"),
            ("[fe80::1%eth0]:2", "[fe80::1%eth0]:2"),
            ("::1", "[::1]:7117"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("lanefs://host", "host:7117"),
            ("lanefs://[::1]:2/", "[::1]:2"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(full));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for (text, says) in [
            ("80", "names no host: HOST:80, as 127.0.0.1:80"),
            (":7998", "names no host: HOST:7998, as 127.0.0.1:7998"),
            ("80:81", "names no host"),
            ("", "is no address: HOST, HOST:PORT"),
            (":", "no number from 0 to 65535"),
            ("host:", "no number from 0 to 65535"),
            ("host:http", "no number from 0 to 65535"),
            ("host:65536", "no number from 0 to 65535"),
            ("host:+1", "no number from 0 to 65535"),
            ("[::1", "is no address"),
            ("[::1]2", "is no address"),
            ("[host]:1", "is no address"),
            ("a:b:c", "is no address"),
            ("host name", "is no address"),
            ("host/path:1", "is no address"),
            ("lanefs://", "is no address"),
            ("lanefs://host/path", "is no address"),
            ("http://host", "no number from 0 to 65535"),
        ] {
            let line = read(text).unwrap_err();
            assert!(line.contains(says) && line.contains(&format!("\"{text}\"")), "{text}: {line}");
        }
    }

    #[test]
    fn a_store_is_a_directory_or_an_address() {
        let server = |address: &str| StorePlace::Server(address.to_owned());
        for (text, place) in [
            ("src", StorePlace::Dir("src".into())),
            ("nowhere/store", StorePlace::Dir("nowhere/store".into())),
            ("/nowhere", StorePlace::Dir("/nowhere".into())),
            ("10.0.0.5", server("10.0.0.5:7117")),
            ("nowhere:80", server("nowhere:80")),
            ("::1", server("[::1]:7117")),
            ("lanefs://nowhere/", server("nowhere:7117")),
        ] {
            assert_eq!(StorePlace::read(Path::new(text)).unwrap(), place);
        }
        for text in ["80", ":80", "", "nowhere:http"] {
            let line = StorePlace::read(Path::new(text)).unwrap_err().to_string();
            assert!(line.starts_with(&format!("there is no directory {text}, and ")), "{line}");
        }
    }

    #[test]
    fn a_host_is_the_text_before_the_port() {
        for (text, name) in
            [("host:1", "host"), ("[::1]:2", "::1"), ("127.0.0.1:7117", "127.0.0.1")]
        {
            assert_eq!(host(text), name);
        }
    }

    #[test]
    fn addresses_are_found_with_and_without_brackets() {
        for text in ["127.0.0.1:5", "[::1]:5"] {
            assert_eq!(resolve(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_first_address_with_a_server_is_taken() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = server.local_addr().unwrap().to_string();
        // Nobody listens at the discard port.
        let nobody = "127.0.0.1:9".to_owned();
        assert_eq!(that_answers(std::slice::from_ref(&nobody)).unwrap(), &nobody);
        let all = [nobody.clone(), there.clone(), nobody.clone()];
        assert_eq!(that_answers(&all).unwrap(), &there);
        let line = that_answers(&[nobody.clone(), nobody]).unwrap_err().to_string();
        assert_eq!(line.matches("cannot connect to 127.0.0.1:9").count(), 2, "{line}");
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
        for wrong in ["lanefs:///x", "lanefs://:7998/x", "lanefs://80/x", "lanefs://h:x/x"] {
            assert!(Place::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn anything_else_is_a_local_path() {
        let place = Place::parse(OsStr::new("lanefs:/x")).unwrap();
        assert_eq!(place, Place::Local(PathBuf::from("lanefs:/x")));
    }
}
