//! What the server makes of its keys: its certificate, what verifies clients, kubeconfigs, and what signs for planes. All of it is
//! replaced while the server runs, when the keys change or time goes on ([`Pki::keep_up`]).
//!
//! Invariant: whatever was handed out is believed until it ends, across every rotation and every stop (ADR 0019), unless the
//! operator drops what it was signed with. Then it is refused in the next request, on open connections too.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use parking_lot::Mutex;
use polder_auth::MASTERS;
use polder_auth::authn::{AccountKeyError, AccountSecret, AccountTokens, PLANE_URI_SCHEME, TokenNotary};
use polder_auth::authority::PlaneAuthorities;
use polder_client::{CertificateAuthority, TokenKeys};
use polder_model::PlaneId;
use polder_store::Plane;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::certificate::ServerCertificates;
use crate::client_certificate::{ClientCertificates, Signer};
use crate::front_proxy::FrontProxy;
use crate::keys::{Family, Generation, KeyChange, KeyFile, KeyPlace, Keys, LEAF_SECONDS};
use crate::provided::{Provided, ServingFiles, Shown};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read or write {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{path} is not a certificate or key this server can use: remove {directory} to make new ones, or restore it from a backup"
    )]
    Unusable { path: PathBuf, directory: PathBuf },
    #[error("cannot read or write the keys of the server")]
    Kept(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("there are too many generations of {family}: drop those that are no longer needed")]
    TooMany { family: &'static str },
    #[error("{name} cannot be used: {why}")]
    Provided { name: String, why: String },
    #[error("{name} is in use: rotate it first")]
    InUse { name: String },
    #[error("there is no {name}")]
    NoGeneration { name: String },
}

/// The keys, and what is made of them for the names of a server.
pub struct Pki {
    keys: Arc<dyn KeyPlace>,
    /// Where people may look at certificates.
    beside: Arc<KeyFile>,
    /// The keys are not there.
    is_elsewhere: bool,
    hosts: Vec<String>,
    provider: Arc<CryptoProvider>,
    current: Arc<ArcSwap<Current>>,
    accounts: Arc<AccountTokens>,
    front_proxy: Arc<FrontProxy>,
    /// Held while something is replaced.
    given: Mutex<Given>,
    /// When the administrator's kubeconfig was made, and which authorities it names.
    admin: Mutex<Option<(i64, String)>>,
}

/// What the provider's files hold.
#[derive(Clone, Default)]
struct Given {
    /// Authorities of proxies that authenticate for others, in PEM.
    proxies: Option<String>,
    files: Vec<ServingFiles>,
    provided: Arc<[Provided]>,
}

/// What there is now.
pub(crate) struct Current {
    keys: Keys,
    /// The generation of the authority that is used; another one needs another certificate.
    used: u32,
    /// Changes when somebody is no longer believed, or somebody else is.
    pub(crate) epoch: u64,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) clients: Arc<ClientCertificates>,
    /// Signs certificates of clients.
    issuer: Arc<Issuer<'static, KeyPair>>,
    planes: Arc<[PlaneAuthorities]>,
    ca: String,
    front_proxy_ca: String,
    serving: Arc<ServerCertificates>,
    provided: Arc<[Provided]>,
}

impl Pki {
    /// Opens the keys in a directory, making what is missing. `hosts` are the names and addresses clients use.
    pub fn open(directory: &Path, hosts: &[String], now: i64) -> Result<Pki, PkiError> {
        let file = Arc::new(KeyFile::open(directory, now)?);
        Pki::with((file.clone(), file, false), directory, hosts, now)
    }

    /// The same with keys that are kept elsewhere: in the directory are only certificates, for people to look at.
    pub fn open_with(
        place: Arc<dyn KeyPlace>,
        directory: &Path,
        hosts: &[String],
        now: i64,
    ) -> Result<Pki, PkiError> {
        Pki::with((place, Arc::new(KeyFile::without_keys(directory)?), true), directory, hosts, now)
    }

