//! What the server keeps its planes in while it is run or tested here: `--store`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::Context as _;

use crate::step::quiet;
use crate::{tools, upstream};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    /// In its data directory.
    #[default]
    Embedded,
    /// In an etcd that is fetched and started for it.
    Etcd,
}

/// What was started for a server. Ends when it is dropped.
pub(crate) struct Started {
    etcd: Option<Child>,
    /// What to tell the server.
    pub(crate) arguments: Vec<String>,
}

impl Store {
    /// Starts what a server needs; what is kept goes below a folder that stays as long as the data of the server does.
    pub(crate) fn start(self, polder: &Path, folder: &Path) -> anyhow::Result<Started> {
        if self == Store::Embedded {
            return Ok(Started { etcd: None, arguments: Vec::new() });
        }
        let program = upstream::etcd().ensure(&tools::directory()?)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let key = folder.join("encryption.key");
        if !key.exists() {
            quiet(Command::new(polder).args(["store", "add-key"]).arg(&key))?;
        }
        let (etcd, url) = upstream::start_etcd(&program, folder)?;
        let arguments = vec![
            "--store".into(),
            url.replacen("http", "etcd", 1),
            "--encryption-key-file".into(),
            key.display().to_string(),
        ];
        Ok(Started { etcd: Some(etcd), arguments })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(etcd) = &mut self.etcd {
            etcd.kill().ok();
            etcd.wait().ok();
        }
    }
}
