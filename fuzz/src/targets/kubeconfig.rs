//! Kubeconfigs: whatever a file says, it is read or refused with the reason; who is meant is somebody it names.

use std::path::Path;

use polder_client_http::Kubeconfig;

pub const WORDS: &[&str] = &[
    "current-context: ", "contexts:\n", "clusters:\n", "users:\n", "- name: a\n", "  context: {cluster: a, user: a}\n", "  cluster: {server: ",
    "https://a:1", "http://", "}\n", "  user: {token: t}\n", "certificate-authority-data: YQ==\n", "insecure-skip-tls-verify: true", "namespace: x\n", "exec:\n",
    "{", "}", "[", "]", ", ", "a", "null", "&x ", "*x", "\n", "  ", "~", "\"", "'", "apiVersion: v1\nkind: Config\n",
];

/// Members that name files, which are none of a fuzzer's business.
const FILES: &[&str] = &["certificate-authority:", "client-certificate:", "client-key:", "tokenFile"];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match Kubeconfig::parse(Path::new("fuzzed"), text) {
        Ok(config) => config,
        Err(error) => return assert!(error.to_string().contains("fuzzed"), "{error}"),
    };
    crate::accepted();
    if FILES.iter().any(|member| text.contains(member)) {
        return;
    }
    for context in [None, Some("a"), Some("")] {
        match config.access(context) {
            Ok(access) => {
                assert!(access.server.starts_with("http://") || access.server.starts_with("https://"));
                assert!(!access.server.ends_with('/') || access.server.ends_with("://"));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