    fn with(
        (place, beside, is_elsewhere): (Arc<dyn KeyPlace>, Arc<KeyFile>, bool),
        directory: &Path,
        hosts: &[String],
        now: i64,
    ) -> Result<Pki, PkiError> {
        let keys = place.change(&|keys| keys.keep_up(now)).or_else(|error| {
            // On a full disk the server still starts, with what it has.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "what is due of keys and certificates is not done");
            place.read()
        })?;
        let (provider, hosts) = (provider(), hosts.to_vec());
        let unusable =
            || PkiError::Unusable { path: directory.join("keys.json"), directory: directory.into() };
        let front_proxy = Arc::new(FrontProxy::new(&keys, now).map_err(|_| unusable())?);
        let notary = Notary(place.clone());
        let accounts = Arc::new(AccountTokens::new(&account_secrets(&keys)).with_notary(notary));
        let serving =
            Arc::new(ServerCertificates::new(&keys, &hosts, &provider, now).map_err(|_| unusable())?);
        let given = Given::default();
        let current = Current::new(keys, serving, &given, &provider, 0, now)?;
        let current = Arc::new(ArcSwap::from_pointee(current));
        let (given, admin) = (Mutex::new(given), Mutex::new(None));
        let pki = Pki {
            keys: place,
            beside,
            is_elsewhere,
            hosts,
            provider,
            current,
            accounts,
            front_proxy,
            given,
            admin,
        };
        pki.publish();
        Ok(pki)
    }

    /// What [`Pki::ca`] and [`Pki::front_proxy_ca`] will say of a server with these keys and files.
    pub fn told(keys: &Keys, files: &[ServingFiles]) -> Result<[String; 2], PkiError> {
        Ok(bundles(keys, &provided(files, &provider())?))
    }

    /// Believes proxies which authenticate for others if these authorities, in PEM, vouch for them. From the next connection or
    /// request on.
    pub fn set_proxies(&self, pem: Option<String>, now: i64) -> Result<(), PkiError> {
        let mut given = self.given.lock();
        if given.proxies == pem {
            return Ok(());
        }
        self.take(&mut given, |given| given.proxies = pem, now)
    }

    /// Shows certificates of the provider's to those who ask for their names, from the next connection on.
    pub fn set_serving(&self, files: Vec<ServingFiles>, now: i64) -> Result<(), PkiError> {
        let mut given = self.given.lock();
        if given.files == files {
            return Ok(());
        }
        let provided = provided(&files, &self.provider)?;
        self.take(&mut given, |given| (given.files, given.provided) = (files, provided), now)?;
        drop(given);
        self.publish();
        Ok(())
    }

    fn take(&self, given: &mut Given, change: impl FnOnce(&mut Given), now: i64) -> Result<(), PkiError> {
        let mut changed = given.clone();
        change(&mut changed);
        let current = self.current();
        let (keys, serving) = (current.keys.clone(), current.serving.clone());
        let new = Current::new(keys, serving, &changed, &self.provider, current.epoch + 1, now)?;
        self.current.store(Arc::new(new));
        *given = changed;
        Ok(())
    }

    /// Does what is due at this time, and takes over what an operator has changed. True if others must be told of something.
    pub fn keep_up(&self, now: i64) -> Result<bool, PkiError> {
        let given = self.given.lock();
        let keys = self.keys.change(&|keys| keys.keep_up(now))?;
        let current = self.current();
        let used = keys.used(Family::Authority, now).map_or(0, |own| own.number);
        let is_same = keys == current.keys && used == current.used;
        let is_kept =
            |old: &Generation| keys.of(Family::Authority).iter().any(|own| own.number == old.number);
        // What goes with the certificate leads on from authorities that are believed, and from no other.
        let is_one_gone = !current.keys.of(Family::Authority).iter().all(is_kept);
        let renews = used != current.used || is_one_gone || current.serving.is_due(keys.serving_from, now);
        self.front_proxy.replace(&keys, now)?;
        if is_same && !renews {
            return Ok(false);
        }
        let serving = match renews {
            true => Arc::new(ServerCertificates::new(&keys, &self.hosts, &self.provider, now)?),
            false => current.serving.clone(),
        };
        log_changes(&current.keys, &keys, now);
        let is_believed_same = keys.of(Family::Authority) == current.keys.of(Family::Authority);
        let epoch = current.epoch + u64::from(!is_believed_same);
        self.accounts.replace(&account_secrets(&keys));
        let new = Current::new(keys, serving, &given, &self.provider, epoch, now)?;
        let is_news = (&new.ca, &new.front_proxy_ca) != (&current.ca, &current.front_proxy_ca);
        self.current.store(Arc::new(new));
        drop(given);
        self.publish();
        Ok(is_news)
    }

