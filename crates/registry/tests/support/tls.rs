//! An etcd under TLS with a certificate authority of its own, for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use registry::{Access, LocalError, LocalEtcd};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that only its owner may read.
pub(crate) fn put(path: PathBuf, text: &str) -> PathBuf {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A certificate authority, and a certificate for an address that servers and clients may show.
pub(crate) struct Files {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Files {
    /// The certificate has a common name if they are called `named`.
    pub(crate) fn make(dir: &Path, name: &str, host: IpAddr) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(vec![host.to_string()]).unwrap();
        // With users etcd refuses a client's certificate that has a common name.
        params.distinguished_name = DistinguishedName::new();
        if name == "named" {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &ca).unwrap();
        let file = |end: &str| dir.join(format!("{name}.{end}"));
        Self {
            ca: put(file("ca"), &ca.pem()),
            cert: put(file("cert"), &cert.pem()),
            key: put(file("key"), &key.serialize_pem()),
        }
    }
}

/// A running etcd, and its files.
pub(crate) struct TlsEtcd {
    dir: PathBuf,
    pub(crate) files: Files,
    url: String,
    _etcd: LocalEtcd,
}

impl TlsEtcd {
    /// Starts one with data and files below `dir`. `at` are its addresses for clients and members.
    pub(crate) fn start(dir: &Path, name: &str, at: [SocketAddr; 2]) -> Result<Self, LocalError> {
        let (dir, files) = (dir.to_owned(), Files::make(dir, name, at[0].ip()));
        let paths = (&*files.ca, &*files.cert, &*files.key);
        let etcd = LocalEtcd::start_tls(&dir.join("data"), at.into(), paths)?;
        Ok(Self { dir, files, url: format!("https://{}", at[0]), _etcd: etcd })
    }

    pub(crate) fn access(&self) -> Access {
        let Files { ca, cert, key } = &self.files;
        Access {
            ca: Some(ca.clone()),
            cert: Some(cert.clone()),
            key: Some(key.clone()),
            ..Access::to_endpoints(&self.url)
        }
    }

    /// Gives the etcd users, and the access of one.
    pub(crate) fn with_users(&self) -> Access {
        self.ctl(&["user", "add", "root:of etcd"]);
        self.ctl(&["user", "grant-role", "root", "root"]);
        self.ctl(&["role", "add", "lanefs"]);
        self.ctl(&["role", "grant-permission", "--prefix=true", "lanefs", "readwrite", "/lanefs/"]);
        self.ctl(&["user", "add", "lanefs:correct horse"]);
        self.ctl(&["user", "grant-role", "lanefs", "lanefs"]);
        self.ctl(&["auth", "enable"]);
        let password = put(self.dir.join("password"), "correct horse\n");
        let user = Some("lanefs".to_owned());
        Access { user, password: Some(password), ..self.access() }
    }

    /// Says something to etcd as its administrator.
    fn ctl(&self, args: &[&str]) {
        let Files { ca, cert, key } = &self.files;
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", &self.url)
            .env("ETCDCTL_CACERT", ca)
            .env("ETCDCTL_CERT", cert)
            .env("ETCDCTL_KEY", key)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
}
