//! `lanefs export`: defines and removes the exports of a running server. It needs the store's secret.

use crate::args::{self, ExportCommand, Squash};
use crate::exit::{Code, Exit};
use crate::files::{json, mkdir};
use crate::login::Login;
use crate::{address, out, secret};
use anyhow::{Context as _, Result, bail};
use library::{
    ConnectOptions, Error, Export, Identity, NewExport, Purpose, Removal, SquashedIds, Status,
    Volume,
};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use wire::{Credential, Secret, is_export_name};

/// The file of a store with the address of its server.
pub(crate) const ADDRESS_FILE: &str = "address";

/// Runs the command.
pub(crate) fn run(args: &args::Export) -> Result<()> {
    match &args.command {
        ExportCommand::Add(args) => add(args),
        ExportCommand::List(args) => list(args),
        ExportCommand::Remove(args) => remove(args),
        ExportCommand::Secret(args) => print_secret(args),
    }
}

/// An export, for scripts.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    inode: u64,
    read_only: bool,
    squash: &'static str,
    anon_uid: u32,
    anon_gid: u32,
    /// Otherwise it is there until the server ends, or as long as nobody defines it.
    stored: bool,
}

fn add(args: &args::ExportAdd) -> Result<()> {
    let (name, path) = (args.name.as_str(), args.path.as_path());
    check_name(name)?;
    if !path.is_absolute() {
        let line = format!("{} is no path of the file system: it begins with /", path.display());
        bail!(Exit::usage(line));
    }
    let ids = match args.squash {
        Squash::None => SquashedIds::None,
        Squash::Root => SquashedIds::Root,
        Squash::All => SquashedIds::All,
    };
    let (anon_uid, anon_gid) = (args.anon_uid, args.anon_gid);
    let squash = library::Squash { ids, anon_uid, anon_gid };
    let (mut volume, _) = connect(&args.server)?;
    if args.create {
        let made = mkdir::make_all(&mut volume, path);
        made.with_context(|| format!("cannot create directory '{}'", path.display()))?;
    }
    let (read_only, replace) = (args.read_only, args.replace);
    let added = volume.add_export(&NewExport { name, path, read_only, squash, replace });
    added.map_err(|error| why_not(error, name))?;
    volume.leave()?;
    if read_only {
        let ended = end_changes(&args.server, name);
        ended.with_context(|| {
            format!("export {name} is read-only now, but mounts may accept changes for a while yet")
        })?;
    }
    Ok(())
}

/// Waits until the mounts of an export that is read-only now accept no changes any more, and what they
/// have accepted before is in the store. A client of the export waits for clients of that alone.
fn end_changes(server: &args::Server, export: &str) -> Result<()> {
    let (options, _) = options(server)?;
    let (purpose, export) = (Purpose::Use, export.to_owned());
    let mut volume = Volume::connect(&ConnectOptions { purpose, export, ..options })?;
    volume.sync_server()?;
    Ok(volume.leave()?)
}

/// A refusal in words.
fn why_not(error: Error, name: &str) -> anyhow::Error {
    match error.status() {
        Some(Status::Exists) => {
            anyhow::anyhow!("there is an export {name} already; --replace makes it another one")
        }
        Some(Status::Busy) => anyhow::anyhow!(
            "the server was started with --export {name}; what the store shall say needs another name"
        ),
        Some(Status::NoSpace) => anyhow::anyhow!("no space for more exports"),
        Some(Status::NotFound) => anyhow::anyhow!(
            "{error}; an export is a directory of the file system: --create makes it, or `lanefs mkdir -p`"
        ),
        Some(_) | None => error.into(),
    }
}

fn list(args: &args::ExportList) -> Result<()> {
    let (mut volume, _) = connect(&args.server)?;
    let exports = volume.exports()?;
    if args.json.json {
        for export in &exports {
            json::put(&row(export))?;
        }
    } else {
        out::print_bytes(table(&exports).as_bytes())?;
    }
    Ok(volume.leave()?)
}

fn row(export: &Export) -> Row<'_> {
    let (path, path_hex) = json::path_text(&export.path);
    Row {
        name: &export.name,
        path,
        path_hex,
        inode: export.root.0,
        read_only: export.read_only,
        squash: squash_of(export).text(),
        anon_uid: export.squash.anon_uid,
        anon_gid: export.squash.anon_gid,
        stored: export.stored,
    }
}

const fn squash_of(export: &Export) -> Squash {
    match export.squash.ids {
        SquashedIds::None => Squash::None,
        SquashedIds::Root => Squash::Root,
        SquashedIds::All => Squash::All,
    }
}

