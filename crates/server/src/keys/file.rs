//! The file that has all keys. It is read, changed and replaced as a whole, by one program at a time: the server, or the command of
//! an operator beside it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::{KeyChange, KeyPlace, Keys};
use crate::pki::PkiError;

const FILE: &str = "keys.json";
/// Where each key was in a file of its own before; the first two tell of an authority.
const OLD_FILES: [&str; 3] = ["ca.key", "service-accounts.key", "front-proxy-ca.key"];
/// What there is to know of keys that are elsewhere.
const TOLD: &str = "shared-keys.json";
/// What others may read.
const CA: &str = "ca.crt";
const FRONT_PROXY_CA: &str = "front-proxy-ca.crt";
/// Longer files are something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub struct KeyFile {
    directory: PathBuf,
}

impl KeyFile {
    /// Opens the keys in a directory. Makes them if there are none; what is due is not done yet.
    pub fn open(directory: &Path, now: i64) -> Result<KeyFile, PkiError> {
        fs::create_dir_all(directory).map_err(|source| PkiError::File { path: directory.into(), source })?;
        let own = KeyFile { directory: directory.into() };
        let lock = own.lock()?;
        if read(&own.path(FILE))?.is_none() {
            let keys = own.taken_over(now)?;
            own.write(&keys)?;
        }
        // Here, and not when they were taken over: that may have been cut short.
        for old in OLD_FILES {
            match fs::remove_file(own.path(old)) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(PkiError::File { path: own.path(old), source });
                }
                _ => {}
            }
        }
        drop(lock);
        own.read()?;
        // From when they were elsewhere.
        fs::remove_file(own.path(TOLD)).ok();
        Ok(own)
    }

    /// A directory for what people may look at, of a server whose keys are elsewhere.
    pub(crate) fn without_keys(directory: &Path) -> Result<KeyFile, PkiError> {
        fs::create_dir_all(directory).map_err(|source| PkiError::File { path: directory.into(), source })?;
        Ok(KeyFile { directory: directory.into() })
    }

    /// Keys that are there already, for whoever makes none.
    pub fn existing(directory: &Path) -> Result<KeyFile, PkiError> {
        let own = KeyFile { directory: directory.into() };
        own.read()?;
        Ok(own)
    }

    /// Whether a directory has keys.
    pub fn is_there(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }

    /// Puts keys from elsewhere into a directory that has none.
    pub fn put(directory: &Path, keys: &Keys) -> Result<(), PkiError> {
        let own = KeyFile::without_keys(directory)?;
        let _lock = own.lock()?;
        let path = own.path(FILE);
        if read(&path)?.is_some() {
            let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(PkiError::File { path, source });
        }
        own.write(keys)
    }

    pub fn read(&self) -> Result<Keys, PkiError> {
        let path = self.path(FILE);
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let text = read(&path)?.ok_or_else(|| PkiError::File { path: path.clone(), source: missing })?;
        let unusable = || PkiError::Unusable { path: path.clone(), directory: self.directory.clone() };
        Keys::from_text(&text).ok_or_else(unusable)
    }

    /// Changes the keys, and answers with what they are then. Nothing is written if nothing changes.
    pub fn change(&self, change: impl FnOnce(&mut Keys) -> Result<(), PkiError>) -> Result<Keys, PkiError> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut keys = before.clone();
        change(&mut keys)?;
        if keys != before {
            self.write(&keys)?;
        }
        Ok(keys)
    }

    /// Puts certificates beside the keys, for people to look at. Nothing here reads them.
    pub(crate) fn publish(&self, ca: &str, front_proxy_ca: &str, serving: &str) -> Result<(), PkiError> {
        for (name, text) in [(CA, ca), (FRONT_PROXY_CA, front_proxy_ca), ("serving.crt", serving)] {
            let path = self.path(name);
            if read(&path)?.as_deref() != Some(text) {
                self.replace(&path, text, 0o644)?;
            }
        }
        Ok(())
    }

    /// Writes down which keys there are, without their secrets, where those are elsewhere.
    pub(crate) fn tell(&self, keys: &Keys) -> Result<(), PkiError> {
        let (path, text) = (self.path(TOLD), keys.without_secrets().to_text()?);
        match read(&path)?.as_deref() == Some(text.as_str()) {
            true => Ok(()),
            false => self.replace(&path, &text, 0o644),
        }
    }

    /// What was told of keys that are elsewhere, if they are.
    pub fn told(directory: &Path) -> Result<Option<(KeyFile, Keys)>, PkiError> {
        let own = KeyFile { directory: directory.into() };
        let keys = read(&own.path(TOLD))?.and_then(|text| Keys::from_text(&text));
        Ok(keys.map(|keys| (own, keys)))
    }

    /// The certificate the server shows, if one is running or was.
    pub fn serving_certificate(&self) -> Option<String> {
        read(&self.path("serving.crt")).ok().flatten()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Until it is dropped, nobody else changes the keys. The directory is what is locked: the file is another one each time.
    fn lock(&self) -> Result<File, PkiError> {
        let failed = |source| PkiError::File { path: self.directory.clone(), source };
        let directory = File::open(&self.directory).map_err(failed)?;
        directory.lock().map_err(failed)?;
        Ok(directory)
    }

    fn write(&self, keys: &Keys) -> Result<(), PkiError> {
        self.replace(&self.path(FILE), &keys.to_text()?, 0o600)
    }

    /// Replaces a file, durably, as a whole or not at all. It belongs to whom the directory belongs: an operator who is root
    /// must not take the server's keys away from it.
    fn replace(&self, path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
        use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
        let write = || {
            let next = path.with_extension("new");
            // Whoever made it before may have given it another mode.
            fs::remove_file(&next).ok();
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&next)?;
            file.write_all(text.as_bytes())?;
            let (whose, own) = (fs::metadata(&self.directory)?, file.metadata()?);
            if (whose.uid(), whose.gid()) != (own.uid(), own.gid()) {
                fchown(&file, Some(whose.uid()), Some(whose.gid())).ok();
            }
            file.sync_all()?;
            fs::rename(&next, path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|source| PkiError::File { path: path.into(), source })
    }

    /// Keys of a server that had each in a file of its own, or new ones.
    fn taken_over(&self, now: i64) -> Result<Keys, PkiError> {
        let unusable =
            |name: &str| PkiError::Unusable { path: self.path(name), directory: self.directory.clone() };
        let key = |name: &'static str| -> Result<Option<Vec<u8>>, PkiError> {
            let Some(pem) = read(&self.path(name))? else { return Ok(None) };
            let key = KeyPair::from_pem(&pem).map_err(|_| unusable(name))?;
            Ok(Some(key.serialize_der()))
        };
        let [ca_key, accounts_key, front_proxy_key] = OLD_FILES;
        let authority = match (read(&self.path(CA))?, key(ca_key)?) {
            (Some(pem), Some(key)) => {
                let validity = validity(&pem).ok_or_else(|| unusable(CA))?;
                (pem, key, validity)
            }
            (None, None) => return Keys::first(now),
            // There was an authority, and its key is lost.
            (Some(_), None) => return Err(unusable(FILE)),
            (None, Some(_)) => return Err(unusable(CA)),
        };
        let front_proxy = match (read(&self.path(FRONT_PROXY_CA))?, key(front_proxy_key)?) {
            (Some(pem), Some(key)) => {
                let validity = validity(&pem).ok_or_else(|| unusable(FRONT_PROXY_CA))?;
                Some((pem, key, validity))
            }
            (Some(_), None) => return Err(unusable(front_proxy_key)),
            // A key without its certificate has been used for nothing.
            (None, _) => None,
        };
        let mut keys = Keys::imported(authority, key(accounts_key)?, front_proxy, now);
        keys.keep_up(now)?;
        Ok(keys)
    }
}

impl KeyPlace for KeyFile {
    fn read(&self) -> Result<Keys, PkiError> {
        KeyFile::read(self)
    }

    fn change(&self, change: &KeyChange<'_>) -> Result<Keys, PkiError> {
        KeyFile::change(self, change)
    }
}

/// From when until when a certificate is good.
pub fn validity(pem: &str) -> Option<[i64; 2]> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = certificate.validity();
    Some([validity.not_before.timestamp(), validity.not_after.timestamp()])
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    let failed = |source| PkiError::File { path: path.into(), source };
    match fs::metadata(path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => Err(failed(std::io::ErrorKind::FileTooLarge.into())),
        Ok(_) => fs::read_to_string(path).map(Some).map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(source)),
    }
}
