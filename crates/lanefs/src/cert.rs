//! `lanefs cert`: a CA, and certificates for servers and clients, as PEM files.
//!
//! This file has their contents, [`files`] writes them. Keys are ECDSA on P-256, which every TLS
//! implementation supports. Invariants: only the owner can read a key, from its first byte on; no file is
//! overwritten without an option for that.

mod files;

use crate::args::{self, CertCommand};
use crate::exit::Exit;
use crate::out;
use anyhow::{Context as _, Result, bail};
use files::{Paths, Secrecy};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::{GRANTS_EXPORT, GRANTS_STORE, is_export_name};

/// How long ago a new certificate's time begins: clocks differ.
const BACK: Duration = Duration::from_secs(3600);
/// The name of a CA's files.
const CA: &str = "ca";

/// Runs the command.
pub(crate) fn run(args: &args::Cert) -> Result<()> {
    match &args.command {
        CertCommand::Ca(args) => ca(args),
        CertCommand::Server(args) => server(args),
        CertCommand::Client(args) => client(args),
    }
}

fn ca(args: &args::CertCa) -> Result<()> {
    files::make_dir(&args.dir)?;
    let paths = Paths::new(&args.dir, CA);
    let key = key_for(&paths, args.renew)?;
    let mut params = ca_params(&key);
    let until = set_time(&mut params, args.valid)?;
    let certificate = params.self_signed(&key).context("cannot sign")?;
    write(&paths, (certificate.der(), &key), args.renew)?;
    let (cert, key, dir) = (paths.cert.display(), paths.key.display(), args.dir.display());
    out::print_bytes(
        format!(
            "{cert}  the CA's certificate, valid until {until}: every server and client needs it\n\
             {key}  its key, which can sign any certificate: keep it on this machine\n\
             next: lanefs cert server {dir} NAME_OR_IP...\n"
        )
        .as_bytes(),
    )
}

fn server(args: &args::CertServer) -> Result<()> {
    let mut names = Vec::new();
    for name in &args.names {
        names.push(server_name(name)?);
    }
    let own = [
        ("localhost", SanType::DnsName("localhost".try_into()?)),
        ("127.0.0.1", SanType::IpAddress(Ipv4Addr::LOCALHOST.into())),
        ("::1", SanType::IpAddress(Ipv6Addr::LOCALHOST.into())),
    ];
    let own = own.into_iter().filter(|(text, _)| !args.names.iter().any(|name| name == text));
    names.extend(own.map(|(_, name)| name));
    let paths = Paths::new(&args.dir, &args.names[0]);
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let until = make(&args.dir, &paths, (names, usage), args.validity)?;
    let (cert, key) = (paths.cert.display(), paths.key.display());
    let ca = Paths::new(&args.dir, CA).cert;
    let (ca, dir) = (ca.display(), args.dir.display());
    let said = args.names.join(", ");
    out::print_bytes(
        format!(
            "{cert}  for a server that is reached as {said}, valid until {until}\n\
             {key}  its key\n\
             next: copy both and {ca} to the server, and there\n  \
               lanefs serve --store PATH --listen 0.0.0.0:7117 --cert {cert} --key {key} --ca {ca}\n\
             then: lanefs cert client {dir} NAME\n"
        )
        .as_bytes(),
    )
}

fn client(args: &args::CertClient) -> Result<()> {
    check_file_name(&args.name)?;
    let uris: Vec<String> = if args.exports.is_empty() {
        vec![GRANTS_STORE.to_owned()]
    } else {
        let wrong = args.exports.iter().find(|export| !is_export_name(export.as_bytes()));
        if let Some(wrong) = wrong {
            bail!(Exit::usage(format!("--export {wrong}: no export can be called this")));
        }
        args.exports.iter().map(|export| format!("{GRANTS_EXPORT}{export}")).collect()
    };
    let mut names = Vec::new();
    for uri in &uris {
        names.push(SanType::URI(uri.as_str().try_into()?));
    }
    let paths = Paths::new(&args.dir, &args.name);
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    let until = make(&args.dir, &paths, (names, usage), args.validity)?;
    let (cert, key) = (paths.cert.display(), paths.key.display());
    let ca = Paths::new(&args.dir, CA).cert;
    let ca = ca.display();
    let (opens, place) = match args.exports.as_slice() {
        [] => ("every export, and administers".to_owned(), "SERVER".to_owned()),
        [export, ..] => (args.exports.join(", "), format!("SERVER/{export}")),
    };
    out::print_bytes(
        format!(
            "{cert}  opens {opens}; valid until {until}\n\
             {key}  its key\n\
             next: copy both and {ca} to the client, and there\n  \
               lanefs mount {place} DIR --cert {cert} --key {key} --ca {ca}\n"
        )
        .as_bytes(),
    )
}

