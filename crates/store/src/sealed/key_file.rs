//! The key-encryption key in a file: one key a line, a name and 32 bytes in base64, the newest first. The first wraps, all of them
//! unwrap. Lines that start with `#` say something to people.
//!
//! **Invariant.** A key file is written whole under another name, with mode 0600, and then renamed: nobody reads half of one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::cipher::{Cipher, Secret};
use super::wrapped::{KeyEncryption, KeyError, WrappedKey};

const LEN_MAX: u64 = 64 << 10;
const NAME_LEN_MAX: usize = 63;

/// A key file, read anew for each question: they are few.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// Whether a new store may make it.
    make: bool,
}

impl KeyFile {
    /// A file that somebody has put there.
    pub fn at(path: impl Into<PathBuf>) -> KeyFile {
        KeyFile { path: path.into(), make: false }
    }

    /// A file that is made for a new store when it is missing.
    pub fn made_at(path: impl Into<PathBuf>) -> KeyFile {
        KeyFile { path: path.into(), make: true }
    }

    fn unusable(&self, what: &str) -> KeyError {
        KeyError::Unusable(format!("{}: {what}", self.path.display()))
    }

    fn read(&self) -> Result<Vec<(String, Secret)>, KeyError> {
        let failed = |source: std::io::Error| KeyError::Failed {
            what: format!(
                "cannot read the encryption keys in {}; put the file back, or make one with `polder store add-key {}` if \
                 the store is new",
                self.path.display(),
                self.path.display()
            ),
            source: source.into(),
        };
        let mut text = Zeroizing::new(String::new());
        let file = File::open(&self.path).map_err(failed)?;
        file.take(LEN_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        let keys = parse(&text).map_err(|what| self.unusable(&what))?;
        match keys.is_empty() {
            true => Err(self.unusable("there is no key in it")),
            false => Ok(keys),
        }
    }
}

impl KeyEncryption for KeyFile {
    fn begin(&self) -> Result<(), KeyError> {
        if self.make && !self.path.exists() {
            add_key(&self.path)?;
        }
        Ok(())
    }

    fn current(&self) -> Result<String, KeyError> {
        Ok(self.read()?.swap_remove(0).0)
    }

    fn wrap(&self, secret: &Secret) -> Result<WrappedKey, KeyError> {
        let (key, own) = self.read()?.swap_remove(0);
        let mut bytes = Vec::new();
        let sealed = Cipher::new(&own).seal(&store_key_under(&key), secret.expose(), &mut bytes);
        sealed.ok_or(KeyError::NoRandom)?;
        Ok(WrappedKey { key, bytes })
    }

    fn unwrap(&self, wrapped: &WrappedKey) -> Result<Secret, KeyError> {
        let name = &wrapped.key;
        let keys = self.read()?;
        let known = || keys.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let (_, own) = keys.iter().find(|(own, _)| own == name).ok_or_else(|| {
            self.unusable(&format!(
                "the store needs key {name:?}, and the file has {} only: put its line back, and a new key before it",
                known()
            ))
        })?;
        Cipher::new(own).open_secret(&store_key_under(name), &wrapped.bytes).ok_or_else(|| {
            self.unusable(&format!("the store needs key {name:?}, and the one of that name here is another"))
        })
    }
}

fn store_key_under(key: &str) -> Vec<u8> {
    [b"store key\0", key.as_bytes()].concat()
}

/// Puts a new key before the others, or makes the file. Returns the name of the key.
pub fn add_key(path: &Path) -> Result<String, KeyError> {
    let failed = |what: &'static str| {
        move |source: std::io::Error| KeyError::Failed {
            what: format!("cannot {what} {}", path.display()),
            source: source.into(),
        }
    };
    let mut old = Zeroizing::new(String::new());
    match File::open(path) {
        Ok(file) => drop(file.take(LEN_MAX + 1).read_to_string(&mut old).map_err(failed("read"))?),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read")(error)),
    }
    parse(&old).map_err(|what| KeyError::Unusable(format!("{}: {what}", path.display())))?;
    let mut name = [0; 4];
    aws_lc_rs::rand::fill(&mut name).map_err(|_| KeyError::NoRandom)?;
    let name = format!("key-{:08x}", u32::from_be_bytes(name));
    let secret = Secret::random().ok_or(KeyError::NoRandom)?;
    let encoded = Zeroizing::new(STANDARD.encode(secret.expose()));
    let head = if old.is_empty() {
        "# Keys of a polder store, the newest first. Whoever has them can read its secrets.\n"
    } else {
        ""
    };
    let text = Zeroizing::new(format!("{head}{name} {}\n{}", &*encoded, &*old));

    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed("make the directory of"))?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = (|| {
        let _ = std::fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(directory)?.sync_all()
    })();
    written.map_err(failed("write"))?;
    Ok(name)
}