fn table(exports: &[Export]) -> String {
    let longest = exports.iter().map(|export| export.name.len()).max().unwrap_or(0).max(4);
    let mut text =
        format!("{:<longest$} {:<5} {:<4} {:<21} Path\n", "Name", "Mode", "Root", "Acts as");
    for export in exports {
        let mode = if export.read_only { "ro" } else { "rw" };
        let squash = squash_of(export);
        let root = if squash == Squash::None { "root" } else { "-" };
        let acts_as = match squash {
            Squash::None => "himself".to_owned(),
            Squash::Root => {
                format!("root as {}:{}", export.squash.anon_uid, export.squash.anon_gid)
            }
            Squash::All => format!("all as {}:{}", export.squash.anon_uid, export.squash.anon_gid),
        };
        let path = export.path.display();
        text.push_str(&format!(
            "{:<longest$} {mode:<5} {root:<4} {acts_as:<21} {path}\n",
            export.name
        ));
    }
    text
}

fn remove(args: &args::ExportName) -> Result<()> {
    check_name(&args.name)?;
    let (mut volume, _) = connect(&args.server)?;
    let removed = volume.remove_export(&args.name);
    match removed.map_err(|error| why_not(error, &args.name))? {
        Removal::Done => Ok(volume.leave()?),
        Removal::Unknown => bail!("there is no export {}", args.name),
    }
}

fn print_secret(args: &args::ExportName) -> Result<()> {
    if args.server.login.certificates.cert.is_some() {
        let line = "an export's secret follows from the store's, which a certificate does not tell: \
                    pass --secret-file, or make a certificate by `lanefs cert client DIR NAME \
                    --export EXPORT`";
        bail!(Exit::usage(line));
    }
    let (mut volume, store) = connect(&args.server)?;
    let exports = volume.exports()?;
    let export = exports.iter().find(|export| export.name == args.name);
    let export = export.with_context(|| format!("there is no export {}", args.name))?;
    out::print_bytes(secret::text_of(&export.secret(&store)).as_bytes())?;
    Ok(volume.leave()?)
}

fn check_name(name: &str) -> Result<()> {
    if is_export_name(name.as_bytes()) {
        return Ok(());
    }
    let line = format!(
        "\"{name}\" cannot be an export's name: at most 64 of a-z, A-Z, 0-9, '.', '-' \
         and '_', the first of a-z, A-Z or 0-9"
    );
    Err(Exit::usage(line).into())
}

/// Connects to the server as an administrator.
pub(crate) fn connect(args: &args::Server) -> Result<(Volume, Secret)> {
    let (options, secret) = options(args)?;
    Ok((Volume::connect(&options)?, secret))
}

fn options(args: &args::Server) -> Result<(ConnectOptions, Secret)> {
    let address = address_of(&args.server)?;
    let args::AdminLogin { secret, seal, certificates, connect_timeout } = &args.login;
    let Login { secrets, certificates, sealing, .. } =
        Login::read(&address, secret.secret_file.as_deref(), (*seal, certificates))?;
    let secret = secrets.current;
    if secret.credential() == Credential::Export {
        let line = "this is the secret of an export: who administers needs the store's";
        bail!(Exit::new(Code::Secret, line));
    }
    let options = ConnectOptions {
        address: address::resolve(&address)?,
        secret,
        secret_file: None,
        export: String::new(),
        purpose: Purpose::Administer,
        driver: library::DriverChoice::Auto,
        sealing,
        certificates,
        identity: root(),
        connect_timeout: *connect_timeout,
    };
    Ok((options, secret))
}

/// A client with the store's secret may act as root. The directory of `--create` has mode 0755.
fn root() -> Identity {
    let mut root = Identity::new(0, 0, &[]);
    root.umask = 0o022;
    root
}

/// The server's address: the argument, or that in the store.
fn address_of(server: &str) -> Result<String> {
    let store = Path::new(server);
    if !store.join("superblock").exists() {
        return address::full(server);
    }
    let address = std::fs::read_to_string(store.join(ADDRESS_FILE));
    let address = address.map_err(|_| {
        let line = format!("{server} is a store that nobody serves: start its server first");
        Exit::new(Code::Unreachable, line)
    })?;
    // A server on all addresses is reached over loopback here, and certificates have that name.
    let address = address.trim_end();
    Ok(match address.parse::<SocketAddr>() {
        Ok(at) => address::loopback_if_unspecified(at).to_string(),
        Err(_) => address.to_owned(),
    })
}
