//! Kubeconfig files: who talks to which server, and how each proves who it is.
//!
//! Understood: embedded data and files, contexts, bearer tokens, client certificates, a CA, `insecure-skip-tls-verify`,
//! `tls-server-name`. Credential plugins and passwords are refused by name instead of being ignored.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::Deserialize;

/// A kubeconfig larger than this is something else.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("cannot read {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not a kubeconfig")]
    Malformed {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{path} names no current context: choose one with --context (there is {known})")]
    NoCurrent { path: PathBuf, known: String },
    #[error("{path} has no {what} {name:?} (there is {known})")]
    Missing { path: PathBuf, what: &'static str, name: String, known: String },
    #[error(
        "user {user:?} of {path} uses {what}, which this client does not support: use a token or a client certificate"
    )]
    Unsupported { path: PathBuf, user: String, what: &'static str },
    #[error("{path}: {what}")]
    Invalid { path: PathBuf, what: String },
}

/// A certificate chain and its key, PEM.
pub type CertificateAndKey = (Vec<u8>, Vec<u8>);

/// Everything needed to talk to one server as one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `https://host:port/prefix`, without a slash at the end.
    pub server: String,
    /// The name to expect in the server's certificate, if it is not the host.
    pub tls_server_name: Option<String>,
    /// PEM.
    pub certificate_authority: Option<Vec<u8>>,
    pub insecure: bool,
    pub client_certificate: Option<CertificateAndKey>,
    pub token: Option<String>,
    /// The context's namespace.
    pub namespace: Option<String>,
    /// Whom the context names and in which file, for people: `user "ann" of /home/ann/config`.
    pub whom: String,
}

/// One kubeconfig, or several read as one.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    path: PathBuf,
    current: String,
    clusters: Vec<(PathBuf, Named<Cluster>)>,
    users: Vec<(PathBuf, Named<User>)>,
    contexts: Vec<Named<Context>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: Option<String>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Clone, Debug)]
struct Named<T> {
    name: String,
    value: T,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    exec: Option<Anything>,
    auth_provider: Option<Anything>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

/// Something that is there, whatever it is.
#[derive(Clone, Copy, Debug)]
struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Anything, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Anything)
    }
}

impl Kubeconfig {
    pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
        let file_error = |source| KubeconfigError::File { path: path.into(), source };
        let length = std::fs::metadata(path).map_err(file_error)?.len();
        if length > FILE_BYTES_MAX {
            return Err(invalid(path, format!("{length} bytes are too many for a kubeconfig")));
        }
        let text = std::fs::read_to_string(path).map_err(file_error)?;
        Kubeconfig::parse(path, &text)
    }

    /// Reads several files as one, as `KUBECONFIG=a:b` means it: what comes first wins.
    pub fn read_all(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
        let mut merged = Kubeconfig::default();
        for path in paths {
            let next = Kubeconfig::read(path)?;
            if merged.path.as_os_str().is_empty() {
                merged.path = next.path;
            }
            if merged.current.is_empty() {
                merged.current = next.current;
            }
            merged.clusters.extend(next.clusters);
            merged.users.extend(next.users);
            merged.contexts.extend(next.contexts);
        }
        Ok(merged)
    }

    /// Reads the text of a kubeconfig; `path` is where files that it names are looked for.
    pub fn parse(path: &Path, text: &str) -> Result<Kubeconfig, KubeconfigError> {
        let file: File = serde_saphyr::from_str(text)
            // Without the piece of the file: that says the same again.
            .map_err(|error| KubeconfigError::Malformed {
                path: path.into(),
                source: error.without_snippet().to_string().into(),
            })?;
        let clusters = file.clusters.unwrap_or_default().into_iter();
        let users = file.users.unwrap_or_default().into_iter();
        let contexts = file.contexts.unwrap_or_default().into_iter();
        Ok(Kubeconfig {
            path: path.into(),
            current: file.current_context.unwrap_or_default(),
            clusters: clusters
                .map(|one| (path.into(), Named { name: one.name, value: one.cluster }))
                .collect(),
            users: users.map(|one| (path.into(), Named { name: one.name, value: one.user })).collect(),
            contexts: contexts.map(|one| Named { name: one.name, value: one.context }).collect(),
        })
    }

    /// What a context, or the current one, stands for. Files it names are read now.
    pub fn access(&self, context: Option<&str>) -> Result<Access, KubeconfigError> {
        let contexts = || list(self.contexts.iter().map(|context| context.name.as_str()));
        let wanted = context.unwrap_or(&self.current);
        if wanted.is_empty() {
            return Err(KubeconfigError::NoCurrent { path: self.path.clone(), known: contexts() });
        }
        let missing = |what, name: &str, known| KubeconfigError::Missing {
            path: self.path.clone(),
            what,
            name: name.into(),
            known,
        };
        let context = self.contexts.iter().find(|context| context.name == wanted);
        let context = &context.ok_or_else(|| missing("context", wanted, contexts()))?.value;
        let cluster = self.clusters.iter().find(|(_, cluster)| cluster.name == context.cluster);
        let (cluster_path, cluster) = cluster.ok_or_else(|| {
            let known = list(self.clusters.iter().map(|(_, cluster)| cluster.name.as_str()));
            missing("cluster", &context.cluster, known)
        })?;
        let cluster = &cluster.value;
        let nobody = (PathBuf::new(), Named { name: String::new(), value: User::default() });
        let (user_path, user) = match self.users.iter().find(|(_, user)| user.name == context.user) {
            Some(user) => user,
            None if context.user.is_empty() => &nobody,
            None => {
                let known = list(self.users.iter().map(|(_, user)| user.name.as_str()));
                return Err(missing("user", &context.user, known));
            }
        };
        let server = cluster.server.trim_end_matches('/');
        if !server.starts_with("https://") && !server.starts_with("http://") {
            let what = format!("{server:?} is not the URL of a server: it must start with https://");
            return Err(invalid(cluster_path, what));
        }
        let authority = &cluster.certificate_authority_data;
        Ok(Access {
            server: server.into(),
            tls_server_name: cluster.tls_server_name.clone(),
            certificate_authority: pem(cluster_path, authority, &cluster.certificate_authority)?,
            insecure: cluster.insecure_skip_tls_verify,
            client_certificate: certificate(user_path, &user.value)?,
            token: token(user_path, user)?,
            namespace: context.namespace.clone(),
            whom: match context.user.is_empty() {
                true => format!("nobody, by context {wanted:?} of {}", self.path.display()),
                false => format!("user {:?} of {}", context.user, user_path.display()),
            },
        })
    }
}