/// The keys in a file; what is wrong with it names the line and not what is in it.
fn parse(text: &str) -> Result<Vec<(String, Secret)>, String> {
    if text.len() as u64 > LEN_MAX {
        return Err(format!("it is longer than {LEN_MAX} bytes"));
    }
    let mut keys: Vec<(String, Secret)> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("line {number}: {what}");
        let (name, encoded) =
            line.split_once(char::is_whitespace).ok_or_else(|| wrong("write a name, a space and a key"))?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.len() > NAME_LEN_MAX || !name.bytes().all(is_name) {
            return Err(wrong("a name has up to 63 letters, digits, dots, dashes and underscores"));
        }
        if keys.iter().any(|(own, _)| own == name) {
            return Err(wrong("a key of this name stands above"));
        }
        let decoded = STANDARD.decode(encoded.trim()).map(Zeroizing::new);
        let secret = decoded.ok().and_then(|bytes| Secret::from_slice(&bytes));
        keys.push((name.to_owned(), secret.ok_or_else(|| wrong("a key is 32 bytes in base64"))?));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_names_the_line() {
        let key = STANDARD.encode([7; 32]);
        let long = "a".repeat(64);
        for (text, expected) in [
            (format!("# two\n\na {key}\n  b.1-x_y\t{key}  \n"), Ok(vec!["a", "b.1-x_y"])),
            (String::new(), Ok(vec![])),
            ("a".to_owned(), Err("line 1: write a name, a space and a key")),
            (format!("a {key}\na {key}"), Err("line 2: a key of this name stands above")),
            (format!("a {}", STANDARD.encode([7; 31])), Err("line 1: a key is 32 bytes in base64")),
            (format!("a {key} {key}"), Err("line 1: a key is 32 bytes in base64")),
            (format!("{long} {key}"), Err("line 1: a name has")),
            (format!("a/b {key}"), Err("line 1: a name has")),
            ("x".repeat(70_000), Err("it is longer than")),
        ] {
            match (parse(&text), expected) {
                (Ok(keys), Ok(names)) => {
                    assert_eq!(keys.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
                }
                (Err(what), Err(start)) => {
                    assert!(what.starts_with(start), "{what}");
                    assert!(!what.contains(&key), "{what}");
                }
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn keys_are_added_in_front_and_old_ones_still_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/encryption.key");
        assert!(KeyFile::at(&path).begin().is_ok() && !path.exists());
        let file = KeyFile::made_at(&path);
        assert!(file.current().is_err());
        file.begin().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let secret = Secret::random().unwrap();
        let first = file.wrap(&secret).unwrap();
        assert_eq!(first.key, file.current().unwrap());
        let second = add_key(&path).unwrap();
        assert_eq!(file.current().unwrap(), second);
        file.begin().unwrap();
        assert_eq!(file.current().unwrap(), second, "a file that is there is left alone");
        assert_eq!(file.unwrap(&first).unwrap().expose(), secret.expose());
        assert_eq!(file.wrap(&secret).unwrap().key, second);

        let text = std::fs::read_to_string(&path).unwrap();
        let kept: String = text.lines().filter(|line| !line.starts_with(&first.key)).collect();
        std::fs::write(&path, kept.replace("# Keys", "\n# Keys")).unwrap();
        let said = file.unwrap(&first).unwrap_err().to_string();
        assert!(said.contains(&first.key) && said.contains(&second), "{said}");

        std::fs::write(&path, format!("{} {}\n", first.key, STANDARD.encode([1; 32]))).unwrap();
        let said = file.unwrap(&first).unwrap_err().to_string();
        assert!(said.contains("is another"), "{said}");
    }

    #[test]
    fn wrapped_keys_come_back() {
        let wrapped = WrappedKey { key: "a key".into(), bytes: vec![1, 2, 3] };
        let bytes = wrapped.encode().unwrap();
        assert_eq!(WrappedKey::decode(&bytes), Some(wrapped));
        for len in 0..8 {
            assert_eq!(WrappedKey::decode(&bytes[..len]), None);
        }
    }
}