    /// Changes the keys as an operator wishes. [`Pki::keep_up`] takes it over.
    pub fn change_keys(&self, change: &KeyChange<'_>) -> Result<(), PkiError> {
        self.keys.change(change).map(drop)
    }

    /// For people who look into the directory. On a full disk the server goes on without.
    fn publish(&self) {
        let current = self.current();
        let published =
            self.beside.publish(&current.ca, &current.front_proxy_ca, current.serving.certificate());
        let told = match self.is_elsewhere {
            true => self.beside.tell(&current.keys),
            false => Ok(()),
        };
        if let Err(error) = published.and(told) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot write the certificates down for people to read"
            );
        }
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.load_full()
    }

    /// The certificates of all authorities to trust this server by, in PEM, the one that is used first.
    pub fn ca(&self) -> String {
        self.current().ca.clone()
    }

    /// The same by which extension servers know this one.
    pub fn front_proxy_ca(&self) -> String {
        self.current().front_proxy_ca.clone()
    }

    /// Whether planes may know less than there is to tell: not so before anything has ever changed, nor after all were told.
    pub fn is_untold(&self) -> bool {
        let keys = &self.current().keys;
        let has_news = self.has_changed() || keys.account_drops > 0;
        keys.told != self.digest() && (has_news || !keys.told.is_empty())
    }

    /// Whether anything of what planes are told has ever changed. Planes that begin with what others had then may be behind.
    pub fn has_changed(&self) -> bool {
        let current = self.current();
        let is_first = |family| current.keys.newest(family).is_none_or(|newest| newest.number == 1);
        !(is_first(Family::Authority) && is_first(Family::FrontProxy) && current.provided.is_empty())
    }

    /// All planes have been told what this names ([`Pki::digest`]).
    pub fn note_told(&self, digest: String) -> Result<(), PkiError> {
        self.keys.change(&|keys| {
            keys.told.clone_from(&digest);
            Ok(())
        })?;
        Ok(())
    }

    /// Names what planes are told.
    pub fn digest(&self) -> String {
        let current = self.current();
        let digest = Sha256::new().chain_update(&current.ca).chain_update("\0");
        let mut digest = digest.chain_update(&current.front_proxy_ca);
        if current.keys.account_drops > 0 {
            digest.update(current.keys.account_drops.to_be_bytes());
        }
        let digest = digest.finalize();
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest)
    }

    /// By what extension servers know this one.
    pub fn front_proxy(&self) -> Arc<FrontProxy> {
        self.front_proxy.clone()
    }

    /// What signs and reads tokens of service accounts.
    pub fn account_tokens(&self) -> Arc<AccountTokens> {
        self.accounts.clone()
    }

    /// What knows whether tokens of service accounts are still believed.
    pub fn token_keys(&self) -> Arc<dyn TokenKeys> {
        Arc::new(Accounts(self.accounts.clone()))
    }

    /// What signs certificates in the name of planes.
    pub fn plane_authority(&self) -> Arc<dyn CertificateAuthority> {
        let current = self.current.clone();
        Arc::new(Signer::new(Box::new(move || current.load().planes.clone())))
    }

    /// When each of them ends, by its name, in seconds since 1970; those that are only believed, when that ends.
    pub fn ends(&self, now: i64) -> Vec<(String, i64)> {
        let current = self.current();
        let mut ends = vec![("serving".to_owned(), current.serving.expires())];
        let provided =
            current.provided.iter().zip(1..).map(|(one, number)| (format!("tls-{number}"), one.expires));
        ends.extend(provided);
        let admin = self.admin.lock().as_ref().map(|(made, _)| made + LEAF_SECONDS);
        ends.extend(admin.map(|end| ("admin".to_owned(), end)));
        for family in Family::ALL {
            for (own, _, believed_until) in current.keys.standings(family, now) {
                let name = format!("{}-{}", family.name(), own.number);
                ends.push((name, believed_until.unwrap_or(own.expires)));
            }
        }
        ends
    }

    /// Whether the administrator should have another kubeconfig by now.
    pub fn is_admin_due(&self, now: i64) -> bool {
        let current = self.current();
        let is_due = |(made, ca): &(i64, String)| {
            *made < current.keys.admin_from || made + LEAF_SECONDS / 3 * 2 <= now || *ca != current.ca
        };
        self.admin.lock().as_ref().is_some_and(is_due)
    }

    /// A kubeconfig for the provider: all planes, everything allowed. Its current context is the core plane.
    pub fn admin_kubeconfig(&self, url: &str, now: i64) -> Result<String, PkiError> {
        self.kubeconfig(url, "core", "polder-admin", None, now)
    }

    /// Writes it to a file. What could not be written is due.
    pub fn admin_write(&self, path: &Path, url: &str, now: i64) -> Result<(), PkiError> {
        let ca = self.ca();
        let written = self.admin_kubeconfig(url, now).and_then(|text| write_private(path, &text));
        *self.admin.lock() = Some((if written.is_ok() { now } else { 0 }, ca));
        written
    }

    /// A kubeconfig for one plane: everything allowed there, nothing anywhere else.
    pub fn plane_kubeconfig(&self, plane: &Plane, url: &str, now: i64) -> Result<String, PkiError> {
        let url = format!("{url}/clusters/{}", plane.name);
        self.kubeconfig(&url, plane.name.as_str(), "plane-admin", Some(plane), now)
    }

    fn kubeconfig(
        &self,
        url: &str,
        context: &str,
        user: &str,
        plane: Option<&Plane>,
        now: i64,
    ) -> Result<String, PkiError> {
        let current = self.current();
        let key = KeyPair::generate()?;
        let names = [(DnType::CommonName, user), (DnType::OrganizationName, MASTERS)];
        let mut params = named(&names, now, LEAF_SECONDS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(plane) = plane {
            let uri = format!("{PLANE_URI_SCHEME}{}", plane.id);
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        let certificate = params.signed_by(&key, &*current.issuer)?.pem();
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters:\n- name: {context}\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\n\
             users:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
             contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {user}\n",
            encode(&current.ca),
            encode(&certificate),
            encode(&key.serialize_pem()),
        ))
    }
}

