//! The part of a kubeconfig a load generator needs: where the server is and which certificates to use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: String,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<PathBuf>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: Option<String>,
    client_certificate: Option<PathBuf>,
    client_key_data: Option<String>,
    client_key: Option<PathBuf>,
    token: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

/// Where to connect, and as whom.
pub(crate) struct Kubeconfig {
    pub(crate) server: String,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) token: Option<String>,
}

impl Kubeconfig {
    /// Reads the current context of a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Kubeconfig> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: File = serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is not a kubeconfig", path.display()))?;
        file.resolve(path).with_context(|| format!("cannot use {}", path.display()))
    }
}

impl File {
    fn resolve(&self, path: &Path) -> anyhow::Result<Kubeconfig> {
        let context = self.contexts.iter().find(|context| context.name == self.current_context);
        let context = &context.or(self.contexts.first()).context("it has no context")?.context;
        let cluster = self.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster.context("its context names no cluster")?.cluster;
        let user = self.users.iter().find(|user| user.name == context.user);
        let user = &user.context("its context names no user")?.user;

        let pem = |data: &Option<String>, file: &Option<PathBuf>| -> anyhow::Result<Option<Vec<u8>>> {
            match (data, file) {
                (Some(data), _) => Ok(Some(base64::engine::general_purpose::STANDARD.decode(data.trim())?)),
                (None, Some(file)) => {
                    let file = path.parent().unwrap_or(Path::new(".")).join(file);
                    Ok(Some(std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?))
                }
                (None, None) => Ok(None),
            }
        };
        let authority = pem(&cluster.certificate_authority_data, &cluster.certificate_authority)?
            .context("it names no certificate authority")?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&authority) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let certificate = pem(&user.client_certificate_data, &user.client_certificate)?;
        let key = pem(&user.client_key_data, &user.client_key)?;
        let mut tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>()?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?
            }
            _ => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let server = cluster.server.trim_end_matches('/').to_string();
        Ok(Kubeconfig { server, tls: Arc::new(tls), token: user.token.clone() })
    }
}
