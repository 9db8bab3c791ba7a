//! Where PostgreSQL is, who we are to it, and how long things may take.

use std::time::Duration;

use polder_client_http::grpc::Identity;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};

/// Letters of a schema's name at most: a channel's is longer, and PostgreSQL takes 63.
const SCHEMA_LEN_MAX: usize = 50;

/// Has secrets, so it is not shown.
#[derive(Clone)]
pub struct JournalOptions {
    /// Servers, of which one takes writes; database, user and password.
    pub config: Config,
    /// TLS is spoken, and who we are there. `None`: no TLS.
    pub identity: Option<Identity>,
    /// The schema of the tables. Whoever has the same has the same history.
    pub schema: String,
    /// How long adding an entry may take, and waiting for one that is known to be there.
    pub timeout: Duration,
    /// How long to wait for a connection to one server.
    pub connect_timeout: Duration,
    /// How long to wait for one answer.
    pub call_timeout: Duration,
    /// How long to hear nothing before asking whether there is news. News come by themselves; this is for those that get lost.
    pub poll: Duration,
    /// Memory for entries that have arrived and wait.
    pub queued_bytes_max: usize,
    /// Whether this replica may lead.
    pub is_candidate: bool,
    /// When a leader that is gone is replaced.
    pub lease: Duration,
    /// How long entries are kept in the log; without, for ever.
    pub history: Option<Duration>,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("the address of PostgreSQL is not like postgres://user@host:5432/database")]
    Url(#[source] tokio_postgres::Error),
    #[error("the address of PostgreSQL names no {0}")]
    Missing(&'static str),
    #[error(
        "sslmode={0} is not one of disable, require and verify-full; the last two are the same here: the certificate is checked"
    )]
    SslMode(String),
    #[error(
        "{0:?} is no name of a schema: it must be of small letters, digits and '_', at most 50, and begin with a letter"
    )]
    Schema(String),
    #[error("cannot read {path}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("sslcert and sslkey come together")]
    HalfCertificate,
    #[error("the certificates for PostgreSQL cannot be used")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl JournalOptions {
    /// Reads an address as PostgreSQL's own clients do, `postgres://user:password@h1:5432,h2:5432/database?...`, with three
    /// differences: TLS is always spoken and the certificate always checked, by `sslrootcert` or the authorities of the system,
    /// unless it says `sslmode=disable` or names a socket of this machine; `schema` is where the tables are, `polder` by default;
    /// and a server that takes no writes is never used. `password` is for addresses that have none.
    pub fn parse(url: &str, password: Option<&[u8]>) -> Result<JournalOptions, OptionsError> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut mode, mut rest) = ("polder".to_owned(), String::new(), Vec::new());
        let (mut authorities, mut chain, mut key) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => value.clone_into(&mut schema),
                "sslmode" => value.clone_into(&mut mode),
                "sslrootcert" => authorities = Some(read(value)?),
                "sslcert" => chain = Some(read(value)?),
                "sslkey" => key = Some(read(value)?),
                _ => rest.push(pair),
            }
        }
        let url = if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
        let mut config: Config = url.parse().map_err(OptionsError::Url)?;
        if config.get_hosts().is_empty() {
            return Err(OptionsError::Missing("host"));
        }
        if config.get_user().is_none() {
            return Err(OptionsError::Missing("user"));
        }
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        let is_local = config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)));
        let is_plain = match mode.as_str() {
            "disable" => true,
            "" => is_local,
            "require" | "verify-full" => false,
            _ => return Err(OptionsError::SslMode(mode)),
        };
        let certificate = match (chain, key) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => return Err(OptionsError::HalfCertificate),
        };
        let identity = (!is_plain).then_some(Identity { authorities, certificate });
        Ok(JournalOptions { identity, schema, ..JournalOptions::new(config) })
    }

    /// With what is usual for the rest.
    pub fn new(config: Config) -> JournalOptions {
        JournalOptions {
            config,
            identity: Some(Identity::default()),
            schema: "polder".to_owned(),
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            poll: Duration::from_secs(5),
            queued_bytes_max: 64 << 20,
            is_candidate: true,
            lease: Duration::from_secs(6),
            history: Some(Duration::from_secs(300)),
        }
    }

    /// How connections are made.
    pub(crate) fn connecting(&self) -> Config {
        let mut config = self.config.clone();
        config
            .ssl_mode(if self.identity.is_some() { SslMode::Require } else { SslMode::Disable })
            .ssl_negotiation(SslNegotiation::Postgres)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(self.call_timeout)
            .keepalives(true)
            .keepalives_idle(self.poll.max(Duration::from_secs(1)));
        if config.get_application_name().is_none() {
            config.application_name("polder");
        }
        config
    }

    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        let letters = self.schema.as_bytes();
        let is_plain = letters
            .iter()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || *letter == b'_');
        let is_name = letters.first().is_some_and(u8::is_ascii_lowercase) && letters.len() <= SCHEMA_LEN_MAX;
        match is_plain && is_name {
            true => Ok(()),
            false => Err(OptionsError::Schema(self.schema.clone())),
        }
    }
}

fn read(path: &str) -> Result<Vec<u8>, OptionsError> {
    std::fs::read(path).map_err(|source| OptionsError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(url: &str, expected: &str) {
        let error = JournalOptions::parse(url, None).and_then(|options| options.check()).unwrap_err();
        let told = format!("{error}");
        assert!(told.contains(expected), "{told}");
        assert!(!format!("{error:?} {error}").contains("geheim"), "a password is told: {error:?}");
    }

    #[test]
    fn addresses() {
        let options =
            JournalOptions::parse("postgres://ann:geheim@h1:5433,h2/db?schema=own&connect_timeout=3", None);
        let options = options.unwrap();
        assert_eq!((options.schema.as_str(), options.identity.is_some()), ("own", true));
        assert_eq!(options.config.get_password(), Some(&b"geheim"[..]));
        assert_eq!(options.config.get_hosts().len(), 2);
        assert_eq!(options.connecting().get_ssl_mode(), SslMode::Require);
        let given = JournalOptions::parse("postgres://ann@h/db", Some(b"from a file")).unwrap();
        assert_eq!(given.config.get_password(), Some(&b"from a file"[..]));
        let kept = JournalOptions::parse("postgres://ann:geheim@h/db", Some(b"from a file")).unwrap();
        assert_eq!(kept.config.get_password(), Some(&b"geheim"[..]), "what the address says comes first");
        for plain in ["postgres://ann@h/db?sslmode=disable", "postgres://ann@%2Frun%2Fpostgresql/db"] {
            let options = JournalOptions::parse(plain, None).unwrap();
            assert_eq!(options.connecting().get_ssl_mode(), SslMode::Disable, "{plain}");
        }
        refused("postgres://ann:geheim@h/db?sslmode=prefer", "sslmode=prefer");
        refused("postgres://ann:geheim@h/db?schema=Robert\"; drop", "is no name of a schema");
        refused("postgres://ann:geheim@h/db?schema=", "is no name of a schema");
        refused("postgres://ann:geheim@h/db?sslrootcert=/nowhere/ca", "/nowhere/ca");
        refused("postgres://ann:geheim@h:port/db", "postgres://user@host");
        refused("postgres://ann:geheim@h/db?colour=red", "postgres://user@host");
        refused("postgres:///db", "names no host");
    }
}