impl Current {
    fn new(
        keys: Keys,
        serving: Arc<ServerCertificates>,
        given: &Given,
        provider: &Arc<CryptoProvider>,
        epoch: u64,
        now: i64,
    ) -> Result<Current, PkiError> {
        let wrong = |error: &'static str| PkiError::Tls(error.into());
        let authorities = keys.of(Family::Authority);
        let newest = authorities.last().ok_or_else(|| wrong("there is no authority"))?;
        let issuer = Arc::new(newest.issuer()?);
        let mut all = Vec::new();
        let mut planes = Vec::new();
        for own in authorities.iter().rev() {
            let ca = CertificateDer::from_pem_slice(own.certificate.as_bytes())
                .map_err(|error| PkiError::Tls(Box::new(error)))?;
            // The authorities of planes last as long as the server's own.
            let plane = PlaneAuthorities::new(&own.secret, &ca);
            planes.push(plane.ok_or_else(|| wrong("an authority cannot be used"))?);
            all.push(ca);
        }
        let planes: Arc<[PlaneAuthorities]> = planes.into();
        let proxies = match &given.proxies {
            Some(pem) => {
                let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                Some(verifier(all.map_err(|error| PkiError::Tls(Box::new(error)))?, provider)?)
            }
            None => None,
        };
        let own = verifier(all, provider)?;
        let clients = Arc::new(ClientCertificates::new(own, planes.clone(), proxies, provider.clone()));
        let provided = given.provided.clone();
        let shown = Arc::new(Shown { own: serving.clone(), provided: provided.clone() });
        let tls = Arc::new(tls(provider, clients.clone(), shown)?);
        let [ca, front_proxy_ca] = bundles(&keys, &provided);
        let used = keys.used(Family::Authority, now).map_or(0, |own| own.number);
        Ok(Current { keys, used, epoch, tls, clients, issuer, planes, ca, front_proxy_ca, serving, provided })
    }
}