/// Makes a key and a certificate by the CA of a directory; until when that is valid.
fn make(
    dir: &Path,
    paths: &Paths,
    (names, purpose): (Vec<SanType>, ExtendedKeyUsagePurpose),
    args::Validity { valid, renew }: args::Validity,
) -> Result<String> {
    let issuer = issuer(dir)?;
    let key = key_for(paths, renew)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&paths.name);
    params.subject_alt_names = names;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let until = set_time(&mut params, valid)?;
    let certificate = params.signed_by(&key, &issuer).context("cannot sign")?;
    write(paths, (certificate.der(), &key), renew)?;
    Ok(until)
}

/// The CA of a directory, as `lanefs cert ca` makes it: its name follows from its key.
fn issuer(dir: &Path) -> Result<Issuer<'static, KeyPair>> {
    let paths = Paths::new(dir, CA);
    if !paths.key.exists() {
        let shown = dir.display();
        bail!("there is no CA in {shown}: `lanefs cert ca {shown}` makes one");
    }
    let key = read_key(&paths)?;
    let params = ca_params(&key);
    let certificate = library::certificates::read_certificate(&paths.cert)?;
    let says = |bytes: &[u8]| certificate.windows(bytes.len()).any(|found| found == bytes);
    if !says(key.public_key_raw()) || !says(ca_name(&key).as_bytes()) {
        bail!(
            "{} was not made by `lanefs cert ca` for {}: let what made it sign, too",
            paths.cert.display(),
            paths.key.display()
        );
    }
    Ok(Issuer::new(params, key))
}

fn ca_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&ca_name(key));
    // What it signs signs nothing.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn ca_name(key: &KeyPair) -> String {
    let id = CertificateParams::default().key_identifier(key);
    format!("lanefs CA {}", hex::encode(&id[..4]))
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// A key that is there, for another certificate, or a new one where nothing is.
fn key_for(paths: &Paths, renew: bool) -> Result<KeyPair> {
    if renew {
        return read_key(paths);
    }
    if let Some(there) = [&paths.cert, &paths.key].into_iter().find(|path| path.exists()) {
        bail!(
            "{} is there already: --renew makes a new certificate for the same key; for another key \
             take both files away",
            there.display()
        );
    }
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("no random numbers for a key")
}

fn read_key(paths: &Paths) -> Result<KeyPair> {
    let der = library::certificates::read_key(&paths.key)?;
    let key = KeyPair::try_from(der);
    key.with_context(|| format!("the key {} is of another kind", paths.key.display()))
}

/// Sets the validity and the serial number; returns the end of validity as text.
fn set_time(params: &mut CertificateParams, valid: Duration) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let until = Duration::from_secs((now + valid).as_secs());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BACK).as_secs());
    params.not_after = epoch + until;
    let mut number: [u8; 16] = library::random()?;
    // Positive, and of one length.
    number[0] = number[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&number));
    let until = jiff::Timestamp::UNIX_EPOCH + until;
    Ok(until.strftime("%Y-%m-%d").to_string())
}

fn write(paths: &Paths, (certificate, key): (&[u8], &KeyPair), renew: bool) -> Result<()> {
    let text = files::pem("CERTIFICATE", certificate);
    if renew {
        return files::replace(&paths.cert, &text);
    }
    let key = files::pem("PRIVATE KEY", key.serialized_der());
    files::create(&paths.key, &key, Secrecy::Private)?;
    files::create(&paths.cert, &text, Secrecy::Public)
}

/// A name or address that clients connect to.
fn server_name(name: &str) -> Result<SanType> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    check_file_name(name)?;
    if name.contains('_') {
        bail!(Exit::usage(format!("\"{name}\" is no host name: those have no underscores")));
    }
    Ok(SanType::DnsName(name.try_into()?))
}

/// Names become those of files.
fn check_file_name(name: &str) -> Result<()> {
    if is_export_name(name.as_bytes()) || name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    let line = format!(
        "\"{name}\" cannot be a certificate's name: a-z, A-Z, 0-9, '.', '-' and '_', the first \
         of a-z, A-Z or 0-9"
    );
    Err(Exit::usage(line).into())
}

fn is_label(label: &str) -> bool {
    is_export_name(label.as_bytes())
}