fn certificate(path: &Path, user: &User) -> Result<Option<CertificateAndKey>, KubeconfigError> {
    let chain = pem(path, &user.client_certificate_data, &user.client_certificate)?;
    let key = pem(path, &user.client_key_data, &user.client_key)?;
    match (chain, key) {
        (Some(chain), Some(key)) => Ok(Some((chain, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(invalid(path, "a client certificate needs its client-key".into())),
        (None, Some(_)) => Err(invalid(path, "a client key needs its client-certificate".into())),
    }
}

fn token(path: &Path, user: &Named<User>) -> Result<Option<String>, KubeconfigError> {
    let unsupported =
        |what| KubeconfigError::Unsupported { path: path.into(), user: user.name.clone(), what };
    let own = &user.value;
    if let Some(token) = own.token.as_deref().filter(|token| !token.is_empty()) {
        return Ok(Some(token.into()));
    }
    if let Some(file) = &own.token_file {
        let text = read_beside(path, file)?;
        return Ok(Some(String::from_utf8_lossy(&text).trim().into()));
    }
    if own.client_certificate.is_none() && own.client_certificate_data.is_none() {
        if own.exec.is_some() {
            return Err(unsupported("a credential plugin (exec)"));
        }
        if own.auth_provider.is_some() {
            return Err(unsupported("an auth-provider"));
        }
        if own.username.is_some() {
            return Err(unsupported("a password"));
        }
    }
    Ok(None)
}

/// Embedded data wins over a file, as everywhere.
fn pem(
    path: &Path,
    data: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<Vec<u8>>, KubeconfigError> {
    if let Some(data) = data.as_deref().filter(|data| !data.is_empty()) {
        let compact: String = data.split_whitespace().collect();
        let decoded = base64::engine::general_purpose::STANDARD.decode(compact);
        return decoded.map(Some).map_err(|_| invalid(path, "certificate data that is not base64".into()));
    }
    file.as_deref().map(|file| read_beside(path, file)).transpose()
}

/// Relative names are relative to the kubeconfig that uses them.
fn read_beside(path: &Path, file: &Path) -> Result<Vec<u8>, KubeconfigError> {
    let file = path.parent().unwrap_or(Path::new("")).join(file);
    std::fs::read(&file).map_err(|source| KubeconfigError::File { path: file, source })
}

fn invalid(path: &Path, what: String) -> KubeconfigError {
    KubeconfigError::Invalid { path: path.into(), what }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.take(8).map(|name| format!("{name:?}")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
apiVersion: v1
kind: Config
current-context: a
preferences: {}
clusters:
- name: one
  cluster: {server: "https://one:6443/clusters/x/", certificate-authority-data: "QUJD"}
- name: two
  cluster: {server: "https://two", insecure-skip-tls-verify: true, tls-server-name: second}
- name: three
  cluster: {server: "three:80"}
users:
- name: cert
  user: {client-certificate-data: "Y2VydA==", client-key: key.pem}
- name: token
  user: {token: secret}
- name: file
  user: {tokenFile: token.txt}
- name: exec
  user: {exec: {command: aws, args: [a]}}
- name: half
  user: {client-certificate-data: "Y2VydA=="}
contexts:
- name: a
  context: {cluster: one, user: cert, namespace: web}
- name: b
  context: {cluster: two, user: token}
- name: c
  context: {cluster: two, user: file}
- name: d
  context: {cluster: two, user: exec}
- name: e
  context: {cluster: nowhere, user: token}
- name: f
  context: {cluster: three, user: token}
- name: g
  context: {cluster: two, user: half}
- name: h
  context: {cluster: two}
- name: i
  context: {cluster: two, user: nobody}
"#;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key.pem"), "key").unwrap();
        std::fs::write(directory.path().join("token.txt"), "from file\n").unwrap();
        std::fs::write(directory.path().join("config"), WHOLE).unwrap();
        directory
    }

    #[test]
    fn contexts_become_access() {
        let directory = directory();
        let config = Kubeconfig::read(&directory.path().join("config")).unwrap();
        let access = config.access(None).unwrap();
        assert_eq!(access.server, "https://one:6443/clusters/x");
        assert_eq!(access.certificate_authority.as_deref(), Some(&b"ABC"[..]));
        assert_eq!(access.client_certificate, Some((b"cert".to_vec(), b"key".to_vec())));
        assert_eq!((access.token, access.namespace.as_deref()), (None, Some("web")));
        let two = |context| config.access(Some(context)).unwrap();
        let expected = Access {
            server: "https://two".into(),
            insecure: true,
            tls_server_name: Some("second".into()),
            token: Some("secret".into()),
            whom: format!("user \"token\" of {}", directory.path().join("config").display()),
            ..Access::default()
        };
        assert_eq!(two("b"), expected);
        assert_eq!(two("c").token.as_deref(), Some("from file"));
        assert_eq!(two("h").token, None);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let directory = directory();
        let config = Kubeconfig::read(&directory.path().join("config")).unwrap();
        let rows = [
            ("d", "credential plugin"),
            ("e", "has no cluster \"nowhere\" (there is \"one\", \"two\", \"three\")"),
            ("f", "must start with https://"),
            ("g", "needs its client-key"),
            ("i", "has no user \"nobody\""),
            ("z", "has no context \"z\""),
        ];
        for (context, expected) in rows {
            let error = config.access(Some(context)).unwrap_err().to_string();
            assert!(error.contains(expected), "{context}: {error}");
        }
        let empty = Kubeconfig::parse(Path::new("x"), "apiVersion: v1\nclusters: null\n").unwrap();
        assert!(empty.access(None).unwrap_err().to_string().contains("--context"));
        for text in ["[]", "clusters: [{name: []}]", "\u{1}"] {
            assert!(Kubeconfig::parse(Path::new("x"), text).is_err(), "{text}");
        }
        let missing = Kubeconfig::read(Path::new("/nonexistent/config")).unwrap_err();
        assert!(missing.to_string().contains("cannot read /nonexistent/config"));
    }

    #[test]
    fn several_files_are_read_as_one() {
        let directory = directory();
        let second = directory.path().join("second");
        let text = "current-context: other\ncontexts: [{name: other, context: {cluster: one, user: token}}]\n\
                    users: [{name: token, user: {token: later}}]\n";
        std::fs::write(&second, text).unwrap();
        let config = Kubeconfig::read_all(&[directory.path().join("config"), second]).unwrap();
        assert_eq!(config.access(None).unwrap().server, "https://one:6443/clusters/x");
        assert_eq!(config.access(Some("other")).unwrap().token.as_deref(), Some("secret"));
    }
}