fn provided(files: &[ServingFiles], provider: &Arc<CryptoProvider>) -> Result<Arc<[Provided]>, PkiError> {
    let read = |file: &ServingFiles| {
        let why = |why| PkiError::Provided { name: file.name.clone(), why };
        Provided::read(file, provider).map_err(why)
    };
    files.iter().map(read).collect()
}

/// What others should know the server by, and its front proxy.
fn bundles(keys: &Keys, provided: &[Provided]) -> [String; 2] {
    let mut ca = keys.bundle(Family::Authority);
    for one in provided {
        if !ca.contains(&one.authority) {
            ca.push_str(&one.authority);
        }
    }
    [ca, keys.bundle(Family::FrontProxy)]
}

/// TLS for the server: its certificates, and client certificates of its authority or of a plane's if a client has one.
fn tls(
    provider: &Arc<CryptoProvider>,
    clients: Arc<ClientCertificates>,
    shown: Arc<Shown>,
) -> Result<rustls::ServerConfig, PkiError> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| PkiError::Tls(Box::new(error)))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(shown);
    config.ignore_client_order = true;
    // A session that is taken up again is not asked for a certificate that is still good.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // AES-128 first, as Go's servers have it: encrypting is a fifth of what a long list costs.
    let preferred = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != preferred);
    Arc::new(provider)
}

fn verifier(
    all: Vec<CertificateDer<'_>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, PkiError> {
    let mut roots = RootCertStore::empty();
    for ca in all {
        roots.add(ca).map_err(|error| PkiError::Tls(Box::new(error)))?;
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| PkiError::Tls(Box::new(error)))
}

/// Says which generations have come and gone, and which are used from now on.
fn log_changes(before: &Keys, after: &Keys, now: i64) {
    for family in Family::ALL {
        let numbers = |keys: &Keys| keys.of(family).iter().map(|own| own.number).collect::<Vec<_>>();
        let (old, new) = (numbers(before), numbers(after));
        for generation in new.iter().filter(|number| !old.contains(number)) {
            tracing::info!(key = family.name(), generation, "a new key is told");
        }
        for generation in old.iter().filter(|number| !new.contains(number)) {
            tracing::info!(key = family.name(), generation, "an old key is believed no more");
        }
        let used = |keys: &Keys| keys.used(family, now).map(|own| own.number);
        if used(before) != used(after) {
            tracing::info!(key = family.name(), generation = used(after), "another key is used");
        }
    }
}

fn account_secrets(keys: &Keys) -> Vec<AccountSecret> {
    let secret = |own: &Generation| AccountSecret {
        generation: own.number,
        secret: own.secret.clone(),
        used_from: own.used_from,
        tokens_until: own.tokens_until,
    };
    keys.of(Family::ServiceAccounts).iter().map(secret).collect()
}

struct Accounts(Arc<AccountTokens>);

impl TokenKeys for Accounts {
    fn believes(&self, plane: PlaneId, key: &str) -> bool {
        self.0.believes(plane, key)
    }
}

/// Notes beside the keys for tokens until when they must be kept.
struct Notary(Arc<dyn KeyPlace>);

impl TokenNotary for Notary {
    fn note(&self, generation: u32, ends: i64) -> Result<(), AccountKeyError> {
        let noted = self.0.change(&|keys| {
            keys.note_token(generation, ends);
            Ok(())
        });
        noted.map(drop).map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot note how long a token is good: it is not made"
            );
            AccountKeyError
        })
    }
}

/// Writes a file only its owner can read, whole or not at all.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let file_error = |source| PkiError::File { path: path.into(), source };
    let next = path.with_extension("new");
    // What was left by a crash, or laid there by somebody else, is not written to: it may be open to others, or lead elsewhere.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file_error(error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&next).map_err(file_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(file_error)?;
    fs::rename(&next, path).map_err(file_error)
}

/// A certificate for these names, good from now for so many seconds.
pub(crate) fn named(names: &[(DnType, &str)], now: i64, seconds: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    for (kind, text) in names {
        name.push(kind.clone(), *text);
    }
    params.distinguished_name = name;
    let at = |seconds: i64| {
        let since = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        std::time::SystemTime::UNIX_EPOCH + since
    };
    // An hour back: clocks differ.
    params.not_before = at(now - 3_600).into();
    params.not_after = at(now.saturating_add(seconds)).into();
    params
}

#[cfg(test)]
mod tests;
